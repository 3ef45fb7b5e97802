"""The code of the documentation runs as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sim.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.S)


def test_the_python_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python_api.md", "python"):
        exec(compile(block, "python_api.md", "exec"), names)
    assert "frame" in names


def test_the_study_of_the_studies_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (study,) = blocks("studies.md", "toml")
    (tmp_path / "my_study.toml").write_text(study)
    with pytest.raises(SystemExit) as end:
        main(["study", "my_study.toml", "--out", "my_report", "--jobs", "1"])
    assert end.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "report: my_report/report.md"
    assert "**longer**" in (tmp_path / "my_report" / "report.md").read_text()


def test_the_algorithm_of_the_algorithms_page_runs_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (algorithm,) = blocks("algorithms.md", "toml")
    (tmp_path / "quick.toml").write_text(algorithm)
    (command,) = blocks("algorithms.md", "sh")
    words = shlex.split(command)
    assert words[0] == "overlapsim"
    with pytest.raises(SystemExit) as end:
        main([*words[1:], "--set", "workload.requests=64", "--replications", "3"])
    assert end.value.code == 0
    assert "verdict: B is" in capsys.readouterr().out
