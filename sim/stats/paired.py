"""Differences between two ways to run, on the same luck and the same machine.

Replication r of both sides draws the same requests, lengths and acceptances, and a boot's host state is one state
for both, so that what they share cancels. What one side alone depends on does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sim.stats.intervals import mean_interval, next_run_half_width

Interval = tuple[float, float]

#: samples of a result -> those of the same quantity at the other host states
QUANTITIES = {"throughput_tok_s": "throughput_tok_s_at_factors", "cycle_us": "cycle_us_at_factors"}


@dataclass(frozen=True)
class Change:
    """The mean of paired changes; ``ci95`` of that mean, ``pi95`` for one new boot that runs both sides once."""

    mean: float
    ci95: Interval | None
    pi95: Interval | None


@dataclass(frozen=True)
class Paired:
    """From A to B: ``absolute`` in the quantity's unit (B − A), ``relative`` as a share of A (B / A − 1)."""

    absolute: Change
    relative: Change


def paired(a: Mapping[str, Any], b: Mapping[str, Any], quantity: str) -> Paired | None:
    """The change of ``quantity`` from result ``a`` to ``b`` (JSON forms); None where either lacks it.

    Uses the replications that both have. ``pi95`` is None where either side was not run at other host states, or
    at others than its counterpart.
    """
    samples_a, samples_b = a["samples"], b["samples"]
    pairs = list(zip(samples_a[quantity], samples_b[quantity], strict=False))
    if not pairs or any(x is None or y is None for x, y in pairs):
        return None
    nodes = None
    intervals = [side[quantity]["pi95"] for side in (a, b)]
    at_a, at_b = (side[QUANTITIES[quantity]] for side in (samples_a, samples_b))
    if None not in intervals and len(at_a) == len(at_b) and None not in (*at_a, *at_b):
        nodes = list(zip(at_a, at_b, strict=True))
    return Paired(
        _change([y - x for x, y in pairs], None if nodes is None else [y - x for x, y in nodes]),
        _change([y / x - 1 for x, y in pairs], None if nodes is None else [y / x - 1 for x, y in nodes]),
    )


def _change(values: Sequence[float], at_nodes: Sequence[float] | None) -> Change:
    mean = math.fsum(values) / len(values)
    interval = mean_interval(values)
    if at_nodes is None:
        return Change(mean, interval, None)
    # The other host states are runs of the first replication; what they add is added to the mean.
    shifts = [0.0, *(v - values[0] for v in at_nodes)]
    luck = next_run_half_width(values)
    low, high = math.hypot(min(shifts), luck), math.hypot(max(shifts), luck)
    return Change(mean, interval, (mean - low, mean + high))


Verdict = Literal["faster", "slower", "cannot tell"]
#: relative changes below this are below what any cost is known to, however narrow the interval
RESOLUTION = 1e-4


def verdict(throughput: Change) -> Verdict:
    """What a relative change in throughput says: a direction only if every interval there is lies on its side, by
    more than :data:`RESOLUTION`."""
    intervals = [i for i in (throughput.ci95, throughput.pi95) if i is not None]
    if intervals and all(low > RESOLUTION for low, _ in intervals):
        return "faster"
    if intervals and all(high < -RESOLUTION for _, high in intervals):
        return "slower"
    return "cannot tell"
