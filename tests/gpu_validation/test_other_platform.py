"""The other platform's build of torch, as far as it can be told without one: the same calls, another order."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from walks import starts_in_process, status

from gpu_validation import settings
from gpu_validation.calibrate import measure
from sim.config.loader import load_profile

torch.set_num_threads(1)


def test_the_other_platforms_runtime_is_calibrated_through_the_same_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = replace(settings.STAND_IN, batches=(1, 2), validated={"tiny": (2,)}, visited_s=0.0)
    with starts_in_process() as patch:
        patch.setattr(torch.version, "hip", "7.0")
        patch.setattr(settings, "STAND_IN", small)
        patch.setattr(measure, "SECOND_VISIT_S", 0.0)
        assert status("calibrate", "--backend", "cpu", "--starts", "1", "--name", "b", "--into", "c") == 0
        profile = load_profile(str(tmp_path / "c" / "devices" / "b_suite_tiny.toml"))
        assert profile.platform == "hip"
        assert profile.provenance["runtime"] == "7.0"
        arguments = ("--backend", "cpu", "--starts", "1", "--configs", "c", "--device", "b")
        assert status("validate", *arguments, "--semantics", "hip") in (0, 1)
    found = json.loads((tmp_path / "gpu_validation_report" / "results.json").read_text())
    assert found["semantics"] == "hip"
    assert {keys["platform"] for keys in found["scenarios"].values()} == {"hip"}
    assert [cell["digests"] for cell in found["cells"]] == [1]
