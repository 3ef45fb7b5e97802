"""The matrix of the device suite in little, from an empty folder to judged claims: every command and configuration.

What it asserts is the flow and the shape of what is written; timings of a stand-in mean nothing.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from walks import starts_in_process, status

from gpu_validation import settings, starts
from gpu_validation.calibrate import measure
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS
from sim.config.loader import load_profile, load_program
from sim.config.resolve import resolve
from sim.config.scenario import Scenario

torch.set_num_threads(1)

CONCURRENCIES = settings.STAND_IN.validated["tiny"]
VERDICTS = {"holds", "fails", "cannot_tell"}


class Killed(subprocess.Popen[bytes]):
    """A process start that is killed as soon as its first piece is finished."""

    def __init__(self, command: list[str], env: dict[str, str]):
        super().__init__(command, env=env)
        raw = Path(command[command.index("--raw") + 1])
        self._watch = threading.Thread(target=self._kill, args=(raw,))
        self._watch.start()

    def _kill(self, raw: Path) -> None:
        while self.poll() is None and not list(raw.glob("calibrate-*.json")):
            time.sleep(0.01)
        self.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._watch.join()
        return super().wait(timeout)


CALIBRATE = ("calibrate", "--backend", "cpu", "--starts", "1", "--name", "here", "--into", "configs")
VALIDATE = ("validate", "--backend", "cpu", "--starts", "2", "--configs", "configs", "--device", "here")


def test_a_killed_run_keeps_finished_pieces_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only one here whose process starts are processes."""
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(starts, "subprocess", types.SimpleNamespace(Popen=Killed))
        assert status(*CALIBRATE) == 2
    shown = capsys.readouterr().err
    assert "an end with signal 9" in shown
    assert "1 finished pieces are kept in gpu_calibration; the same command goes on from there" in shown
    first = tmp_path / "gpu_calibration" / "calibrate-0-primitives.json"
    before = first.read_bytes()
    assert list((tmp_path / "configs").rglob("*.toml")) == []
    assert status(*CALIBRATE) == 0
    assert first.read_bytes() == before
    assert {p.name for p in first.parent.glob("[!.]*")} == {"asked.json", first.name, "calibrate-0-tiny.json"}
    assert sorted(p.name for p in (tmp_path / "configs").rglob("*.toml")) == [
        "dflash@suite.toml",
        "here_suite_tiny.toml",
    ]


