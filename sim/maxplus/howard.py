"""Maximum cycle mean by Howard's policy iteration, in exact rational arithmetic.

Cochet-Terrasson, Cohen, Gaubert, Mc Gettrick, Quadrat, "Numerical computation of spectral elements in max-plus
algebra", IFAC Conference on System Structure and Control, Nantes 1998: the multichain version, which also serves
graphs that are not strongly connected. A policy gives every vertex one incoming arc; its value is the mean η of
the cycle it leads back to and a bias v. Improving η first and v second ends, in exact arithmetic, after finitely
many policies at the largest cycle mean upstream of every vertex.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class InArc(NamedTuple):
    """``target`` comes ``weight`` after ``source`` of the iteration before."""

    source: int
    weight: int


class CycleMean(NamedTuple):
    """The largest mean of a cycle that leads to a vertex, and its arcs as vertices in order of time."""

    mean: Fraction
    cycle: tuple[int, ...]


def maximum_cycle_mean(arcs: Sequence[Sequence[InArc]], vertex: int) -> CycleMean | None:
    """The largest cycle mean among the cycles from which ``vertex`` can be reached; None if there are none.

    ``arcs[j]`` are the arcs into vertex j.
    """
    upstream = _upstream(arcs, vertex)
    if not upstream:
        return None
    policy = {j: max(into, key=lambda a: a.weight) for j, into in upstream.items()}
    while True:
        mean, bias = _values(policy)
        if not _improve(policy, upstream, mean, bias):
            return CycleMean(mean[vertex], _cycle(policy, vertex))


def _upstream(arcs: Sequence[Sequence[InArc]], vertex: int) -> dict[int, list[InArc]]:
    """Arcs among the vertices that reach ``vertex`` and are themselves reached from a cycle."""
    reaching = {vertex}
    stack = [vertex]
    while stack:
        for arc in arcs[stack.pop()]:
            if arc.source not in reaching:
                reaching.add(arc.source)
                stack.append(arc.source)
    kept = {j: list(arcs[j]) for j in sorted(reaching)}
    while dead := [j for j, into in kept.items() if not into]:
        for j in dead:
            del kept[j]
        kept = {j: [a for a in into if a.source in kept] for j, into in kept.items()}
    return kept if vertex in kept else {}


def _cycle(policy: dict[int, InArc], vertex: int) -> tuple[int, ...]:
    """The cycle that the policy leads back to from ``vertex``, oldest vertex first."""
    seen: dict[int, int] = {}
    path: list[int] = []
    j = vertex
    while j not in seen:
        seen[j] = len(path)
        path.append(j)
        j = policy[j].source
    return tuple(reversed(path[seen[j] :]))


def _values(policy: dict[int, InArc]) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
    """Cycle mean and bias of every vertex under the policy; the bias of one vertex of each cycle is 0."""
    mean: dict[int, Fraction] = {}
    bias: dict[int, Fraction] = {}
    for start in policy:
        path: list[int] = []
        j = start
        on_path = set()
        while j not in mean and j not in on_path:
            on_path.add(j)
            path.append(j)
            j = policy[j].source
        if j not in mean:  # a new cycle, entered at j
            cycle = _cycle(policy, j)
            mean[j] = Fraction(sum(policy[i].weight for i in cycle), len(cycle))
            bias[j] = Fraction(0)
        for i in reversed(path):
            if i not in mean:
                arc = policy[i]
                mean[i] = mean[arc.source]
                bias[i] = bias[arc.source] + arc.weight - mean[i]
    return mean, bias


def _improve(
    policy: dict[int, InArc],
    arcs: dict[int, list[InArc]],
    mean: dict[int, Fraction],
    bias: dict[int, Fraction],
) -> bool:
    """Makes the policy better where it can; first by cycle mean, and only if that is not possible by bias."""
    better = {}
    for j, into in arcs.items():
        best = max(into, key=lambda a: mean[a.source])
        if mean[best.source] > mean[j]:
            better[j] = best
    if not better:
        for j, into in arcs.items():
            equal = [a for a in into if mean[a.source] == mean[j]]
            best = max(equal, key=lambda a: bias[a.source] + a.weight)
            if bias[best.source] + best.weight - mean[j] > bias[j]:
                better[j] = best
    policy.update(better)
    return bool(better)
