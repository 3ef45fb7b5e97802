"""The recurrence for many scenarios, or draws of costs, at once.

All scenarios of one structure (program, policies, rows) share an event graph; only durations differ. Between two
synchronisations the graph is linear, so its longest paths are worked out once a scenario, and a turn is then a few
additions and maxima over vectors with one element a scenario. Times are integers held in float64, which is exact
below 2^53 ns (104 days) and the faster type for maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.maxplus.graph import HOST, EventGraph, Slot
from sim.maxplus.steady import recurring

Vector = NDArray[np.float64]

#: scenarios evaluated together: as many as keep the vectors of a turn in a core's own cache
CHUNK = 4096
#: turns between two looks at whether a scenario repeats itself: a multiple of the usual periods 1, 2, 3, 4, 6, 12
STRIDE = 12
#: turns after which a scenario that does not is reported as it is
MOST_TURNS = 600


@dataclass(frozen=True)
class Screened:
    """One entry a scenario."""

    #: nanoseconds a turn over the last :data:`STRIDE` turns
    cycle_ns: Vector
    #: whether those turns repeat the ones before, so that the cycle time is exact for ever after
    settled: NDArray[np.bool_]
    #: turns evaluated, all scenarios together
    scenario_turns: int


def screen(graph: EventGraph, durations: NDArray[np.int64]) -> Screened:
    """Cycle times of one structure under many duration vectors, (scenarios × entries) in ns."""
    return joined([_Chunk(graph, durations[i : i + CHUNK]).settle() for i in range(0, len(durations), CHUNK)])


def joined(parts: Sequence[Screened]) -> Screened:
    return Screened(
        np.concatenate([p.cycle_ns for p in parts]),
        np.concatenate([p.settled for p in parts]),
        sum(p.scenario_turns for p in parts),
    )


class _Chunk:
    """Longest paths of one structure for some scenarios. A *basis* entry is a slot or a synchronisation."""

    def __init__(self, graph: EventGraph, durations: NDArray[np.int64]):
        self.scenarios = len(durations)
        self._slots = [slot for slot in graph.slots if graph.outputs[slot] >= 0]
        self._recurring = [self._slots.index(slot) for slot in recurring(graph)]
        self._host = self._slots.index(HOST)
        column = np.ascontiguousarray(durations.T, dtype=np.float64)
        # What a turn never writes stays at the start of the run, long before anything in the steady state.
        constant = [-1 - i for i, slot in enumerate(graph.slots) if graph.outputs[slot] < 0]
        #: (basis, length of the longest path from it), of the arrival at a synchronisation and of its event
        self._syncs: list[tuple[list[tuple[int, Vector]], list[tuple[int, Vector]], Vector, Vector]] = []
        self._outputs: dict[Slot, list[tuple[int, Vector]]] = {}
        zero = np.zeros(self.scenarios)
        basis = {-1 - graph.slots.index(slot): {k: zero} for k, slot in enumerate(self._slots)}
        for ref in constant:
            basis[ref] = {}
        paths: list[dict[int, Vector]] = []

        def longest(ref: int) -> dict[int, Vector]:
            return basis[ref] if ref < 0 else paths[ref]

        for node in graph.nodes:
            if node.sync is not None:
                arrived, event = (list(longest(arc.source).items()) for arc in node.arcs)
                call, wake = (column[t] for t in node.sync)
                paths.append({len(self._slots) + len(self._syncs): zero})
                self._syncs.append((arrived, event, call, wake))
                continue
            into: dict[int, Vector] = {}
            for arc in node.arcs:
                weight = sum((column[t] for t in arc.terms), start=zero) if arc.terms else None
                for k, length in longest(arc.source).items():
                    reached = length if weight is None else length + weight
                    into[k] = np.maximum(into[k], reached) if k in into else reached
            paths.append(into)
        for slot in self._slots:
            self._outputs[slot] = list(longest(graph.outputs[slot]).items())

    def settle(self) -> Screened:
        """Turns until every scenario repeats itself, shifted in time; those that do leave."""
        rate = np.zeros(self.scenarios)
        settled = np.zeros(self.scenarios, dtype=bool)
        left = np.arange(self.scenarios)
        state = np.zeros((len(self._slots), self.scenarios))
        work = 0
        before = state
        for turn in range(0, MOST_TURNS, STRIDE):
            before = state
            for _ in range(STRIDE):
                state = self._turn(state)
            work += STRIDE * len(left)
            advance = state - before
            rate[left] = advance[self._host] / STRIDE
            same = (advance[self._recurring] == advance[self._host]).all(axis=0) & (turn > 0)
            settled[left] = same
            if same.all():
                break
            if same.sum() * 4 >= len(left):  # worth copying the rest together
                left, state = left[~same], state[:, ~same]
                self._keep(~same)
        return Screened(rate, settled, work)

    def _keep(self, wanted: NDArray[np.bool_]) -> None:
        def kept(terms: list[tuple[int, Vector]]) -> list[tuple[int, Vector]]:
            return [(k, length[wanted]) for k, length in terms]

        self._syncs = [(kept(a), kept(e), call[wanted], wake[wanted]) for a, e, call, wake in self._syncs]
        self._outputs = {slot: kept(terms) for slot, terms in self._outputs.items()}

    def _turn(self, state: Vector) -> Vector:
        values = list(state)
        for arrived, event, call, wake in self._syncs:
            a, e = _latest(values, arrived), _latest(values, event)
            values.append(np.where(e > a, e + wake, a + call))
        return np.stack([_latest(values, terms) for terms in self._outputs.values()])


def _latest(values: Sequence[Vector], terms: list[tuple[int, Vector]]) -> Vector:
    """The maximum over (basis, length) of basis plus length."""
    (k, length), *more = terms
    latest = values[k] + length
    later = np.empty_like(latest) if more else latest
    for k, length in more:
        np.add(values[k], length, out=later)
        np.maximum(latest, later, out=latest)
    return latest
