"""Cycles of the steady state: the critical one, and those that come next.

For given blocking, a turn maps slots to slots linearly in the max-plus sense; its matrix holds the longest path
from each slot to each slot. The cycle time is the maximum cycle mean of that matrix
(:mod:`sim.maxplus.howard`); the critical cycle, unfolded again into paths, is the answer to "what is in the way".
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from sim.maxplus.graph import HOST, Arc, EventGraph, Node, Role
from sim.maxplus.howard import InArc, maximum_cycle_mean
from sim.trace.record import FORWARD_LANE, HOST_LANE

#: exclusions tried before the search for further cycles ends
_MOST_SEARCHES = 400


class Step(NamedTuple):
    """One arc of a cycle: how the cycle comes to ``node``, and the terms and nanoseconds that takes.

    ``number`` is the node's in the event graph, ``turn`` the turn it happens in, counted from the cycle's first.
    """

    number: int
    node: Node
    arc: Arc
    terms: tuple[int, ...]
    ns: int
    turn: int = 0


@dataclass(frozen=True)
class Cycle:
    """Arcs in order of time, over ``turns`` turns of the loop. ``mean``: nanoseconds a turn.

    ``phase``: which of the turns that were distinguished (see :func:`critical_cycle`) is the cycle's first.
    """

    steps: tuple[Step, ...]
    turns: int
    mean: Fraction
    phase: int = 0

    @property
    def crossings(self) -> frozenset[str]:
        """What the cycle waits for, whatever lies between: two cycles with the same crossings are one finding."""
        return frozenset(g for s in self.steps if (g := crossing(s.node, s.arc)) is not None)

    @property
    def host_ns(self) -> int:
        """Nanoseconds of host work on the cycle, all its turns together."""
        return sum(s.ns for s in self.steps if s.node.lane == HOST_LANE)

    @property
    def device_ns(self) -> int:
        return sum(s.ns for s in self.steps if s.node.lane != HOST_LANE)

    @property
    def side(self) -> str:
        """gpu: no host work on it; host: nothing of the forward stream (a short copy that the host waits for may
        be); exposed: host work that the forward stream waits for and that waits for the forward stream."""
        if not self.host_ns:
            return "gpu"
        return "exposed" if any(s.node.lane == FORWARD_LANE for s in self.steps) else "host"

    def uses(self) -> Counter[int]:
        """How often the cycle runs through each entry of the duration vector; divided by ``turns``, the derivative
        of its mean."""
        return Counter(t for s in self.steps for t in s.terms)


def crossing(node: Node, arc: Arc) -> str | None:
    """What an arc crosses: to another lane, or to the next turn on its own lane; None if neither."""
    if arc.role is Role.LAUNCH:
        return f"launch onto {node.lane}"
    if arc.role is Role.WAIT:
        return f"{node.lane} waits for {arc.label}"
    if arc.role is Role.SYNC:
        return f"host waits for {arc.label}"
    return f"next turn on {node.lane}" if arc.source < 0 else None


class Matrix:
    """Longest paths of one turn between slots, for given blocking, without the crossings excluded."""

    def __init__(
        self,
        graph: EventGraph,
        durations: Sequence[int],
        blocked: Sequence[bool],
        excluded: frozenset[str] = frozenset(),
    ):
        self.graph = graph
        extra = {
            node: graph.nodes[node].sync[int(b)]  # type: ignore[index]
            for node, b in zip(graph.syncs, blocked, strict=True)
        }
        #: by node: slot → (length of the longest path, last step of it)
        self._paths: list[dict[int, tuple[int, Step]]] = []
        for j, node in enumerate(graph.nodes):
            paths: dict[int, tuple[int, Step]] = {}
            for arc in node.arcs:
                if excluded and crossing(node, arc) in excluded:
                    continue
                terms = (*arc.terms, extra[j]) if j in extra else arc.terms
                step = Step(j, node, arc, terms, sum(durations[t] for t in terms))
                for slot, length in self._lengths(arc.source).items():
                    if slot not in paths or length + step.ns > paths[slot][0]:
                        paths[slot] = (length + step.ns, step)
            self._paths.append(paths)
        self._outputs = [graph.outputs[slot] for slot in graph.slots]

    def _lengths(self, ref: int) -> dict[int, int]:
        """Longest path to a node or slot from every slot (numbered as arcs number them)."""
        return {ref: 0} if ref < 0 else {slot: length for slot, (length, _) in self._paths[ref].items()}

    def into(self, slot: int) -> dict[int, int]:
        """Longest path to slot number ``slot`` at the end of the turn, from every slot that has one."""
        return {-1 - s: length for s, length in self._lengths(self._outputs[slot]).items()}

    def path(self, source: int, slot: int) -> list[Step]:
        """The steps of that longest path, in order of time."""
        ref = self._outputs[slot]
        steps = []
        while ref >= 0:
            step = self._paths[ref][-1 - source][1]
            steps.append(step)
            ref = step.arc.source
        return steps[::-1]


def critical_cycle(
    graph: EventGraph,
    durations: Sequence[int],
    blocked: Sequence[Sequence[bool]],
    excluded: frozenset[str] = frozenset(),
) -> Cycle | None:
    """The cycle of largest mean among those the host's clock depends on.

    ``blocked``: which synchronisations block in each turn of one period. ``excluded``: crossings not to be used.
    None when they leave no cycle.
    """
    matrices = [Matrix(graph, durations, b, excluded) for b in blocked]
    width, period = len(graph.slots), len(matrices)
    arcs = []
    for t, matrix in enumerate(matrices):
        base = (t - 1) % period * width
        arcs += [[InArc(base + s, w) for s, w in sorted(matrix.into(k).items())] for k in range(width)]
    host = (period - 1) * width + graph.slots.index(HOST)
    found = maximum_cycle_mean(arcs, host)
    if found is None:
        return None
    steps: list[Step] = []
    for turn, (before, vertex) in enumerate(zip((found.cycle[-1], *found.cycle), found.cycle, strict=False)):
        path = matrices[vertex // width].path(before % width, vertex % width)
        steps += (step._replace(turn=turn) for step in path)
    return Cycle(tuple(steps), len(found.cycle), found.mean, found.cycle[0] // width)


def cycles(
    graph: EventGraph, durations: Sequence[int], blocked: Sequence[Sequence[bool]], at_least: float
) -> Iterator[Cycle]:
    """Cycles in falling order of their mean, down to ``at_least`` ns, each with crossings of its own.

    Best first over sets of excluded crossings (after Lawler, "A procedure for computing the k best solutions",
    Management Science 18, 1972): the next best cycle lacks some crossing of each better one. A cycle that has all
    crossings of a better one and more is not listed.
    """
    first = critical_cycle(graph, durations, blocked)
    queue: list[tuple[Fraction, int, Cycle, frozenset[str]]] = []
    tried: set[frozenset[str]] = {frozenset()}
    seen: set[frozenset[str]] = set()
    if first is not None:
        queue.append((-first.mean, 0, first, frozenset()))
    while queue:
        _, _, cycle, excluded = heapq.heappop(queue)
        if cycle.mean < at_least:
            return
        if cycle.crossings not in seen:
            seen.add(cycle.crossings)
            yield cycle
        for crossed in sorted(cycle.crossings):
            without = excluded | {crossed}
            if without in tried or len(tried) >= _MOST_SEARCHES:
                continue
            tried.add(without)
            found = critical_cycle(graph, durations, blocked, without)
            if found is not None:
                heapq.heappush(queue, (-found.mean, len(tried), found, without))
