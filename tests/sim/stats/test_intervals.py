"""Intervals cover what they say, checked by drawing."""

from __future__ import annotations

import numpy as np
import pytest

from sim.stats.intervals import mean_interval, new_boot_interval, next_run_half_width


@pytest.mark.parametrize("noise", ["normal", "lognormal"])
def test_the_mean_interval_covers_the_mean_about_95_percent_of_the_time(noise: str) -> None:
    rng = np.random.default_rng(1)
    draw = rng.normal(10, 1, (4000, 5)) if noise == "normal" else rng.lognormal(0, 0.1, (4000, 5))
    truth = 10.0 if noise == "normal" else float(np.exp(0.005))
    covered = sum(
        low <= truth <= high for low, high in (mean_interval(row) or (0, 0) for row in draw.tolist())
    )
    # 4,000 draws: four standard errors are 1.4 points
    assert abs(covered / 4000 - 0.95) < 0.015


def test_the_next_run_interval_covers_one_further_run_about_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(2)
    draws = rng.normal(10, 1, (4000, 6))
    covered = sum(abs(row[5] - np.mean(row[:5])) <= next_run_half_width(row[:5].tolist()) for row in draws)
    assert abs(covered / 4000 - 0.95) < 0.015


def test_one_value_gives_no_interval_of_the_mean() -> None:
    assert mean_interval([1.0]) is None
    assert next_run_half_width([1.0]) == 0.0


def test_a_new_boot_joins_asymmetric_host_states_with_symmetric_spread_in_quadrature() -> None:
    low, high = new_boot_interval(100.0, [0.97, 1.04], 0.0, 0.03)
    assert low == pytest.approx(100 * (1 - np.hypot(0.03, 0.03)))
    assert high == pytest.approx(105.0)


def test_an_exact_machine_without_luck_shows_exactly_its_mean() -> None:
    assert new_boot_interval(100.0, [], 0.0, 0.0) == (100.0, 100.0)
