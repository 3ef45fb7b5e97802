"""The steady state of a fixed batch at one context: its orbit, cycle time, critical cycle and derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sim.maxplus.cycles import Cycle, critical_cycle
from sim.maxplus.durations import Durations, scales_of
from sim.maxplus.graph import HOST, EventGraph, Slot, build
from sim.maxplus.recurrence import State, Weighted
from sim.maxplus.turn import FixedBatch

#: turns after which the search for an orbit ends; two cycles that differ by a nanosecond need about as many
#: turns as the slower has nanoseconds to catch up
MOST_TURNS = 20_000


@dataclass(frozen=True)
class SteadyState:
    """Where the recurrence ends up.

    ``orbit`` holds the values (see :class:`Weighted`) of the turns of one period; ``blocked`` which
    synchronisations block in each. ``settled`` is False when the transient outlasted :data:`MOST_TURNS`; then both
    describe the last turn evaluated.
    """

    weighted: Weighted
    orbit: tuple[tuple[int, ...], ...]
    blocked: tuple[tuple[bool, ...], ...]
    settled: bool
    #: nanoseconds the host's clock advances in one period
    advance: int
    critical: Cycle

    @property
    def cycle_ns(self) -> Fraction:
        """The cycle time: the mean of the critical cycle, which is the long-run rate of the recurrence."""
        return self.critical.mean


class SteadyGraph:
    """The event graph that every turn repeats, and the durations of its turn by context."""

    def __init__(self, batch: FixedBatch):
        self.batch = batch
        # What each of the first turns hands on differs; from the fourth on nothing does.
        graph = None
        for k in range(6):
            graph = build(batch.turn(k), graph)
        assert graph is not None
        self.graph: EventGraph = graph
        self.durations = Durations(batch.resolved.profile, graph.turn)

    def at(self, context: float) -> SteadyState:
        """The steady state at a mean context (tokens a request)."""
        return settle(self.graph, self.vector(context).tolist())

    def vector(self, context: float) -> NDArray[np.int64]:
        """The duration vector of a turn at a mean context, ns."""
        return self.durations.at(scales_of(self.batch.resolved), context)


def settle(graph: EventGraph, durations: Sequence[int], most: int = MOST_TURNS) -> SteadyState:
    """Evaluates the recurrence from an idle machine until a state repeats itself, shifted in time."""
    weighted = Weighted(graph, durations)
    slots = recurring(graph)
    state: State = {}
    seen: dict[tuple[int, ...], int] = {}
    turns: list[tuple[int, ...]] = []
    while True:
        key = tuple(state.get(slot, 0) - state.get(HOST, 0) for slot in slots)
        first = seen.setdefault(key, len(turns))
        if first < len(turns) or len(turns) == most:
            break
        values = weighted.evaluate(state)
        turns.append(tuple(values))
        state = weighted.after(values)
    settled = first < len(turns)
    orbit = tuple(turns[first:]) if settled else (turns[-1],)
    blocked = tuple(weighted.blocked(values) for values in orbit)
    # Turns that block alike need one copy in the event graph, however long the orbit.
    critical = critical_cycle(graph, durations, blocked if len(set(blocked)) > 1 else blocked[:1])
    assert critical is not None
    host = graph.slots.index(HOST)
    advance = state[HOST] - orbit[0][host]
    return SteadyState(weighted, orbit, blocked, settled, advance, critical)


def recurring(graph: EventGraph) -> list[Slot]:
    """Slots that the host's clock depends on and that a turn writes anew."""
    into: dict[Slot, set[Slot]] = {}
    reach: list[set[int]] = []
    for node in graph.nodes:
        sources: set[int] = set()
        for arc in node.arcs:
            sources |= {arc.source} if arc.source < 0 else reach[arc.source]
        reach.append(sources)
    for slot in graph.slots:
        ref = graph.outputs[slot]
        into[slot] = {graph.slots[-1 - s] for s in ({ref} if ref < 0 else reach[ref])}
    upstream, stack = {HOST}, [HOST]
    while stack:
        for slot in into[stack.pop()] - upstream:
            upstream.add(slot)
            stack.append(slot)
    return sorted(slot for slot in upstream if into[slot] != {slot})


def derivatives(state: SteadyState, durations: Durations) -> dict[str, Fraction]:
    """Nanoseconds of cycle time that one nanosecond of each cost is worth, for small changes.

    A cost that several operations share counts for all of them. At a tie between critical cycles this is the
    derivative along one of them.
    """
    uses = state.critical.uses()
    out: dict[str, Fraction] = {}
    for k, share in durations.named():
        part = Fraction(share.share) * uses[k] / state.critical.turns
        out[share.name] = out.get(share.name, Fraction(0)) + part
    return out
