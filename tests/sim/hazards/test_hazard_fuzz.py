"""Random legal step programs: none hangs, every overlap is reported, and a second check finds the same."""

from __future__ import annotations

import pytest
from hazard_fuzz import many


def test_random_programs_end_and_no_overlap_goes_unreported() -> None:
    programs, pairs, unordered = many(range(150))
    assert programs == 150
    assert 0 < unordered < pairs, "the programs are too tame or too wild to test anything"


@pytest.mark.slow
def test_ten_thousand_random_programs() -> None:
    many(range(150, 10_150))
