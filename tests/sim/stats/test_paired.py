"""Paired differences: what both sides share cancels, and intervals cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.stats.paired import Change, paired, verdict


def result(values: list[float | None], at_nodes: list[float] | None) -> dict[str, Any]:
    return {
        "cycle_us": {"pi95": None if at_nodes is None else [0.0, 1.0]},
        "samples": {"cycle_us": values, "cycle_us_at_factors": at_nodes or []},
    }


def test_luck_that_both_sides_share_leaves_no_width() -> None:
    change = paired(result([10.0, 14.0, 9.0], None), result([11.0, 15.0, 10.0], None), "cycle_us")
    assert change is not None
    assert change.absolute.mean == pytest.approx(1.0)
    assert change.absolute.ci95 == pytest.approx((1.0, 1.0))


def test_the_host_state_moves_both_sides_together() -> None:
    # At the worst state both take 3 more: no difference. A's own part there adds 2.
    same = paired(result([10.0, 10.0], [13.0]), result([12.0, 12.0], [15.0]), "cycle_us")
    own = paired(result([10.0, 10.0], [13.0]), result([12.0, 12.0], [17.0]), "cycle_us")
    assert same is not None
    assert own is not None
    assert same.absolute.pi95 == pytest.approx((2.0, 2.0))
    assert own.absolute.pi95 == pytest.approx((2.0, 4.0))


def test_without_other_host_states_there_is_no_interval_for_a_new_boot() -> None:
    change = paired(result([10.0, 11.0], None), result([12.0, 12.5], [13.0]), "cycle_us")
    assert change is not None
    assert change.relative.pi95 is None


def test_too_short_a_run_has_no_change() -> None:
    assert paired(result([None], None), result([1.0], None), "cycle_us") is None


def test_one_replication_has_a_mean_and_no_interval() -> None:
    change = paired(result([10.0], None), result([11.0], None), "cycle_us")
    assert change is not None
    assert change.relative.mean == pytest.approx(0.1)
    assert change.relative.ci95 is None
    assert verdict(change.relative) == "cannot tell"


@pytest.mark.parametrize(
    ("ci95", "pi95", "expected"),
    [
        ((0.1, 0.3), (0.05, 0.4), "faster"),
        ((-0.3, -0.1), (-0.4, -0.05), "slower"),
        ((0.1, 0.3), (-0.1, 0.4), "cannot tell"),
        ((-0.1, 0.3), (0.1, 0.4), "cannot tell"),
        ((0.1, 0.3), None, "faster"),
        ((0.00001, 0.00002), (0.00001, 0.00002), "cannot tell"),
        ((0.0, 0.0), (0.0, 0.0), "cannot tell"),
        (None, None, "cannot tell"),
    ],
)
def test_a_verdict_needs_every_interval_on_one_side(
    ci95: tuple[float, float] | None, pi95: tuple[float, float] | None, expected: str
) -> None:
    assert verdict(Change(0.2, ci95, pi95)) == expected


def test_intervals_of_the_mean_and_of_one_more_run_cover_as_often_as_they_say() -> None:
    """2,000 studies of 5 replications: 95 % is missed by more than 1.6 points with probability below 0.001."""
    rng = np.random.default_rng(5)
    in_mean = in_next = 0
    for _ in range(2000):
        shared = rng.normal(100, 10, 6)
        a = shared + rng.normal(0, 1, 6)
        b = shared + 2 + rng.normal(0, 1, 6)
        change = paired(result(list(a[:5]), [a[0]]), result(list(b[:5]), [b[0]]), "cycle_us")
        assert change is not None
        assert change.absolute.ci95 is not None
        assert change.absolute.pi95 is not None
        in_mean += change.absolute.ci95[0] <= 2 <= change.absolute.ci95[1]
        in_next += change.absolute.pi95[0] <= b[5] - a[5] <= change.absolute.pi95[1]
    assert in_mean / 2000 == pytest.approx(0.95, abs=0.016)
    assert in_next / 2000 == pytest.approx(0.95, abs=0.016)
