"""The commands of the page on recording traces run as printed, one after another."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from sim.cli import main

ROOT = Path(__file__).parents[2]


def test_the_commands_run_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    page = (ROOT / "docs" / "recording_traces.md").read_text()
    block = re.findall(r"```sh\n(.*?)```", page, flags=re.S)[0]
    commands = [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]
    assert [c[1] for c in commands] == ["ingest", "run", "overlay", "run"]
    for program, *arguments in commands:
        assert program == "overlapsim"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code in (None, 0), capsys.readouterr().err
    assert "cycle at host state" in capsys.readouterr().out
    assert (
        max(abs(c["error"]) for c in json.loads((tmp_path / "mine.json").read_text())["self_check"]) < 0.005
    )
    assert (tmp_path / "both.json").stat().st_size < 20e6
