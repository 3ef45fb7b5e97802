"""Measured cells, claims and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from gpu_validation.configurations import CONFIGURATIONS, SAFE
from gpu_validation.validate.agreement import SIGNED, Judged, verdict
from gpu_validation.validate.claims import Cell, Claim, claims
from gpu_validation.validate.measured import DISTURBED, Measured, MeasuredCell, measured_cells

torch.set_num_threads(1)
CELL = Cell("8b", 8)


def claim(quantity: str, tolerance: float, b: str | None = None) -> Claim:
    return Claim("x", CELL, quantity, "unified_none", b, tolerance, "here")  # type: ignore[arg-type]


def judged(quantity: str, tolerance: float, predicted: float, *values: float) -> str:
    b = "coarse" if quantity == "cycle_change" else None
    return verdict(claim(quantity, tolerance, b), predicted, Measured(values))


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
        (1010, (1000.0,), "holds"),  # one start has no interval: its value decides
        (1030, (1000.0,), "fails"),
    ],
)
def test_a_cycle_holds_where_it_is_near_every_value_of_the_interval(
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


def test_a_judged_claim_says_its_error_in_the_unit_of_its_tolerance() -> None:
    cycle = Judged(claim("cycle_us", 0.02), 1010, (1000, 1020), Measured(around(1000, 1)), "holds").to_json()
    assert cycle["error"] == pytest.approx(0.01)
    assert cycle["scenario_a"] == "8b-c8-unified_none"
    assert cycle["scenario_b"] is None
    change = Judged(claim("cycle_change", 0.005, "coarse"), 0.012, None, Measured((0.01,)), "holds").to_json()
    assert change["error"] == pytest.approx(0.002)
    assert change["scenario_b"] == "8b-c8-coarse"
    assert change["measured_interval"] is None


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


def visit(
    name: str, cycles: list[int], witness: Sequence[float] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "configuration": name,
        "cycles_ns": cycles,
        "witness_us": witness or [80.0] * len(cycles),
        "contexts": [10.0 + i for i in range(len(cycles))],
        "duration_ns": 10**9,
        "output_tokens": 100,
        "full_sha256": "same",
        **more,
    }


def block(start: int, *visits: dict[str, Any], model: str = "8b") -> dict[str, Any]:
    spans = {"forward_us": [0.9, 0.9], "contexts": [10.0, 11.0]}
    return {"model": model, "concurrency": 8, "start": start, "visits": list(visits), "spans": spans}


def test_runs_of_a_start_are_averaged_by_iteration_and_starts_make_the_interval() -> None:
    (cell,) = measured_cells(
        [
            block(0, visit("a", [1000, 1200, 1000]), visit("a", [1000, 1000, 1000])),
            block(1, visit("a", [1100, 1100, 1100])),
        ]
    )
    found = cell.cycle_us("a")
    assert found.values == pytest.approx((3100 / 3 / 1000, 1.1))
    assert found.interval is not None
    assert found.interval[0] < found.mean < found.interval[1]
    assert Measured((1.0,)).interval is None
    assert cell.context("a") == 11.0
    assert cell.digests == 1


def test_cycles_on_a_slow_host_and_disturbed_ones_are_left_out_and_counted() -> None:
    cycles = [1000] * 20
    cycles[3], cycles[7] = 5000, round(DISTURBED * 1000) + 1
    paces = [80] * 20
    paces[3] = 160
    plain = visit("a", [1000] * 20)
    cell = MeasuredCell(CELL, [block(0, visit("a", cycles, paces), plain, plain)])
    assert (cell.slow, cell.disturbed, cell.cycles) == (1, 1, 60)
    assert cell.cycle_us("a").mean == pytest.approx(1.0)


def test_what_is_left_out_does_not_depend_on_the_cycles_themselves() -> None:
    paces = [80] * 20
    paces[3] = 160
    for slow_cycle in (100, 1000, 1200):
        cycles = [1000] * 20
        cycles[3] = slow_cycle
        cell = MeasuredCell(CELL, [block(0, visit("a", cycles, paces))])
        assert cell.slow == 1
        assert cell.cycle_us("a").mean == pytest.approx(1.0)


@pytest.mark.parametrize("why", ["slow", "disturbed"])
def test_a_start_without_a_good_moment_says_what_it_can(why: str) -> None:
    slow, long = ([200] * 10, [1000] * 10) if why == "slow" else ([80] * 10, [2000] * 10)
    cell = MeasuredCell(
        CELL,
        [
            block(0, visit("a", [1000] * 10)),
            block(1, visit("a", [1000] * 10)),
            block(2, visit("a", long, slow)),
        ],
    )
    assert cell.cycle_us("a").values == pytest.approx((1.0, 1.0, np.mean(long) / 1000))


def test_quiet_is_decided_by_configuration() -> None:
    """After a long sleep any host is slower for a moment: that is not a neighbour."""
    cell = MeasuredCell(CELL, [block(0, visit("a", [1000] * 10), visit("b", [1000] * 10, [130] * 10))])
    assert cell.slow == 0


def test_changes_pair_by_iteration() -> None:
    """The context makes later iterations longer; what is left out in one is left out of the difference."""
    cycles = [1000 + 10 * i for i in range(20)]
    longer = [round(c * 1.02) for c in cycles]
    paces = [80] * 19 + [200]
    cell = MeasuredCell(CELL, [block(s, visit("a", cycles), visit("b", longer, paces)) for s in (0, 1)])
    assert cell.slow == 2
    assert cell.cycle_change("a", "b").values == pytest.approx((0.02, 0.02), abs=1e-4)
    assert (
        cell.cycle_us("b").mean / cell.cycle_us("a").mean - 1 < 0.016
    )  # unpaired means are of other contexts


def test_runs_that_share_no_good_iteration_are_compared_as_wholes() -> None:
    a, b = visit("a", [1000] * 4, [80, 80, 200, 200]), visit("b", [1100] * 4, [200, 200, 80, 80])
    assert MeasuredCell(CELL, [block(0, a, b)]).cycle_change("a", "b").values == pytest.approx((0.1,))


def test_a_start_with_nothing_to_pair_is_left_out_of_a_difference() -> None:
    a, b = visit("a", [1000] * 4, [80, 80, 200, 200]), visit("b", [1100] * 4, [200, 200, 80, 80])
    cell = MeasuredCell(CELL, [block(0, a, b), block(1, visit("a", [1000] * 4), visit("b", [1050] * 4))])
    assert cell.cycle_change("a", "b").values == pytest.approx((0.05,))


def test_throughput_is_that_of_runs_at_the_reference_speed() -> None:
    """Runs take as long as the host's speed makes them; one far from the reference does not count."""

    def run(us: float, seconds: float) -> dict[str, Any]:
        return visit("a", [1000] * 20, [us] * 20, duration_ns=round(seconds * 1e9))

    starts = [block(s, run(80, 1.0), run(100, 1.25), run(200, 9.0)) for s in (0, 1)]
    cell = MeasuredCell(CELL, starts, 90.0)
    assert cell.throughput("a").values == pytest.approx((100 / 1.125, 100 / 1.125))
    # A start whose runs are all slow says what it can.
    lone = MeasuredCell(CELL, [block(0, run(80, 1.0)), block(1, run(200, 2.5))], 80.0)
    assert lone.throughput("a").values == pytest.approx((100.0, 40.0))


