"""A cycle as an engineer reads it: stretches on one lane, and how the cycle passes from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sim.maxplus.cycles import Cycle, Step
from sim.maxplus.durations import hand_overs
from sim.maxplus.graph import EARLIER, EventGraph, Role
from sim.trace.record import FORWARD_LANE, HOST_LANE
from sim.units import NS_PER_US


@dataclass(frozen=True)
class Stretch:
    """Part of a cycle on one lane. ``how`` and ``on`` say what brings the cycle here (a role of
    :class:`sim.maxplus.graph.Role`, and the events or the operation, one after the other), ``hand_over_ns`` what
    that takes (wake, hop, launch latency); ``operations`` are (name, ns) in order of time; ``turn`` counts from the
    cycle's first."""

    lane: str
    turn: int
    how: str
    on: tuple[str, ...]
    hand_over_ns: int
    operations: tuple[tuple[str, int], ...]

    @property
    def ns(self) -> int:
        return self.hand_over_ns + sum(ns for _, ns in self.operations)

    def to_json(self) -> dict[str, Any]:
        return {
            "lane": self.lane,
            "turn": self.turn,
            "how": self.how,
            "on": list(self.on),
            "hand_over_us": self.hand_over_ns / NS_PER_US,
            "us": self.ns / NS_PER_US,
            "operations": [{"name": name, "us": ns / NS_PER_US} for name, ns in self.operations],
        }


def stretches(cycle: Cycle, graph: EventGraph, durations: Sequence[int]) -> list[Stretch]:
    """The cycle from where it enters the forward stream (the host, where it does not), in order of time.

    ``durations``: the vector the cycle was found for in ``graph``.
    """
    constants = hand_overs(graph.turn)
    steps = _from_the_start(cycle.steps)
    out: list[Stretch] = []
    on: tuple[str, ...] = ()
    how, waited = "", 0
    for step in steps:
        moved = sum(durations[t] for t in step.terms if t >= constants)
        waited += moved
        if step.arc.role in (Role.LAUNCH, Role.WAIT, Role.SYNC):
            how = str(step.arc.role)
            name = step.node.name if step.arc.role is Role.LAUNCH else step.arc.label
            # A wait made in the turn before hands its event on under another name; the first one says more.
            on = on if name == EARLIER else (*on, name)
        if step.node.act in ("event", "floor"):
            continue
        if how or not out or out[-1].lane != step.node.lane:
            operation = (step.node.name, step.ns - moved)
            out.append(Stretch(step.node.lane, step.turn, how or str(Role.ORDER), on, waited, (operation,)))
        else:
            last = out[-1]
            out[-1] = replace(last, operations=(*last.operations, (step.node.name, step.ns)))
        how, on, waited = "", (), 0
    return out


def _from_the_start(steps: Sequence[Step]) -> list[Step]:
    """Rotated to begin where the cycle comes to the forward stream, or else to the host, by way of another lane or
    of an event."""
    moments = [i for i, step in enumerate(steps) if step.node.act not in ("event", "floor")]
    for lane in (FORWARD_LANE, HOST_LANE):
        for before, i in zip((moments[-1], *moments), moments, strict=False):
            first = (before + 1) % len(steps)
            comes_from_elsewhere = steps[before].node.lane != lane or i != first
            if steps[i].node.lane == lane and comes_from_elsewhere:
                return [*steps[first:], *steps[:first]]
    return list(steps)
