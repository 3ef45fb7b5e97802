"""The matrix of the device suite in little, from an empty folder to judged claims: every command, every configuration.

What it asserts is the flow and the shape of what is written; timings of a stand-in mean nothing.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from walks import starts_in_process, status

from gpu_validation import settings, starts
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS
from sim.config.loader import load_profile, load_program
from sim.config.resolve import resolve
from sim.config.scenario import Scenario

# One calibration serves all of them.
pytestmark = pytest.mark.xdist_group("matrix")
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the commands are typed."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("matrix")
        patch.chdir(path)
        yield path


@pytest.fixture(scope="module")
def calibrated(folder: Path) -> dict[str, Any]:
    """A calibration in real processes, the first of them killed; what was seen on the way."""
    command = ("calibrate", "--backend", "cpu", "--starts", "1", "--name", "here", "--into", "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "subprocess", types.SimpleNamespace(Popen=Killed))
        killed = status(*command)
    raw = folder / "gpu_calibration"
    first = {p.name: p.read_bytes() for p in raw.glob("calibrate-*.json")}
    written = list((folder / "configs").rglob("*.toml"))
    resumed = status(*command)
    return {"killed": killed, "first": first, "written": written, "resumed": resumed, "raw": raw}


@pytest.fixture(scope="module")
def validated(calibrated: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``results.json`` of a validation over two process starts."""
    with starts_in_process() as patch:
        patch.setattr(settings, "STAND_IN", replace(settings.STAND_IN, visited_s=0.0))
        ended = status(
            *("validate", "--backend", "cpu", "--starts", "2", "--configs", "configs", "--device", "here")
        )
    found = json.loads((folder / "gpu_validation_report" / "results.json").read_text())
    fails = any(claim["verdict"] == "fails" for claim in found["claims"])
    assert ended == (1 if fails else 0)
    return dict(found)


def test_a_killed_run_keeps_finished_pieces_and_goes_on_from_there(calibrated: dict[str, Any]) -> None:
    assert calibrated["killed"] == 2
    assert list(calibrated["first"]) == ["calibrate-0-primitives.json"]
    assert calibrated["written"] == []
    assert calibrated["resumed"] == 0
    for name, content in calibrated["first"].items():
        assert (calibrated["raw"] / name).read_bytes() == content
    names = {p.name for p in calibrated["raw"].iterdir()}
    assert names == {"asked.json", "calibrate-0-primitives.json", "calibrate-0-tiny.json"}


def test_calibration_writes_a_profile_and_a_program_that_scenarios_can_name(
    calibrated: dict[str, Any], folder: Path
) -> None:
    written = sorted(str(p.relative_to(folder)) for p in (folder / "configs").rglob("*.toml"))
    assert written == ["configs/algorithms/dflash@suite.toml", "configs/devices/here_suite_tiny.toml"]
    profile = load_profile(str(folder / written[1]))
    program = load_program(str(folder / written[0]), "suite")
    assert {cost.status for cost in profile.costs.values()} == {"measured"}
    assert all(cost.source for cost in profile.costs.values())
    needed = {op.host for op in program.operations if op.host} | {op.cost for op in program.operations}
    assert needed - {None, ""} <= set(profile.costs)
    assert profile.provenance["command"].startswith("overlapsim")
    assert {"device", "torch", "host", "date"} <= set(profile.provenance)


def test_results_have_the_shape_others_rely_on(validated: dict[str, Any]) -> None:
    keys = {"scenario_a", "scenario_b", "predicted", "predicted_interval", "measured", "measured_interval"}
    keys |= {"id", "quantity", "tolerance", "verdict"}
    for claim in validated["claims"]:
        assert keys <= set(claim), claim
        assert claim["verdict"] in VERDICTS
        assert claim["tolerance"] > 0
        assert claim["source"]
        low, high = claim["measured_interval"]  # two starts: an interval
        assert low <= claim["measured"] <= high
    assert len({claim["id"] for claim in validated["claims"]}) == len(validated["claims"])


def test_every_cell_claims_every_configuration_and_every_difference(validated: dict[str, Any]) -> None:
    claims = validated["claims"]
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


def test_only_the_calibrated_configuration_at_calibrated_batches_is_called_a_fit(
    validated: dict[str, Any],
) -> None:
    assert validated["fitted"] == [f"tiny-c{c}-{CALIBRATED}" for c in (1, 4)]


def test_every_configuration_commits_the_same_tokens(validated: dict[str, Any], folder: Path) -> None:
    assert [cell["digests"] for cell in validated["cells"]] == [1] * len(CONCURRENCIES)
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


def test_odd_starts_visit_the_configurations_in_the_other_order(
    validated: dict[str, Any], folder: Path
) -> None:
    orders = []
    for start in range(validated["starts"]):
        block = json.loads((folder / "gpu_validation_raw" / f"validate-{start}-tiny-c1.json").read_text())
        orders.append([visit["configuration"] for visit in block["visits"]])
    assert orders == [list(CONFIGURATIONS), list(reversed(CONFIGURATIONS))]


def test_the_scenarios_of_the_results_can_be_simulated_again(validated: dict[str, Any], folder: Path) -> None:
    keys = validated["scenarios"]["tiny-c2-unified_exact"]
    assert keys["device"] == "here_suite_tiny"
    again = {
        **keys,
        "device": str(folder / "configs/devices/here_suite_tiny.toml"),
        "algorithm": str(folder / "configs/algorithms/dflash@suite.toml"),
    }
    resolved = resolve(Scenario.model_validate(again))
    assert str(resolved.scenario.host_lengths) == "exact"
    assert set(validated["scenarios"]) >= {c["scenario_a"] for c in validated["claims"]}


def test_the_report_comes_from_stored_results_and_needs_no_device(
    validated: dict[str, Any], folder: Path
) -> None:
    report = folder / "gpu_validation_report"
    before = {p.name: p.read_bytes() for p in (report / "figures").iterdir()}
    text = (report / "report.md").read_text()
    assert all(claim["id"] in text for claim in validated["claims"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "STAND_IN", replace(settings.STAND_IN, visited_s=0.0))
        patch.setattr(starts, "subprocess", None)  # nothing may be started
        arguments = ("--backend", "cpu", "--starts", "2", "--configs", "configs", "--device", "here")
        status("validate", *arguments, "--measured")
    again = json.loads((report / "results.json").read_text())
    assert again == validated
    assert {p.name: p.read_bytes() for p in (report / "figures").iterdir()} == before


def test_measurements_of_another_question_or_version_are_refused_and_stay(
    validated: dict[str, Any],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = folder / "gpu_validation_raw"
    before = {p.name: p.read_bytes() for p in raw.iterdir()}
    arguments = ("validate", "--backend", "cpu", "--configs", "configs", "--device", "here")
    arguments += ("--raw", str(raw), "--out", "other")
    monkeypatch.setattr(starts, "subprocess", None)  # refused before anything is started
    # The load is another one than the fixture's.
    for more in ((), ("--measured",)):
        assert status(*arguments, *more) == 2
        assert "measurements made with another load" in capsys.readouterr().err
    monkeypatch.setattr(settings, "STAND_IN", replace(settings.STAND_IN, visited_s=0.0))
    monkeypatch.setattr(starts, "FORMAT", starts.FORMAT + 1)
    for more in ((), ("--measured",)):
        assert status(*arguments, *more) == 2
        shown = capsys.readouterr().err
        assert "measurements made with another format" in shown
        assert "--fresh" in shown
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in raw.iterdir()} == before
    assert list((folder / "other").iterdir()) == []
