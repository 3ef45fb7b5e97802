"""Values of process starts out of raw cycles, where a noisy machine left few of them."""

from __future__ import annotations

import pytest

from gpu_validation.validate.claims import Cell
from gpu_validation.validate.measured import MeasuredCell

#: witness of a quiet and of a slow host; four quiet ones in ten keep the limit between them
QUIET, SLOW = 160.0, 400.0


def _visit(name: str, cycles_us: list[float], witness_us: list[float]) -> dict[str, object]:
    return {
        "configuration": name,
        "cycles_ns": [1000 * c for c in cycles_us],
        "witness_us": witness_us,
        "full_sha256": "same",
    }


def _cell(*starts: tuple[list[float], list[float]]) -> MeasuredCell:
    """Four iterations a run, b 1 % slower than a; ``starts``: the witness of a and of b."""
    a, b = [1000.0, 1010.0, 1020.0, 1030.0], [1010.0, 1020.1, 1030.2, 1040.3]
    blocks = [{"visits": [_visit("a", a, x), _visit("b", b, y)]} for x, y in starts]
    return MeasuredCell(Cell("toy", 1), blocks, QUIET)


ALL = [QUIET] * 4
FIRST_HALF, SECOND_HALF = [QUIET, QUIET, SLOW, SLOW], [SLOW, SLOW, QUIET, QUIET]


def test_a_start_without_a_common_undisturbed_iteration_is_left_out_of_a_difference() -> None:
    cell = _cell((ALL, ALL), (FIRST_HALF, SECOND_HALF), (ALL, FIRST_HALF))
    assert cell.cycle_change("a", "b").values == pytest.approx([0.01, 0.01])
    assert len(cell.cycle_us("a").values) == 3  # its cycles count all the same


def test_where_no_start_has_a_common_iteration_the_means_are_compared() -> None:
    cell = _cell((FIRST_HALF, SECOND_HALF), (FIRST_HALF, SECOND_HALF))
    expected = (1030.2 + 1040.3) / (1000 + 1010) - 1
    assert cell.cycle_change("a", "b").values == pytest.approx([expected, expected])
