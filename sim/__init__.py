"""Predicts what a scheduling change does to speculative decoding before anyone pays for the GPU time.

How a run flows: a *scenario* (device, engine, algorithm, policies, load) is read and checked by :mod:`sim.config`,
which fills what it leaves open from the capabilities the step program declares. :mod:`sim.run` puts the parts
together: :mod:`sim.serving` forms batches without knowing time, :mod:`sim.program` expands the step program under
the policies into operations, :mod:`sim.machine` times them on one host thread and in-order streams, and
:mod:`sim.trace` keeps the books. Replications become a :class:`RunResult` with intervals; :mod:`sim.study` runs grids
of them and :mod:`sim.report` draws what was stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api import (
        Comparison,
        InputError,
        RunResult,
        Scenario,
        Study,
        compare,
        load_profile,
        load_results,
        load_scenario,
        simulate,
    )

__all__ = [
    "Comparison",
    "InputError",
    "RunResult",
    "Scenario",
    "Study",
    "compare",
    "load_profile",
    "load_results",
    "load_scenario",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Loads the public names when they are first used: the command line starts without most of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sim import api

    return getattr(api, name)
