"""Howard's policy iteration against Karp's theorem on small random graphs."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from sim.maxplus.howard import InArc, maximum_cycle_mean

Arcs = list[list[InArc]]


@st.composite
def graphs(draw: st.DrawFn) -> Arcs:
    n = draw(st.integers(1, 5))
    arc = st.builds(InArc, st.integers(0, n - 1), st.integers(-5, 9))
    return draw(st.lists(st.lists(arc, max_size=3), min_size=n, max_size=n))


def by_karp(arcs: Arcs) -> Fraction | None:
    """The maximum cycle mean of the whole graph (Karp, "A characterization of the minimum cycle mean in a
    digraph", Discrete Mathematics 23, 1978)."""
    n = len(arcs)
    longest: list[list[int | None]] = [[0] * n]
    for _ in range(n):
        last = longest[-1]
        ends = [[last[a.source] + a.weight for a in into if last[a.source] is not None] for into in arcs]
        longest.append([max(e) if e else None for e in ends])
    means = [
        min(Fraction(longest[n][j] - longest[k][j], n - k) for k in range(n) if longest[k][j] is not None)
        for j in range(n)
        if longest[n][j] is not None
    ]
    return max(means, default=None)


@given(graphs())
def test_the_largest_over_all_vertices_is_that_of_karp(arcs: Arcs) -> None:
    found = [maximum_cycle_mean(arcs, v) for v in range(len(arcs))]
    assert max((f.mean for f in found if f is not None), default=None) == by_karp(arcs)


@given(graphs())
def test_the_cycle_returned_is_one_and_has_the_mean_returned(arcs: Arcs) -> None:
    for vertex in range(len(arcs)):
        found = maximum_cycle_mean(arcs, vertex)
        if found is None:
            continue
        pairs = zip((found.cycle[-1], *found.cycle), found.cycle, strict=False)
        best = [max(a.weight for a in arcs[to] if a.source == origin) for origin, to in pairs]
        assert Fraction(sum(best), len(best)) == found.mean


def test_only_cycles_upstream_of_the_vertex_count() -> None:
    slow, fast = [InArc(0, 7)], [InArc(1, 3)]
    assert maximum_cycle_mean([slow, fast], 1).mean == 3
    assert maximum_cycle_mean([slow, [*fast, InArc(0, 0)]], 1).mean == 7
    assert maximum_cycle_mean([[], [InArc(0, 1)]], 1) is None
