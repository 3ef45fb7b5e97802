"""A tally is exact while small and bounded when large."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.stats.tally import Tally


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=200))
def test_a_small_tally_agrees_with_sorting(values: list[int]) -> None:
    tally = Tally()
    for v in values:
        tally.add(v)
    assert tally.mean == sum(values) / len(values)
    assert tally.quantile(0.5) == float(np.median(values))
    for q in (0.9, 0.99):
        assert tally.quantile(q) == float(np.quantile(values, q, method="inverted_cdf"))


def test_a_large_tally_keeps_four_digits_exact_sums_and_bounded_memory() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(5_000_000, 9_000_000, 60_000).tolist()
    tally = Tally()
    for v in values:
        tally.add(v)
    assert len(tally._counts) < 20_000
    assert tally.total == sum(values)
    for q in (0.5, 0.9, 0.99):
        exact = float(np.quantile(values, q))
        assert abs(tally.quantile(q) - exact) < 2e-3 * exact  # type: ignore[operator]


def test_merging_equals_adding_everything_to_one() -> None:
    a, b, both = Tally(), Tally(), Tally()
    for i, v in enumerate([5, 7, 7, 9, 100]):
        (a if i % 2 else b).add(v)
        both.add(v)
    a.merge(b)
    assert (a.count, a.total, a.quantile(0.5), a.quantile(0.99)) == (
        both.count,
        both.total,
        both.quantile(0.5),
        both.quantile(0.99),
    )


def test_an_empty_tally_has_no_mean_and_no_quantile() -> None:
    assert Tally().mean is None
    assert Tally().quantile(0.5) is None
