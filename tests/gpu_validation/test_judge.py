"""Measured cells, claims and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from gpu_validation.configurations import CONFIGURATIONS, SAFE
from gpu_validation.validate.agreement import RELATIVE, SIGNED, Compared, Judged, verdict
from gpu_validation.validate.claims import Cell, Claim, claims
from gpu_validation.validate.measured import DISTURBED, MeasuredCell, measured_cells

torch.set_num_threads(1)
CELL = Cell("8b", 8)


def claim(quantity: str, tolerance: float, b: str | None = None) -> Claim:
    return Claim("x", CELL, quantity, "unified_none", b, tolerance, "here")  # type: ignore[arg-type]


def compared(quantity: str, predicted: float, *values: float) -> Compared:
    stated = predicted if quantity == "cycle_change" else None
    return Compared((predicted,) * len(values), values, quantity in RELATIVE, stated)


def judged(quantity: str, tolerance: float, predicted: float, *values: float) -> str:
    b = "coarse" if quantity == "cycle_change" else None
    return verdict(claim(quantity, tolerance, b), compared(quantity, predicted, *values))


#: three starts whose mean is the middle one, with a half-width of 2.484 times the given step
def around(middle: float, step: float) -> tuple[float, float, float]:
    return middle - step, middle, middle + step


@pytest.mark.parametrize(
    ("predicted", "measured", "expected"),
    [
        (1010, around(1000, 1), "holds"),
        (990, around(1000, 1), "holds"),
        (1050, around(1000, 1), "fails"),
        (950, around(1000, 1), "fails"),
        (1020, around(1000, 1), "cannot_tell"),  # within 2 % of one end of the interval only
        (1018, around(1000, 4), "cannot_tell"),
        (1000, around(1000, 40), "cannot_tell"),  # the interval is wider than the tolerance on both sides
        (1010, (1000.0,), "cannot_tell"),  # one start says nothing of what changes between starts
        (1030, (1000.0,), "cannot_tell"),
    ],
)
def test_a_cycle_holds_where_the_whole_interval_of_its_error_is_small(
    predicted: float, measured: tuple[float, ...], expected: str
) -> None:
    assert judged("cycle_us", 0.02, predicted, *measured) == expected
    assert judged("throughput_tok_s", 0.02, predicted, *measured) == expected


@pytest.mark.parametrize(
    ("predicted", "measured", "expected"),
    [
        (0.012, around(0.010, 0.0002), "holds"),
        (0.020, around(0.010, 0.0002), "fails"),
        (0.0151, around(0.010, 0.0004), "cannot_tell"),
        # Near enough, but of the wrong sign while the measured change is beyond what must have it.
        (-0.0005, around(0.0042, 0.0001), "fails"),
        (0.0005, around(-0.0042, 0.0001), "fails"),
        (0.0, around(0.0042, 0.0001), "fails"),
        # A change as small as that has no sign to speak of; nor one whose interval reaches down to it.
        (-0.0005, around(0.0025, 0.0001), "holds"),
        (-0.0005, around(0.0035, 0.0004), "holds"),
    ],
)
def test_a_change_must_have_its_sign_where_it_is_large_enough(
    predicted: float, measured: tuple[float, ...], expected: str
) -> None:
    assert SIGNED == 0.003
    assert judged("cycle_change", 0.005, predicted, *measured) == expected


def test_a_busy_share_is_compared_in_hundredths() -> None:
    assert judged("gpu_busy_fraction", 0.01, 0.985, *around(0.992, 0.0002)) == "holds"
    assert judged("gpu_busy_fraction", 0.01, 0.97, *around(0.992, 0.0002)) == "fails"


def test_what_the_host_s_speed_explains_start_by_start_is_no_uncertainty() -> None:
    """Starts differ by a tenth because their hosts do, and the prediction says so of each."""
    slower = (1000.0, 1050.0, 1100.0)
    found = Compared(tuple(1.01 * v for v in slower), slower, relative=True)
    assert found.error == pytest.approx(0.01)
    assert found.error_interval == pytest.approx((0.01, 0.01))
    assert found.measured_interval == pytest.approx((1050, 1050))
    assert verdict(claim("cycle_us", 0.02), found) == "holds"
    # Told of one speed alone, nobody could tell.
    assert verdict(claim("cycle_us", 0.02), Compared((1060.0,) * 3, slower, relative=True)) == "cannot_tell"


def test_starts_that_differ_beyond_all_measure_give_no_interval_and_no_verdict() -> None:
    found = Compared((1000.0, 1000.0), (400.0, 1600.0), relative=True)
    assert found.error_interval is not None
    assert found.error_interval[0] < -1
    assert found.measured_interval is None
    assert verdict(claim("cycle_us", 0.02), found) == "cannot_tell"


def test_a_change_is_stated_at_the_calibrated_speed() -> None:
    """The second policy met a slower host in every start: as measured it seems 4 % slower, of which 3 are that."""
    found = Compared((0.031, 0.029, 0.030), (0.041, 0.039, 0.040), relative=False, stated=0.002)
    assert found.shown_predicted == 0.002
    assert found.shown_measured == pytest.approx(0.012)
    assert found.measured_interval == pytest.approx((0.012, 0.012))
    form = Judged(claim("cycle_change", 0.005, "coarse"), found, None, "fails").to_json()
    assert (form["measured"], form["as_measured"], form["error"]) == pytest.approx((0.012, 0.04, -0.01))


def test_a_judged_claim_says_its_error_in_the_unit_of_its_tolerance() -> None:
    found = compared("cycle_us", 1010, *around(1000, 1))
    cycle = Judged(claim("cycle_us", 0.02), found, (1000, 1020), "holds").to_json()
    assert cycle["error"] == pytest.approx(0.01, abs=1e-5)
    assert cycle["scenario_a"] == "8b-c8-unified_none"
    assert cycle["scenario_b"] is None
    alone = compared("cycle_change", 0.012, 0.01)
    change = Judged(claim("cycle_change", 0.005, "coarse"), alone, None, "cannot_tell").to_json()
    assert change["error"] == pytest.approx(0.002)
    assert change["scenario_b"] == "8b-c8-coarse"
    assert change["measured_interval"] is None
    assert change["error_interval"] is None


# -- claims -------------------------------------------------------------------------------------------------------


def test_claims_are_about_configurations_that_exist_and_say_where_their_tolerance_is_from() -> None:
    found = claims([CELL], {CELL: "unified_none"})
    assert len(found) == 2 * len(CONFIGURATIONS) + 6 + 1
    assert len({c.id for c in found}) == len(found)
    for c in found:
        assert c.a in CONFIGURATIONS
        assert c.b is None or c.b in CONFIGURATIONS
        assert (c.b is not None) == (c.quantity == "cycle_change")
        assert c.source
    tolerances = {c.quantity: c.tolerance for c in found}
    assert tolerances == {
        "cycle_us": 0.02,
        "throughput_tok_s": 0.02,
        "cycle_change": 0.005,
        "gpu_busy_fraction": 0.01,
    }


def test_no_busy_share_is_claimed_where_the_gpu_does_not_bound() -> None:
    assert all(c.quantity != "gpu_busy_fraction" for c in claims([CELL], {}))


def test_pairs_of_a_claim_differ_in_one_policy() -> None:
    for c in claims([CELL], {}):
        if c.b is not None:
            a, b = CONFIGURATIONS[c.a], CONFIGURATIONS[c.b]
            assert sum(a[key] != b[key] for key in a) == 1, c.id
    assert set(SAFE) < set(CONFIGURATIONS)


# -- measured cells -----------------------------------------------------------------------------------------------


def visit(name: str, cycles: Sequence[int], witness: float = 80.0, **more: Any) -> dict[str, Any]:
    return {
        "configuration": name,
        "cycles_ns": list(cycles),
        "witness_us": [witness] * len(cycles),
        "contexts": [10.0 + i for i in range(len(cycles))],
        "duration_ns": 10**9,
        "output_tokens": 100,
        "full_sha256": "same",
        **more,
    }


def block(start: int, *visits: dict[str, Any], model: str = "8b") -> dict[str, Any]:
    spans = {"forward_us": [0.9, 0.9], "contexts": [10.0, 11.0]}
    return {"model": model, "concurrency": 8, "start": start, "visits": list(visits), "spans": spans}


def test_runs_of_a_start_are_averaged_by_iteration() -> None:
    (cell,) = measured_cells(
        [
            block(0, visit("a", [1000, 1200, 1000]), visit("a", [1000, 1000, 1000])),
            block(1, visit("a", [1100, 1100, 1100])),
        ]
    )
    assert cell.cycle_us("a") == pytest.approx([3100 / 3 / 1000, 1.1])
    assert cell.context("a") == 11.0
    assert cell.digests == 1


def test_disturbed_cycles_are_left_out_and_counted() -> None:
    cycles = [1000] * 20
    cycles[3], cycles[7] = 5000, round(DISTURBED * 1000) + 1
    plain = visit("a", [1000] * 20)
    cell = MeasuredCell(CELL, [block(0, visit("a", cycles), plain, plain)])
    assert (cell.disturbed, cell.cycles) == (2, 60)
    assert cell.cycle_us("a") == pytest.approx([1.0])


def test_a_start_that_was_disturbed_throughout_says_what_it_can() -> None:
    cell = MeasuredCell(
        CELL, [*(block(s, visit("a", [1000] * 10)) for s in (0, 1)), block(2, visit("a", [2000] * 10))]
    )
    assert cell.cycle_us("a") == pytest.approx([1.0, 1.0, 2.0])


def test_every_run_has_the_speed_of_its_host() -> None:
    blocks = [
        block(0, visit("a", [1000] * 4, 80.0), visit("a", [1100] * 4, 120.0)),
        block(1, visit("a", [1] * 4, 100.0)),
    ]
    cell = MeasuredCell(CELL, blocks, 80.0)
    assert cell.speeds("a") == [[1.0, 1.5], [1.25]]
    assert cell.speed == 1.25
    assert MeasuredCell(CELL, blocks).speeds("a") == [[1.0, 1.0], [1.0]]  # nothing tells


def test_changes_pair_by_iteration() -> None:
    """The context makes later iterations longer; what is left out in one is left out of the difference."""
    cycles = [1000 + 10 * i for i in range(20)]
    longer = [round(c * 1.02) for c in cycles]
    disturbed = [*longer[:-1], 5 * longer[-1]]
    starts = [block(0, visit("a", cycles), visit("b", disturbed))]
    starts += [block(s, visit("a", cycles), visit("b", longer)) for s in (1, 2)]
    cell = MeasuredCell(CELL, starts)
    assert cell.disturbed == 1
    assert cell.cycle_change("a", "b") == pytest.approx([0.02] * 3, abs=1e-4)
    assert cell.cycle_us("b")[0] / cell.cycle_us("a")[0] - 1 < 0.016  # unpaired means are of other contexts


def test_runs_that_share_no_good_iteration_are_compared_as_wholes() -> None:
    usual = [block(s, visit("a", [1000] * 4), visit("b", [1100] * 4)) for s in (0, 1, 2)]
    odd = block(3, visit("a", [1000, 1000, 9000, 9000]), visit("b", [9000, 9000, 1100, 1100]))
    assert MeasuredCell(CELL, [*usual, odd]).cycle_change("a", "b")[3] == pytest.approx(0.1)


def test_throughput_is_over_the_run_without_what_disturbed_it() -> None:
    runs = [visit("a", [1000] * 20, duration_ns=10**9), visit("a", [1000] * 20, duration_ns=2 * 10**9)]
    assert MeasuredCell(CELL, [block(0, *runs)]).throughput("a") == pytest.approx([75.0])  # of 100 and 50
    stopped = visit("a", [1000] * 19 + [1000 + 10**9], duration_ns=2 * 10**9)
    assert MeasuredCell(CELL, [block(0, *runs[:1], *runs[:1], stopped)]).throughput("a") == pytest.approx(
        [100.0]
    )


def test_different_tokens_show_as_a_second_digest() -> None:
    cell = MeasuredCell(CELL, [block(0, visit("a", [1000] * 9), visit("b", [1000] * 9, full_sha256="other"))])
    assert cell.digests == 2


def test_a_busy_share_is_the_forward_over_the_cycle_as_both_were_timed() -> None:
    cell = MeasuredCell(CELL, [block(0, visit("a", [1000] * 9)), block(1, visit("a", [800] * 9))])
    assert cell.busy("a") == pytest.approx([0.9, 1.125])
