"""From cost names to the duration vector of a turn: central values in integer nanoseconds, no noise.

Written against :mod:`sim.config.profile` alone, so that a wrong look-up in the SimPy model shows as a difference.
The vector of a turn of n primitives holds n host durations, n device durations and three constants of the
machine: the wake of a blocked host, the hop of an event between streams, the latency from launch to start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sim.config.profile import DeviceProfile
from sim.config.resolve import Resolved
from sim.errors import InputError, Problem
from sim.maxplus.turn import Share, Turn

#: names of the three constants, in their order at the end of the vector
WAKE, HOP, LAUNCH = "call.wake", "hop.cross_stream", "hop.launch"
CONSTANTS = (WAKE, HOP, LAUNCH)


def shares_of(turn: Turn) -> list[Share | None]:
    """What each entry of the turn's duration vector is a share of; None: always zero."""
    # The machine itself knows neither batch nor context.
    constants = [Share(name, 1.0, name == WAKE, 1, 1, reading=0.0) for name in CONSTANTS]
    return [*turn.host, *turn.device, *constants]


class Durations:
    """Durations of a turn as functions of the context: ``base + slope × context``, ns, scaled, not yet rounded.

    ``late`` is the context of work on results where it differs from that of the launch.
    Raises InputError for a cost that the profile does not have.
    """

    def __init__(self, resolved: Resolved, turn: Turn):
        scenario = resolved.scenario
        self.shares = shares_of(turn)
        self.base = np.zeros(len(self.shares))
        self.slope = np.zeros(len(self.shares))
        self._late = np.array([s is not None and s.late for s in self.shares])
        for k, share in enumerate(self.shares):
            if share is None:
                continue
            base, slope = _value(resolved.profile, share)
            scale = scenario.host_scale if share.host else scenario.device_scale
            self.base[k] = base * share.share * scale
            self.slope[k] = slope * share.share * scale * share.reading

    def at(self, context: float, late: float | None = None) -> NDArray[np.int64]:
        """The duration vector at a mean context (tokens a request), rounded to nanoseconds."""
        contexts = np.where(self._late, context if late is None else late, context)
        return np.rint(self.base + self.slope * contexts).astype(np.int64)

    def named(self) -> Iterator[tuple[int, Share]]:
        """(index into the vector, what it is a share of) of every entry that costs something."""
        return ((k, share) for k, share in enumerate(self.shares) if share is not None)


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
    slope = _at(cost.per_context, cost.batch, share.rows)
    return max(base, 0.0) * cost.ns_per_unit, slope * cost.ns_per_unit


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
