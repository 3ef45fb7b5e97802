"""The deterministic recurrence: every event time of a fixed batch, turn by turn, from the event graph alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.maxplus.durations import Durations, scales_of
from sim.maxplus.graph import EventGraph, Slot, build
from sim.maxplus.turn import FixedBatch

#: what turns hand on: time in ns by slot; a slot never written stands at the start of the run
State = dict[Slot, int]


class Weighted:
    """An event graph under one duration vector, ready to be evaluated again and again.

    A value list holds the slots read, then the nodes; :meth:`time` picks one.
    """

    def __init__(self, graph: EventGraph, durations: Sequence[int]):
        self.graph = graph
        self.durations = durations
        self._code: list[tuple[int, int, int, int, tuple[tuple[int, int], ...], tuple[int, int] | None]] = []
        for node in graph.nodes:
            arcs = [(self._index(a.source), sum(int(durations[t]) for t in a.terms)) for a in node.arcs]
            first, second, *more = arcs if len(arcs) > 1 else [arcs[0], arcs[0]]
            extra = (
                None if node.sync is None else (int(durations[node.sync[0]]), int(durations[node.sync[1]]))
            )
            self._code.append((*first, *second, tuple(more), extra))
        self.outputs = {slot: self._index(ref) for slot, ref in graph.outputs.items()}

    def _index(self, ref: int) -> int:
        return -1 - ref if ref < 0 else len(self.graph.slots) + ref

    def time(self, values: Sequence[int], ref: int) -> int:
        """When a node happened, or (negative) what the turn found in a slot."""
        return values[self._index(ref)]

    def evaluate(self, before: State) -> list[int]:
        """Times of all nodes of one turn, ns, behind those of its slots."""
        values = [before.get(slot, 0) for slot in self.graph.slots]
        self.extend(values)
        return values

    def extend(self, values: list[int]) -> None:
        """Appends the nodes' times to the slots' times in ``values``."""
        add = values.append
        for a, wa, b, wb, more, sync in self._code:
            t = values[a] + wa
            u = values[b] + wb
            if sync is None:
                if u > t:
                    t = u
                for c, wc in more:
                    u = values[c] + wc
                    if u > t:
                        t = u
                add(t)
            elif u > t:  # the event is still to come: the host sleeps until it wakes
                add(u + sync[1])
            else:
                add(t + sync[0])

    def after(self, values: Sequence[int]) -> State:
        """What this turn hands to the next."""
        return {slot: values[i] for slot, i in self.outputs.items()}

    def blocked(self, values: Sequence[int]) -> tuple[bool, ...]:
        """Which synchronisations had to wait, in host order."""
        out = []
        for node in self.graph.syncs:
            a, wa, b, wb, _, _ = self._code[node]
            out.append(values[b] + wb > values[a] + wa)
        return tuple(out)


@dataclass(frozen=True)
class Evaluated:
    """One evaluated turn: ``values`` of ``weighted`` (see there)."""

    weighted: Weighted
    values: list[int]


def run(
    batch: FixedBatch, contexts: Sequence[float], late: Sequence[float] | None = None
) -> Iterator[Evaluated]:
    """Turn after turn from an empty machine. ``contexts[k]`` is the mean context at the launch of turn k;
    ``late[k]`` that of the result turn k processes, where results cost by context (default: the same).

    Lazy, so that a run of any length needs the memory of one turn.
    """
    graph: EventGraph | None = None
    durations: Durations | None = None
    weighted: Weighted | None = None
    at: tuple[float, float] | None = None
    state: State = {}
    for k, context in enumerate(contexts):
        if k <= 4:  # turns 3 and 4 are alike, and so are all after them
            graph = build(batch.turn(k), graph)
            durations = Durations(batch.resolved.profile, graph.turn)
            weighted = None
        assert graph is not None
        assert durations is not None
        here = (context, context if late is None else late[k])
        if weighted is None or (here != at and durations.slope.any()):
            weighted, at = Weighted(graph, durations.at(scales_of(batch.resolved), *here).tolist()), here
        values = weighted.evaluate(state)
        state = weighted.after(values)
        yield Evaluated(weighted, values)
