"""The host state of a boot from its own unprofiled timings: the ``host_scale`` of a conditioned prediction.

``run_batch`` is the longest section without a wait; its ratio to what the profile says at state 1 is the state.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from sim.config.profile import DeviceProfile
from sim.errors import InputError, Problem
from sim.ingest.assemble import GROUPS, host_cost
from sim.ingest.template import Template
from sim.ingest.timings import Row


def run_batch_at(profile: DeviceProfile, template: Template, batch: int) -> float:
    """The profile's run_batch at state 1 (µs), with what policies insert as the release is shipped."""
    total = template.bound_us
    for section in GROUPS["run_batch"]:
        cost = profile.costs.get(host_cost(section, template.label))
        total += _at(profile, host_cost(section, template.label), batch) if cost is not None else 0.0
    total += _at(profile, "call.record", batch)  # of publish_ready
    if not template.bound_us:  # a release without its own bound gathers lengths in every iteration
        total += _at(profile, "host.relay.resolve", batch) + _at(profile, "call.wait", batch)
    return total


def host_states(profile: DeviceProfile, template: Template, rows: list[Row]) -> dict[int, float]:
    """State of each concurrency's row of a boot, relative to the profile's state 1 (medians over several rows).

    Raises:
        InputError: no row of the template's engine.
    """
    engine = template.engine.rsplit("-", 1)[-1]
    own = [r for r in rows if r.engine in (engine, template.engine) and r.phase == "steady"]
    if not own:
        found = ", ".join(sorted({r.engine for r in rows})) or "no rows"
        raise InputError(Problem("timings: engine", found, f"steady rows of {engine}"))
    states: dict[int, list[float]] = {}
    for row in own:
        states.setdefault(row.batch, []).append(
            row["host_run_batch_us"] / run_batch_at(profile, template, row.batch)
        )
    return {batch: round(median(values), 4) for batch, values in sorted(states.items())}


def _at(profile: DeviceProfile, name: str, batch: int) -> float:
    cost = profile.costs[name]
    if isinstance(cost.value, tuple):
        return float(np.interp(batch, cost.batch or (), cost.value)) + cost.per_batch * batch
    return float(cost.value) + cost.per_batch * batch
