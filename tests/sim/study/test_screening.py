"""Studies answered by the second solver: what is written, and that the sample is really checked."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sim.cli import main
from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.maxplus.scenarios import screen_scenarios
from sim.study.screening import SAMPLE, check

STUDY = """
title = "Slower hosts"
question = "When does the host become the slower side?"
scenario = "toy_dF"
sections = ["cells"]

[[factors]]
name = "host"
keys = ["host_scale"]
values = [0.5, 1.0, 2.0, 4.0]

[[factors]]
name = "concurrency"
keys = ["workload.concurrency", "workload.requests"]
values = [1, 2, 3]

[[variants]]
name = "none"

[[variants]]
name = "exact"
set = { host_lengths = "exact" }
"""


def test_every_cell_is_answered_under_the_solvers_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.toml").write_text(STUDY)
    with pytest.raises(SystemExit) as ended:
        main(["study", str(tmp_path / "slow.toml"), "--solver", "screen", "--out", str(tmp_path / "out")])
    assert ended.value.code == 0
    assert f"{SAMPLE} of 24 cells re-run with the SimPy model as fixed batches: every cycle equal" in (
        capsys.readouterr().out
    )
    rows = list(csv.DictReader((tmp_path / "out" / "screen.csv").read_text().splitlines()))
    assert len(rows) == 24
    assert {row["solver"] for row in rows} == {"screen"}
    row = next(r for r in rows if (r["variant"], r["host"], r["concurrency"]) == ("exact", "2.0", "3"))
    overrides = {"host_lengths": "exact", "host_scale": 2.0, "workload.concurrency": 3}
    answer = screen_scenarios([load_resolved("toy_dF", overrides)])[0]
    assert float(row["cycle_us"]) == answer.cycle_us
    summary = json.loads((tmp_path / "out" / "screen.json").read_text())
    assert summary["cells"] == 24
    assert summary["agreement"]["largest_relative_difference"] == 0.0


def test_a_cost_that_grows_with_context_is_checked_at_the_context_of_the_answer() -> None:
    resolved = load_resolved("toy_dF", {"workload.concurrency": 3})
    grows = {
        "graph.target": Cost(value=(400.0, 500.0), per_context=(0.3, 0.9), batch=(1, 8), status="exact"),
        "graph.draft": Cost(value=100.0, per_context=(0.1, 0.2), batch=(1, 8), status="exact"),
        "kernel.append": Cost(value=20.0, per_context=0.25, within_sd=0.3, status="exact"),
    }
    profile = resolved.profile.model_copy(update={"costs": {**resolved.profile.costs, **grows}})
    scenarios = [replace(resolved, profile=profile)]
    agreement = check(scenarios, screen_scenarios(scenarios, 700.0), seed=1)
    assert agreement.checked[0].context == 700.0
    assert agreement.largest < 1e-6


def test_a_wrong_answer_shows_as_a_difference() -> None:
    scenarios = [load_resolved("toy_dF", {"host_scale": scale}) for scale in (1.0, 2.0)]
    answers = screen_scenarios(scenarios)
    wrong = [replace(answers[0], cycle_us=answers[0].cycle_us * 1.1), answers[1]]
    assert check(scenarios, answers, seed=1).largest == 0.0
    assert check(scenarios, wrong, seed=1).largest == pytest.approx(1 - 1 / 1.1)
