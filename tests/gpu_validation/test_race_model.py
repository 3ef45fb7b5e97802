"""What the model says of a race run: what moves the write against the read, and what must not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from gpu_validation import settings
from gpu_validation.spec.declared import declared
from gpu_validation.validate import race_model
from gpu_validation.validate.race_model import MAKE, given, host_states, piece_us, window
from gpu_validation.validate.race_results import _out_of_order, build
from sim.config.declarations import load_program
from sim.config.loader import load_profile
from sim.config.profile import DeviceProfile
from sim.ingest.files import write_profile, write_program
from sim.program.step_program import StepProgram

REPORT = Path(__file__).parents[2] / "reports" / "h200_races"
LOAD = settings.RACES
COLUMNS = ["rows", "prompt", "forward_us", "rows_us", "host_us", "margin_us", "torn"]


def run(held_us: float = 0.0, configuration: str = "unguarded", **more: Any) -> dict[str, Any]:
    return {"configuration": configuration, "requests": 60, "held_us": held_us, **more}


@pytest.fixture(scope="module")
def calibrated() -> tuple[DeviceProfile, StepProgram]:
    """A profile of the suite on an H200 with no noise, its program without what race runs add."""
    profile = load_profile(str(REPORT / "profile.toml"))
    quiet = {name: cost.model_copy(update={"within_sd": 0.0}) for name, cost in profile.costs.items()}
    return profile.model_copy(update={"costs": quiet}), declared("dflash", LOAD.block, "suite")


@pytest.fixture
def folder(tmp_path: Path, calibrated: tuple[DeviceProfile, StepProgram]) -> Path:
    return written(tmp_path, *calibrated)


def written(folder: Path, profile: DeviceProfile, program: StepProgram) -> Path:
    write_profile(folder / "profile.toml", profile)
    write_program(folder / "program.toml", program)
    return folder


@pytest.fixture(autouse=True)
def three_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_model, "STATES", 3)


def test_work_held_by_the_clock_moves_the_write_as_far_on_any_host(folder: Path) -> None:
    plain, held = window(folder, LOAD, run()), window(folder, LOAD, run(held_us=100))
    assert plain.states == held.states
    assert plain.states[0] < 1 < plain.states[-1]
    for before, after in zip(plain.margins_us, held.margins_us, strict=True):
        moved = [b - a for a, b in zip(before, after, strict=True)]
        assert median(moved) == pytest.approx(100)
        assert min(moved) >= 100 - 1e-3
    for before, after in zip(plain.margins_us[:2], held.margins_us[:2], strict=True):
        assert [b - a for a, b in zip(before, after, strict=True)] == pytest.approx([100] * len(before))
    # On the slowest host the loop itself is late now and then, and the write behind two held results.
    assert max(b - a for a, b in zip(plain.margins_us[-1], held.margins_us[-1], strict=True)) <= 200 + 1e-3


def test_a_slow_host_writes_later_and_tears_less(folder: Path) -> None:
    found = window(folder, LOAD, run(held_us=400))
    assert not found.safe
    shares = found.shares
    assert shares is not None
    assert shares[0] == 1
    assert shares[-1] == 0
    middle = [sorted(m)[len(m) // 2] for m in found.margins_us]
    assert middle == sorted(middle)
    assert found.seconds == tuple(sorted(found.seconds))


def test_one_request_a_prefill_as_the_race_runs(folder: Path) -> None:
    """A second row that finished with another is written once the forward that carried it was waited for."""
    found = window(folder, LOAD, {**run(), "requests": LOAD.requests // 8})
    measured = json.loads((REPORT / "results.json").read_text())["runs"][0]
    assert found.meetings == measured["recycled"]


def test_the_making_of_the_next_request_comes_before_the_write(
    folder: Path, tmp_path: Path, calibrated: tuple[DeviceProfile, StepProgram]
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "before").mkdir()
    during = written(tmp_path / "made", *given(*calibrated, 200.0))
    before = written(tmp_path / "before", *given(*calibrated, None))
    assert MAKE not in {op.name for op in given(*calibrated, None)[1].prefill}
    assert load_program(str(during / "program.toml"), None).prefill[2].name == MAKE
    a, b = window(before, LOAD, run()), window(during, LOAD, run())
    for state, early, late in zip(a.states, a.margins_us, b.margins_us, strict=True):
        assert min(late) - min(early) == pytest.approx(200 * race_model.REQUEST_PIECES * state, rel=0.02)


def test_a_prefill_in_the_steady_state_costs_what_the_same_calls_cost_in_decode(
    calibrated: tuple[DeviceProfile, StepProgram],
) -> None:
    profile, _ = given(*calibrated, None)
    for name in ("copy", "assign"):
        assert profile.costs[f"host.prefill.{name}"].value == profile.costs[f"host.prepare.{name}"].value


def test_a_safe_policy_is_gone_through_once(folder: Path) -> None:
    found = window(folder, LOAD, run(configuration="unified_none"))
    assert found.safe
    assert len(found.states) == 1
    assert found.meetings == 0
    assert found.shares is None


def test_host_states_are_those_of_the_run_where_it_recorded_them(
    calibrated: tuple[DeviceProfile, StepProgram],
) -> None:
    profile, program = calibrated
    forward = [f"host.{op.name}" for op in program.operations if op.phase == "forward"]
    stated = sum(race_model._at(profile.costs[name], 4) for name in forward)
    rows = [[4, 8, stated * factor, 1, 1, 1, False] for factor in (1.0, 1.5, 2.0)]
    recorded = run(taken_over={"columns": COLUMNS, "rows": rows})
    assert host_states(profile, program, recorded) == pytest.approx((1.1667, 1.5, 1.8333), abs=1e-3)
    low, middle, high = host_states(profile, program, run())
    quantiles = sorted(profile.host_state.quantiles.values())
    assert quantiles[0] < low < middle == 1 < high < quantiles[-1]


def test_the_hosts_piece_of_work_is_the_calibrations_median() -> None:
    runs = [{"host_us": [100, 300]}, {"host_us": [110, 120]}]
    assert piece_us({"batches": {"1": {"runs": runs[:1]}, "4": {"runs": runs[1:]}}}) == 115


def test_reads_torn_out_of_order_are_counted_and_what_is_too_near_to_tell_is_not() -> None:
    rows = [(-50.0, True), (50.0, False), (50.0, True), (-50.0, False), (-3.0, False), (3.0, True)]
    assert _out_of_order([{"margin_us": m, "torn": torn} for m, torn in rows]) == 2
    assert _out_of_order([]) is None


def test_the_report_says_which_host_states_and_what_was_out_of_order(tmp_path: Path) -> None:
    results = json.loads((REPORT / "results.json").read_text())
    text = repr(build(results))
    assert "the host states that the calibration met" in text
    assert "device's clock" not in text
    for r in results["runs"]:
        r.update(host_states_of="run", torn_out_of_order=1, margin_us=[-200.0, -100.4, 3.0])
    text = repr(build(results))
    assert "the host's own states in each run" in text
    assert f"{len(results['runs'])} were torn although" in text
    assert "−100 (−200 … 3)" in text


def test_the_committed_results_are_the_committed_runs_judged(tmp_path: Path) -> None:
    """Rows that the model has taken over in flight are those that were."""
    shutil.unpack_archive(REPORT / "raw.tar.gz", tmp_path, filter="data")
    for judged in json.loads((REPORT / "results.json").read_text())["runs"]:
        name = judged["configuration"] + (f"-held{judged['held_us']:g}" if judged["held_us"] else "")
        raw = json.loads((tmp_path / "gpu_races_raw" / f"races-0-{name}.json").read_text())
        assert {key: judged[key] for key in ("steps", "recycled", "torn", "wrong_requests")} == {
            key: raw[key] for key in ("steps", "recycled", "torn", "wrong_requests")
        }
        if not judged["predicted_safe"]:
            assert judged["predicted_meetings"] == judged["recycled"]