def test_the_matrix_from_an_empty_folder_to_judged_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One test, since its measurements are made once and take seconds."""
    monkeypatch.chdir(tmp_path)
    with starts_in_process() as patch:
        patch.setattr(settings, "STAND_IN", replace(settings.STAND_IN, visited_s=0.0))
        patch.setattr(measure, "SECOND_VISIT_S", 0.0)
        assert status(*CALIBRATE) == 0
        assert status(*VALIDATE) == 0  # whatever the verdicts: times of the stand-in prove nothing
        found = json.loads((tmp_path / "gpu_validation_report" / "results.json").read_text())
        a_calibration_is_complete(tmp_path)
        results_have_the_shape_others_rely_on(found)
        every_cell_claims_every_configuration_and_every_difference(found)
        assert found["fitted"] == [f"tiny-c{c}-{CALIBRATED}" for c in (1, 4)]  # no other batch was calibrated
        every_configuration_commits_the_same_tokens(found, tmp_path)
        odd_starts_visit_in_the_other_order(tmp_path)
        its_scenarios_can_be_resolved_again(found, tmp_path)
        the_report_comes_from_what_is_stored(found, tmp_path)
    measurements_of_another_question_are_refused_and_stay(tmp_path, capsys)


def a_calibration_is_complete(folder: Path) -> None:
    profile = load_profile(str(folder / "configs/devices/here_suite_tiny.toml"))
    program = load_program(str(folder / "configs/algorithms/dflash@suite.toml"), "suite")
    assert {cost.status for cost in profile.costs.values()} == {"measured"}
    assert all(cost.source for cost in profile.costs.values())
    needed = {op.host for op in program.operations if op.host} | {op.cost for op in program.operations}
    assert needed - {None, ""} <= set(profile.costs)
    assert profile.provenance["command"].startswith("overlapsim")
    assert {"device", "torch", "host", "date"} <= set(profile.provenance)


def results_have_the_shape_others_rely_on(found: dict[str, Any]) -> None:
    keys = {"scenario_a", "scenario_b", "predicted", "predicted_interval", "measured", "measured_interval"}
    keys |= {"id", "quantity", "tolerance", "verdict"}
    for claim in found["claims"]:
        assert keys <= set(claim), claim
        assert claim["verdict"] in VERDICTS
        assert claim["tolerance"] > 0
        assert claim["source"]
        if claim["measured_interval"] is None:  # on a busy machine starts may differ beyond all measure
            assert claim["error_interval"][0] <= -1
        else:
            low, high = claim["measured_interval"]
            assert low <= claim["measured"] <= high
    assert len({claim["id"] for claim in found["claims"]}) == len(found["claims"])


def every_cell_claims_every_configuration_and_every_difference(found: dict[str, Any]) -> None:
    claims = found["claims"]
    for concurrency in CONCURRENCIES:
        cell = f"tiny-c{concurrency}"
        for quantity in ("cycle_us", "throughput_tok_s"):
            named = [
                c["scenario_a"]
                for c in claims
                if c["quantity"] == quantity and c["id"].startswith(f"{cell}: ")
            ]
            assert named == [f"{cell}-{name}" for name in CONFIGURATIONS]
        pairs = {
            (c["scenario_a"].removeprefix(f"{cell}-"), c["scenario_b"].removeprefix(f"{cell}-"))
            for c in claims
            if c["quantity"] == "cycle_change" and c["id"].startswith(f"{cell}: ")
        }
        assert pairs == {
            ("unguarded", "unified_none"),
            ("unguarded", "coarse"),
            ("direct_bound", "unified_bound"),
            ("unified_none", "unified_exact"),
            ("unified_none", "unified_deferred"),
            ("unified_none", "plan_stream"),
        }


def every_configuration_commits_the_same_tokens(found: dict[str, Any], folder: Path) -> None:
    assert [cell["digests"] for cell in found["cells"]] == [1] * len(CONCURRENCIES)
    for concurrency in CONCURRENCIES:
        blocks = [
            json.loads((folder / "gpu_validation_raw" / f"validate-{s}-tiny-c{concurrency}.json").read_text())
            for s in (0, 1)
        ]
        visits = [visit for block in blocks for visit in block["visits"]]
        assert {visit["configuration"] for visit in visits} == set(CONFIGURATIONS)
        overlapped = [v for v in visits if v["configuration"] != "synchronous"]
        assert len({v["tokens_sha256"] for v in overlapped}) == 1
        assert len({tuple(v["contexts"]) for v in overlapped}) == 1  # iterations pair by index
        assert {v["output_tokens"] for v in visits} == {concurrency * settings.STAND_IN.output}


def odd_starts_visit_in_the_other_order(folder: Path) -> None:
    orders = []
    for start in (0, 1):
        block = json.loads((folder / "gpu_validation_raw" / f"validate-{start}-tiny-c1.json").read_text())
        orders.append([visit["configuration"] for visit in block["visits"]])
    assert orders == [list(CONFIGURATIONS), list(reversed(CONFIGURATIONS))]


def its_scenarios_can_be_resolved_again(found: dict[str, Any], folder: Path) -> None:
    keys = found["scenarios"]["tiny-c2-unified_exact"]
    assert keys["device"] == "here_suite_tiny"
    again = {
        **keys,
        "device": str(folder / "configs/devices/here_suite_tiny.toml"),
        "algorithm": str(folder / "configs/algorithms/dflash@suite.toml"),
    }
    assert str(resolve(Scenario.model_validate(again)).scenario.host_lengths) == "exact"
    assert set(found["scenarios"]) >= {c["scenario_a"] for c in found["claims"]}


def the_report_comes_from_what_is_stored(found: dict[str, Any], folder: Path) -> None:
    report = folder / "gpu_validation_report"
    before = {p.name: p.read_bytes() for p in (report / "figures").iterdir()}
    text = (report / "report.md").read_text()
    assert all(claim["id"] in text for claim in found["claims"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "subprocess", None)  # nothing may be started
        status(*VALIDATE, "--measured")
    assert json.loads((report / "results.json").read_text()) == found
    assert {p.name: p.read_bytes() for p in (report / "figures").iterdir()} == before


def measurements_of_another_question_are_refused_and_stay(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = folder / "gpu_validation_raw"
    before = {p.name: p.read_bytes() for p in raw.iterdir()}

    def refused(what: str, *more: str) -> None:
        capsys.readouterr()
        assert status(*VALIDATE, "--out", "other", *more) == 2
        shown = capsys.readouterr().err
        assert f"measurements made with another {what};" in shown
        assert "--fresh" in shown

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "subprocess", None)  # refused before anything is started
        for more in ((), ("--measured",)):
            refused("load", *more)  # the measured one had fewer visits
        patch.setattr(settings, "STAND_IN", replace(settings.STAND_IN, visited_s=0.0))
        patch.setattr(starts, "FORMAT", starts.FORMAT + 1)
        for more in ((), ("--measured",)):
            refused("format", *more)
    assert {p.name: p.read_bytes() for p in raw.iterdir()} == before
    assert list((folder / "other").iterdir()) == []
