"""From cost names to the duration vector of a turn: central values in integer nanoseconds, no noise.

Written against :mod:`sim.config.profile` alone, so that a wrong look-up in the SimPy model shows as a difference.
The vector of a turn of n primitives holds n host durations, n device durations, three constants of the machine (the
wake of a blocked host, the hop of an event between streams, the latency from launch to start) and n wakes of
synchronisations that have a cost of their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.config.profile import DeviceProfile
from sim.config.resolve import Resolved
from sim.errors import InputError, Problem
from sim.maxplus.turn import Share, Turn
from sim.program.primitives import FIRST_LAUNCH

#: names of the three constants, in their order behind the durations
WAKE, HOP, LAUNCH = "call.wake", "hop.cross_stream", "hop.launch"
CONSTANTS = (WAKE, HOP, LAUNCH)


class Scales(NamedTuple):
    """Factors of all host costs and of all device costs."""

    host: float = 1.0
    device: float = 1.0


def scales_of(resolved: Resolved) -> Scales:
    return Scales(resolved.scenario.host_scale, resolved.scenario.device_scale)


def rounded(durations: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole nanoseconds, none of them negative."""
    return np.rint(np.maximum(durations, 0.0)).astype(np.int64)


def shares_of(turn: Turn) -> list[Share | None]:
    """What each entry of the turn's duration vector is a share of; None: always zero."""
    # The machine itself knows neither batch nor context.
    constants = [Share(name, 1.0, name == WAKE, 1, 1, reading=0.0) for name in CONSTANTS]
    return [*turn.host, *turn.device, *constants, *turn.wakes]


def hand_overs(turn: Turn) -> int:
    """Where the part of a duration vector begins that says what passing from one lane to another takes."""
    return 2 * len(turn.primitives)


class Durations:
    """Durations of a turn as linear functions of the mean context, before scaling and rounding.

    ``base`` is in ns, ``slope`` in ns a context token. Raises InputError for a cost the profile does not have.
    """

    def __init__(self, profile: DeviceProfile, turn: Turn):
        self.shares = shares_of(turn)
        self.base = np.zeros(len(self.shares))
        self.slope = np.zeros(len(self.shares))
        self.host = np.array([s is not None and s.host for s in self.shares])
        self._late = np.array([s is not None and s.late for s in self.shares])
        self._reading = np.ones(len(self.shares))
        for k, share in enumerate(self.shares):
            if share is not None:
                self._reading[k] = reading(profile, share)
                base, slope = _value(profile, share)
                self.base[k], self.slope[k] = base * share.share, slope * share.share

    def exact(
        self, scales: Scales | Sequence[Scales], context: float, late: float | None = None
    ) -> NDArray[np.float64]:
        """The duration vector at a mean context (tokens a request), ns, not rounded; one row for each of several
        ``scales``. ``late`` is the context of work on results where it differs from that of the launch."""
        scale = np.where(self.host, *np.asarray(scales, dtype=float).T[..., None])
        contexts = np.where(self._late, context if late is None else late, context)
        return np.asarray(self.base * scale + self.slope * scale * self._reading * contexts)

    def at(
        self, scales: Scales | Sequence[Scales], context: float, late: float | None = None
    ) -> NDArray[np.int64]:
        """:meth:`exact`, rounded to nanoseconds."""
        return rounded(self.exact(scales, context, late))

    def named(self) -> Iterator[tuple[int, Share]]:
        """(index into the vector, what it is a share of) of every entry that costs something."""
        return ((k, share) for k, share in enumerate(self.shares) if share is not None)


def reading(profile: DeviceProfile, share: Share) -> float:
    """The part of a cost's context slope that counts: that of the rows that read, and the floor of the others."""
    cost = profile.costs.get(share.name)
    if cost is None or share.reading in (0.0, 1.0):
        return share.reading
    rows = share.rows if cost.batch is None else min(max(share.rows, cost.batch[0]), cost.batch[-1])
    kept = _at(cost.context_floor, cost.batch, rows)
    return max(kept, share.reading)


def _value(profile: DeviceProfile, share: Share) -> tuple[float, float]:
    """(ns at context 0, ns a context token) of the whole cost, unscaled."""
    cost = profile.costs.get(share.name)
    if cost is None:
        raise InputError(
            Problem(
                f"device profile {profile.name}: costs",
                f'no cost "{share.name}"',
                f'an entry [costs."{share.name}"]',
                "Add it with its value, status and source, or choose a device that has it.",
            )
        )
    value = _at(cost.value, cost.batch, share.rows)
    base = value + cost.per_batch * share.rows + cost.per_token * share.tokens
    if 0.0 < share.reading < 1.0:
        base += _at(cost.per_empty, cost.batch, share.rows) * share.rows * (1 - share.reading)
    slope = _at(cost.per_context, cost.batch, share.rows)
    more = 0.0
    if share.first and FIRST_LAUNCH in profile.costs:
        more, _ = _value(profile, Share(FIRST_LAUNCH, 1.0, True, share.rows, share.tokens))
    return max(base, 0.0) * cost.ns_per_unit + more, slope * cost.ns_per_unit


def _at(given: float | tuple[float, ...], batches: tuple[int, ...] | None, batch: int) -> float:
    """A scalar, or the line through the two listed batches that enclose (or are nearest to) ``batch``."""
    if not isinstance(given, tuple):
        return given
    if len(given) == 1:
        return given[0]
    assert batches is not None
    right = min(max(bisect_left(batches, batch), 1), len(batches) - 1)
    (x0, x1), (y0, y1) = batches[right - 1 : right + 1], given[right - 1 : right + 1]
    return y0 + (y1 - y0) * (batch - x0) / (x1 - x0)
