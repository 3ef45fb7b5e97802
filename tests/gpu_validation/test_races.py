"""Race runs: which there are, in which order, and what a whole set of them says on the stand-in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from walks import starts_in_process, status

from gpu_validation import settings
from gpu_validation.calibrate import measure
from gpu_validation.configurations import CONFIGURATIONS, SAFE
from gpu_validation.validate.races import FEWER, race_runs

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
    assert any(run["wrong_requests"] for run in found["runs"])
    text = (tmp_path / "gpu_races_report" / "report.md").read_text()
    assert all(name in text for name in SAFE)
