"""Raw pieces that were changed or damaged since the suite wrote them: one message a file, status 2, no result."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabricated
import pytest
import torch
from fabricated import Json, change
from walks import status

from gpu_validation.raw import pieces
from sim.errors import InputError

torch.set_num_threads(1)
Change = Callable[[Json], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, named like it."""
    made = tmp_path_factory.mktemp("raw")
    for kind in ("calibrate", "validate", "races"):
        fabricated.folder(made / kind, kind, 1 if kind == "races" else 2)
    return made


@pytest.fixture
def raw(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of them, in the current directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


def judge(kind: str, *more: str) -> int:
    target = {"calibrate": "--into", "validate": "--out", "races": "--out"}[kind]
    starts = () if kind == "races" else ("--starts", "2")
    return status(kind, "--backend", "cpu", "--measured", "--raw", kind, target, "target", *starts, *more)


def refused(kind: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one message, after making sure that nothing was written."""
    assert judge(kind) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert [p for p in Path("target").rglob("*") if p.is_file()] == []
    return shown.err


def visits(how: Change) -> Change:
    return lambda piece: [how(visit) for visit in piece["visits"]]


def records(how: Change, *modes: str) -> Change:
    return lambda piece: [
        how(run["record"])
        for batch in piece["batches"].values()
        for run in batch["runs"]
        if not modes or run["mode"] in modes
    ]


def passes(how: Change) -> Change:
    return records(lambda record: [how(each) for each in record["passes"]])


def sections(value: Any) -> Change:
    return passes(lambda each: each.update(sections=dict.fromkeys(each["sections"], value)))


def batches(how: Change) -> Change:
    return lambda piece: [how(batch) for batch in piece["batches"].values()]


def without(*modes: str) -> Change:
    return batches(lambda batch: batch.update(runs=[r for r in batch["runs"] if r["mode"] not in modes]))


# -- validate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (dict.clear, "start is not there; seconds is not there; device is not there"),
        (lambda p: p.update(device=None), "device is None"),
        (lambda p: p.update(date="yesterday"), "date is 'yesterday'"),
        (lambda p: p.pop("semantics"), "semantics is not there"),
        (lambda p: p.update(semantics="zz"), "semantics is 'zz'"),
        (lambda p: p.pop("spans"), "spans is not there"),
        (lambda p: p.update(spans={"forward_us": [], "contexts": []}), "spans.forward_us is []"),
        (lambda p: p.update(visits=[]), "no visit of direct_bound, unified_none"),
        (lambda p: p["visits"].pop(3), "no visit of unified_exact"),
        (lambda p: p["visits"][0].update(configuration="zz"), 'visits.0: "zz" is no configuration'),
        (visits(lambda v: v.update(cycles_ns=[])), "visits.0.cycles_ns is []"),
        (visits(lambda v: v["cycles_ns"].__setitem__(0, 0)), "visits.0.cycles_ns.0 is 0 "),
        (visits(lambda v: v["cycles_ns"].__setitem__(0, -5)), "visits.0.cycles_ns.0 is -5 "),
        (visits(lambda v: v["cycles_ns"].__setitem__(0, 10**400)), "visits.0.cycles_ns.0 is 1000"),
        (visits(lambda v: v["cycles_ns"].__setitem__(0, math.inf)), "visits.0.cycles_ns.0 is inf"),
        (visits(lambda v: v["cycles_ns"].__setitem__(0, "7")), "visits.0.cycles_ns.0 is '7'"),
        (lambda p: p["visits"][1]["witness_us"].__setitem__(2, math.nan), "visits.1.witness_us.2 is nan"),
        (lambda p: p["visits"][1]["witness_us"].__setitem__(2, None), "visits.1.witness_us.2 is None"),
        (lambda p: p["visits"][1]["witness_us"].pop(), "12 of cycles_ns, 11 of witness_us, 12 of contexts"),
        (lambda p: p["visits"][1]["contexts"].append(9.0), "12 of witness_us, 13 of contexts"),
        (lambda p: p["visits"][1].update(output_tokens=0), "visits.1.output_tokens is 0"),
        (lambda p: p["visits"][1].update(duration_ns=0), "visits.1.duration_ns is 0"),
        (lambda p: p["visits"][1].pop("full_sha256"), "visits.1.full_sha256 is not there"),
        (lambda p: p.update(start=1), "the piece that belongs into validate-1-tiny-c1.json"),
        (lambda p: p.update(model="8b"), "the piece that belongs into validate-0-8b-c1.json"),
        (lambda p: p.update(concurrency=99), "the piece that belongs into validate-0-tiny-c99.json"),
        (lambda p: p.update(concurrency="x"), "concurrency is 'x'"),
    ],
)
def test_a_changed_piece_of_a_validation_is_named_with_what_is_wrong(
    how: Change, message: str, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(raw / "validate" / "validate-0-tiny-c1.json", how)
    shown = refused("validate", capsys)
    assert shown.startswith("overlapsim: validate/validate-0-tiny-c1.json: found ")
    assert message in shown
    assert "Delete the file and measure again; the other pieces are kept." in shown


def test_every_problem_of_every_file_is_said_at_once_and_alike_ones_together(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (raw / "validate" / f"validate-{start}-tiny-c2.json" for start in (0, 1))
    change(first, visits(lambda v: v.update(cycles_ns=[0] * 12, duration_ns=-1)))
    second.write_text("[[]]")
    shown = refused("validate", capsys).splitlines()
    assert shown[0] == "overlapsim: 2 problems"
    assert "visits.0.cycles_ns.0 is 0 (input should be greater than 0), and 131 more like it" in shown[1]
    assert "visits.0.duration_ns is -1 (input should be greater than 0), and 10 more like it" in shown[1]
    assert "validate-1-tiny-c2.json: found no JSON object" in shown[2]


def test_a_file_that_is_wrong_throughout_is_not_listed_throughout(raw: Path) -> None:
    path = raw / "calibrate" / "calibrate-0-primitives.json"
    change(path, lambda p: p.update(samples={f"s{i}": [math.nan] for i in range(50)}))
    with pytest.raises(InputError, match="and 42 more problems") as refusal:
        pieces(raw / "calibrate", "calibrate")
    assert len(str(refusal.value)) < 1500


def test_pieces_of_two_platforms_are_no_one_answer(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(raw / "validate" / "validate-1-tiny-c4.json", lambda p: p.update(semantics="hip"))
    assert "pieces of semantics cuda and hip" in refused("validate", capsys)


@pytest.mark.parametrize(
    "name", ["validate-notes.json", "validate-0-tiny-c3.json", "validate-00-tiny-c1.json"]
)
def test_a_file_that_the_suite_does_not_write_is_named(
    name: str, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(raw / "validate" / "validate-0-tiny-c1.json", raw / "validate" / name)
    shown = refused("validate", capsys)
    assert f"{name}: found a name that no piece of this question has" in shown
    assert "Move it elsewhere." in shown


def test_a_folder_in_place_of_a_piece_is_named(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = raw / "validate" / "validate-0-tiny-c1.json"
    path.unlink()
    path.mkdir()
    assert "validate-0-tiny-c1.json: found nothing readable (is a directory)" in refused("validate", capsys)


# -- calibrate ----------------------------------------------------------------------------------------------------


def test_whole_pieces_of_a_calibration_make_profiles(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge("calibrate") == 0
    assert (Path("target") / "devices" / "cpu_suite_tiny.toml").is_file()
    assert "times of the CPU stand-in prove nothing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (without("segments"), "no run at batch 1 in mode segments; no run at batch 4 in mode segments"),
        (without("ahead", "woken"), "no run at batch 1 in mode ahead, woken; no run at batch 4"),
        (without("roomy"), "no run at batch 1 in mode roomy"),
        (batches(lambda b: b.update(runs=[])), "batches.1.runs is []"),
        (lambda p: p["batches"].pop("4"), "batches 1, not 1, 4"),
        (lambda p: p["batches"].pop("1"), "batches 4, not 1, 4"),
        (lambda p: p["batches"].clear(), "no batch"),
        (lambda p: p["batches"].update(x=p["batches"].pop("1")), "batches.x"),
        (passes(lambda each: each.update(rows=3)), "fewer than 3 steady passes at batch 1 in mode as_is"),
        (
            passes(lambda each: each.update(prefill=True)),
            "fewer than 3 steady passes at batch 4 in mode ahead",
        ),
        (passes(lambda each: each.pop("rows")), "record.passes.0.rows is not there"),
        (passes(lambda each: each.update(context=0.0)), "record.passes.0.context is 0.0"),
        (passes(lambda each: each.update(entered_ns=0)), "passes that do not begin one after the other"),
        (records(lambda r: r.update(passes=[])), "record.passes is []"),
        (records(lambda r: r.update(concurrency=2)), "a run of 2 requests at batch 1"),
        (records(lambda r: r.update(zz=1)), "record.zz is 1"),
        (sections(0), "no section of any length"),
        (sections(-5), "is -5"),
        (sections(math.nan), "is nan"),
        (sections(10**18), "is 1000000000000000000"),
        (
            passes(lambda each: each["sections"].pop("process", 0)),
            "no section process at batch 1 in mode as_is",
        ),
        (records(lambda r: r["passes"][0].update(prefill=False), "as_is"), "no prefill in the first pass"),
        (records(lambda r: r.update(segments_us=[]), "segments"), "0 timed forwards in 13 passes at batch 1"),
        (records(lambda r: r.update(segments_us=[{"verify": 0.0}])), "a timed forward without a segment"),
        (records(lambda r: [s.pop("verify", 0) for s in r["segments_us"]]), "no segment verify at batch 1"),
        (records(lambda r: r["segments_us"][0].update(prefill=math.nan), "roomy"), "prefill is nan"),
        (batches(lambda b: b.update(alone={})), "no operation timed alone: nothing, prepare.copy"),
        (batches(lambda b: b["alone"].update(nothing=[])), "alone.nothing is []"),
        (batches(lambda b: b["alone"].update(nothing=[math.nan])), "alone.nothing.0 is nan"),
        (batches(lambda b: b["runs"][0].update(mode="zz")), "mode is 'zz'"),
        (lambda p: p.update(work={"a": 1}), "work.a is 1"),
        (lambda p: p.update(model="../x"), "the piece that belongs into calibrate-1-../x.json"),
    ],
)
def test_a_calibration_that_lacks_something_is_named_with_all_it_lacks(
    how: Change, message: str, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(raw / "calibrate" / "calibrate-1-tiny.json", how)
    shown = refused("calibrate", capsys)
    assert shown.startswith("overlapsim: calibrate/calibrate-1-tiny.json: found ")
    assert message in shown
    assert "Delete the file and measure again; the other pieces are kept." in shown


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({}, "no samples of known_by_polling, known_by_blocking, query_met, hop"),
        ({"hop": []}, "samples.hop is []"),
        ({"hop": [1.0, math.nan]}, "samples.hop.1 is nan"),
        ({"hop": ["a"]}, "samples.hop.0 is 'a'"),
    ],
)
def test_primitives_that_are_no_numbers_do_not_become_costs_of_nothing(
    samples: Json, message: str, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(
        raw / "calibrate" / "calibrate-0-primitives.json",
        lambda p: p.update(samples={**p["samples"], **samples} if samples else {}),
    )
    assert message in refused("calibrate", capsys)


def test_older_calibrations_are_still_read(raw: Path) -> None:
    """They lack what was held and the host's other work, and hold more of each pass."""

    def older(piece: Json) -> None:
        del piece["work"]
        batches(lambda b: [run.pop("held_us") for run in b["runs"]])(piece)
        passes(lambda each: each.update(pace_ns=[9]))(piece)

    change(raw / "calibrate" / "calibrate-0-tiny.json", older)
    assert judge("calibrate") == 0


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x"])
def test_a_name_that_no_file_should_have_is_refused(
    name: str, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge("calibrate", f"--name={name}") == 2
    assert f'--name: found "{name}"' in capsys.readouterr().err


# -- races --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda p: p.update(taken_over=[]), "taken_over is []"),
        (lambda p: p["taken_over"].update(rows=[]), "0 rows taken over where 1 were recycled"),
        (lambda p: p["taken_over"]["columns"].pop(), "a row with more or fewer than 6 columns"),
        (lambda p: p["taken_over"]["columns"].__setitem__(0, "x"), "columns x, prompt"),
        (lambda p: p["taken_over"]["rows"][0].__setitem__(0, 0), "rows is 0"),
        (lambda p: p["taken_over"]["rows"][0].__setitem__(2, math.nan), "is nan"),
        (lambda p: p.update(torn=-1), "torn is -1"),
        (lambda p: p.update(wrong_requests=99), "99 wrong ones of 8 requests"),
        (lambda p: p.update(configuration="zz"), '"zz" is no configuration'),
        (lambda p: p.update(configuration="coarse"), "the piece that belongs into races-0-coarse.json"),
        (lambda p: p.update(requests=7), "a run of 7 requests"),
        (lambda p: p.pop("steps"), "steps is not there"),
    ],
)
def test_a_changed_race_run_is_named_with_what_is_wrong(
    how: Change, message: str, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(raw / "races" / "races-0-unguarded.json", how)
    shown = refused("races", capsys)
    assert shown.startswith("overlapsim: races/races-0-unguarded.json: found ")
    assert message in shown


@pytest.mark.parametrize("piece", ["primitives", "calibration"])
def test_races_without_their_calibration_say_that(
    piece: str, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (raw / "races" / f"races-0-{piece}.json").unlink()
    assert f"races: found no finished {piece}; expected one of each" in refused("races", capsys)


def test_a_race_s_calibration_is_checked_like_any_other(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(raw / "races" / "races-0-calibration.json", without("segments"))
    assert "races-0-calibration.json: found no run at batch 1 in mode segments" in refused("races", capsys)


# -- which pieces are judged --------------------------------------------------------------------------------------


def calibrated() -> tuple[str, ...]:
    assert status("calibrate", "--backend", "cpu", "--measured", "--raw", "calibrate", "--into", "cfg") == 0
    return "--configs", "cfg", "--device", "cpu"


def test_only_the_starts_that_are_asked_for_are_judged_and_more_are_said(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = calibrated()
    capsys.readouterr()
    assert judge("validate", *source, "--starts", "1") == 0
    shown = capsys.readouterr().out
    assert "process starts below 1 counted, as --starts says; there are more: 1" in shown
    assert "times of the CPU stand-in prove nothing" in shown
    found = json.loads((raw / "target" / "results.json").read_text())
    assert found["starts"] == 1


def test_claims_about_times_of_the_stand_in_are_no_failure(raw: Path) -> None:
    assert judge("validate", *calibrated()) == 0
    found = json.loads((raw / "target" / "results.json").read_text())
    assert "fails" in {claim["verdict"] for claim in found["claims"]}  # the times are made up


def test_what_is_missing_is_not_put_down_to_time_where_nothing_is_measured(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (raw / "calibrate" / "calibrate-1-primitives.json").unlink()
    assert judge("calibrate") == 1
    shown = capsys.readouterr().out
    assert "not in --raw: calibrate-1-primitives.json; without --measured" in shown
    assert "want of time" not in shown


def test_results_are_not_written_without_their_report(
    raw: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpu_validation.validate import report

    def broken(*_: object) -> Path:
        raise InputError([])

    source = calibrated()
    monkeypatch.setattr(report, "write", broken)
    assert judge("validate", *source) == 2
    assert [p for p in (raw / "target").rglob("*") if p.is_file()] == []


def test_runs_that_committed_different_tokens_are_wrong_whatever_their_times(
    raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = calibrated()
    change(
        raw / "validate" / "validate-0-tiny-c1.json", lambda p: p["visits"][3].update(full_sha256="0" * 64)
    )
    capsys.readouterr()
    assert judge("validate", *source) == 1
    assert "runs of tiny-c1 committed different tokens" in capsys.readouterr().out
