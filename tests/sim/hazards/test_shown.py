"""Every command that answers a scenario says in the same breath whether it is safe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hazard_lab import SMALL

from sim.cli import main
from sim.hazards.text import line, verdict

SETTINGS = [x for k, v in SMALL.items() if k not in ("device", "engine") for x in ("--set", f"{k}={v}")]


def status(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    return exit_.value.code


def test_compare_names_the_unsafe_side_and_can_fail_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = ["compare", "toy_dF", "toy_dF", *SETTINGS, "--set-b", "barrier=unguarded"]
    assert status([*pair, "--json", str(tmp_path / "c.json")]) == 0
    shown = capsys.readouterr().out
    assert "B is unsafe: harmful: write_after_read on req_to_token" in shown
    assert "A is unsafe" not in shown
    written = json.loads((tmp_path / "c.json").read_text())
    assert {h["severity"] for h in written["a"]["hazards"]} == {"benign"}
    assert {h["severity"] for h in written["b"]["hazards"]} == {"benign", "harmful"}
    assert status([*pair, "--fail-on-hazard"]) == 1
    safe = ["compare", "toy_dF", "toy_dF", *SETTINGS, "--set-a", "barrier=unguarded", "--fail-on-hazard"]
    assert status(safe) == 0, "A is what one comes from"


def test_explain_says_it_and_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unsafe = [
        "explain",
        "toy_dF",
        *SETTINGS,
        "--set",
        "barrier=unguarded",
        "--json",
        str(tmp_path / "e.json"),
    ]
    assert status(unsafe) == 0
    assert "Shared buffers: UNSAFE: 3 harmful conflicts that nothing orders." in capsys.readouterr().out
    assert any(h["severity"] == "harmful" for h in json.loads((tmp_path / "e.json").read_text())["hazards"])


def test_a_result_of_an_earlier_version_is_shown_as_far_as_it_goes() -> None:
    old = {"buffer": "req_to_token", "kind": "write_after_read", "severity": "harmful", "count": 2}
    assert line(old) == "harmful: write_after_read on req_to_token, 2 times"
    assert verdict([old]) == "UNSAFE: 1 harmful conflict that nothing orders"
    assert verdict([]) == "safe: every shared access is ordered"
    assert verdict(None) == "not checked"
