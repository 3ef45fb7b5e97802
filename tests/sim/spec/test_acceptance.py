"""Acceptance: one uniform a token position, closed-form means, memory that does not grow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.randomness import Purpose, RunKey, stream
from sim.spec.acceptance import (
    MatchExpectedAcceptance,
    PerPositionAcceptance,
    RecordedAcceptance,
    RequestAcceptance,
    geometric_probability,
)

KEY = RunKey(3, 0)


def walk(acceptance: RequestAcceptance, steps: int) -> list[int]:
    position, accepted = 1, []
    for _ in range(steps):
        accepted.append(acceptance.at(position))
        position += accepted[-1] + 1
    return accepted


@given(mean=st.floats(0, 15), drafts=st.integers(15, 40))
def test_the_truncated_geometric_has_the_mean_it_was_asked_for(mean: float, drafts: int) -> None:
    p = geometric_probability(mean, drafts)
    assert math.isclose(sum(p**k for k in range(1, drafts + 1)), mean, abs_tol=1e-6)


def test_the_data_sets_probability_is_reproduced() -> None:
    assert geometric_probability(5.4, 15) == pytest.approx(0.85697, abs=5e-6)


def test_an_unreachable_mean_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot come from 3 drafts"):
        geometric_probability(3.5, 3)


@pytest.mark.parametrize(
    "model",
    [
        PerPositionAcceptance([0.857] * 15, 15),
        PerPositionAcceptance([0.9, 0.7, 0.4], 3),
        MatchExpectedAcceptance(5.4, 15),
        RecordedAcceptance({0: [3, 1, 4, 1, 5], 1: [9, 2, 6]}, 15),
    ],
    ids=["geometric", "per_position", "match_expected", "recorded"],
)
def test_mean_accepted_is_within_four_standard_errors_of_the_closed_form(model: object) -> None:
    samples = np.array(
        [a for request in range(40) for a in walk(RequestAcceptance(model, KEY, request), 300)]  # type: ignore[arg-type]
    )
    assert samples.max() <= model.max_drafts  # type: ignore[attr-defined]
    if isinstance(model, RecordedAcceptance):
        return  # its mean is over positions; steps visit positions unevenly
    # 12,000 samples; a correct model fails one time in 16,000.
    assert abs(samples.mean() - model.mean()) < 4 * samples.std() / math.sqrt(len(samples))  # type: ignore[attr-defined]


def test_draft_j_at_start_t_is_decided_by_the_uniform_of_position_t_plus_j() -> None:
    u = stream(KEY, Purpose.ACCEPTANCE, 5).random(64)
    p = [0.8, 0.6, 0.4]
    acceptance = RequestAcceptance(PerPositionAcceptance(p, 3), KEY, 5)
    for t in range(60):
        expected = next((j for j in range(3) if u[t + j + 1] >= p[j]), 3)
        assert acceptance.at(t) == expected


def test_a_wider_block_sees_the_same_luck() -> None:
    narrow = RequestAcceptance(PerPositionAcceptance([0.8] * 3, 3), KEY, 0)
    wide = RequestAcceptance(PerPositionAcceptance([0.8] * 15, 15), KEY, 0)
    # Windows are drawn with different look-ahead; compare inside the first one.
    assert [narrow.at(t) for t in range(900)] == [min(wide.at(t), 3) for t in range(900)]


def test_positions_far_apart_need_no_table_of_everything_between() -> None:
    acceptance = RequestAcceptance(PerPositionAcceptance([0.8] * 15, 15), KEY, 0)
    for t in range(0, 100_000, 7):
        acceptance.at(t)
    assert len(acceptance.window) < 5_000


def test_a_recording_starts_over_and_is_cut_at_the_block() -> None:
    acceptance = RequestAcceptance(RecordedAcceptance({0: [3, 0, 9]}, 4), KEY, 7)
    assert [acceptance.at(t) for t in range(6)] == [3, 0, 4, 3, 0, 4]
