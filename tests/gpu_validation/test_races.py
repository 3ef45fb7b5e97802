"""Race runs: which there are, in which order, and what a whole set of them says on the stand-in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from walks import starts_in_process, status

from gpu_validation import settings
from gpu_validation.calibrate import measure
from gpu_validation.configurations import CONFIGURATIONS, SAFE
from gpu_validation.validate.races import FEWER, Made, race_runs

torch.set_num_threads(1)


@pytest.mark.parametrize("load", [settings.RACES, settings.STAND_IN_RACES])
def test_short_runs_that_show_races_come_before_long_ones_that_show_none(load: settings.RaceLoad) -> None:
    runs = race_runs(load)
    unsafe, window = (
        [name for name in CONFIGURATIONS if name not in (*SAFE, "synchronous")],
        len(load.held_us),
    )
    assert [run.configuration for run in runs] == [*unsafe, *["unguarded"] * window, *SAFE]
    assert [run.held_us for run in runs if run.held_us] == sorted(load.held_us)
    first_long = len(unsafe) + window
    assert {run.requests for run in runs[:first_long]} == {load.requests // FEWER}
    assert {run.requests for run in runs[first_long:]} == {load.requests}
    assert len({run.name for run in runs}) == len(runs)


def test_races_are_caught_where_the_model_sees_them_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with starts_in_process() as patch:
        patch.setattr(settings, "STAND_IN_RACES", replace(settings.STAND_IN_RACES, requests=32))
        patch.setattr(measure, "SECOND_VISIT_S", 0.0)
        assert status("races", "--backend", "cpu") == 0
    found = json.loads((tmp_path / "gpu_races_report" / "results.json").read_text())
    for run in found["runs"]:
        assert run["predicted_safe"] == (run["configuration"] in SAFE)
        assert (run["torn"] == 0) == run["predicted_safe"], run
        # Too few steps for a promise; where the model promises nothing, nothing can be broken.
        assert run["verdict"] == ("cannot_tell" if run["predicted_safe"] else "holds")
        assert (run["predicted_torn_share"] is None) == run["predicted_safe"]
        if not run["predicted_safe"]:
            assert run["predicted_meetings"] == run["recycled"]
        assert run["torn_out_of_order"] == 0
        assert run["host_states_of"] == "run"
    assert any(run["wrong_requests"] for run in found["runs"])
    for path in (tmp_path / "gpu_races_raw").glob("races-0-*.json"):
        recorded_rows_tell_what_was_torn(json.loads(path.read_text()))
    text = (tmp_path / "gpu_races_report" / "report.md").read_text()
    assert all(name in text for name in SAFE)


def recorded_rows_tell_what_was_torn(piece: dict[str, Any]) -> None:
    """On the stand-in a read is torn where the write came first, by its clock, and nowhere else."""
    if "torn" not in piece:
        return
    columns = piece["taken_over"]["columns"]
    rows = [dict(zip(columns, row, strict=True)) for row in piece["taken_over"]["rows"]]
    assert len(rows) == piece["recycled"]
    assert sum(row["torn"] for row in rows) == piece["torn"]
    for row in rows:
        assert row["torn"] == (row["margin_us"] < 0)
        assert row["prompt"] in settings.STAND_IN_RACES.prompts
        assert 0 < row["rows"] <= settings.STAND_IN_RACES.concurrency
        # From the seen result over the preparation to the write.
        assert 0 < row["rows_us"] < row["host_us"]
        assert row["host_us"] > piece["held_us"]
        assert row["forward_us"] > 0


def test_requests_made_beforehand_are_the_same_ones() -> None:
    load = settings.STAND_IN_RACES
    work = load.workload(3, 6)
    made = Made(load.workload(3, 6))
    assert made.requests == 6
    for index in range(6):
        a, b = work.make(index), made.make(index)
        assert (a.index, a.prompt_tokens, a.output_tokens) == (b.index, b.prompt_tokens, b.output_tokens)
        assert [a.acceptance.at(p) for p in range(20)] == [b.acceptance.at(p) for p in range(20)]