def test_cycles_are_those_of_a_host_at_the_reference_speed() -> None:
    """Runs as long as the host's speed makes them, beside runs that the device bounds whatever the host's speed."""
    speeds = [84.0, 88.0, 94.0, 100.0]
    blocks = [
        block(i, visit("a", [round(10 * us)] * 20, [us] * 20), visit("flat", [900] * 20, [us] * 20))
        for i, us in enumerate(speeds)
    ]
    cell = MeasuredCell(CELL, blocks, 90.0)
    assert cell.cycle_us("a").values == pytest.approx([0.9] * 4)
    assert cell.cycle_us("flat").values == pytest.approx([0.9] * 4)
    assert cell.cycle_change("flat", "a").values == pytest.approx([0.0] * 4, abs=1e-12)
    # Left to themselves the data are stated at the speed of their own usual turn.
    assert MeasuredCell(CELL, blocks).cycle_us("a").values == pytest.approx([0.94] * 4)


def test_different_tokens_show_as_a_second_digest() -> None:
    cell = MeasuredCell(CELL, [block(0, visit("a", [1000] * 9), visit("b", [1000] * 9, full_sha256="other"))])
    assert cell.digests == 2


def test_a_busy_share_is_the_forward_over_the_cycle_and_never_beyond_one() -> None:
    cell = MeasuredCell(CELL, [block(0, visit("a", [1000] * 9)), block(1, visit("a", [800] * 9))])
    assert cell.busy("a").values == pytest.approx((0.9, 1.0))
