"""``overlapsim study`` as typed: output, exit status, killed and gone on."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cli import main

Write = Callable[..., str]


def run(*arguments: str) -> int:
    try:
        main(["study", *arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_it_ends_by_naming_the_report_it_wrote(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(write_study(), "--out", str(out), "--jobs", "1") == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {out / 'report.md'}"
    assert (out / "report.md").is_file()


def test_several_studies_get_a_folder_each(write_study: Write, tmp_path: Path) -> None:
    first = Path(write_study())
    second = first.with_name("other.toml")
    second.write_text(first.read_text())
    assert run(str(first), str(second), "--out", str(tmp_path / "out"), "--jobs", "1") == 0
    assert (tmp_path / "out" / "small" / "report.md").is_file()
    assert (tmp_path / "out" / "other" / "report.md").is_file()


def test_names_are_drawn_as_they_are_and_no_figure_takes_another_s_place(
    write_study: Write, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    name = write_study(
        ('name = "coarse"', "name = 'a $\\bad{$ b'"),
        ('name = "exact"', 'name = "A_bad_B"'),
        ('sections = ["cells"]', 'sections = ["differences", "timelines"]'),
    )
    assert run(name, "--out", str(out), "--jobs", "1") == 0
    figures = {path.name for path in (out / "figures").glob("timeline*.svg")}
    assert figures == {"timeline_a_bad_b.svg", "timeline_a_bad_b_2.svg", "timeline_as_declared.svg"}
    assert "a $\\bad{$ b" in (out / "figures" / "timeline_a_bad_b.svg").read_text()
    assert all(f"figures/{figure}" in (out / "report.md").read_text() for figure in figures)


def test_a_name_that_no_legend_holds_is_refused(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_study(('name = "coarse"', f'name = "{"n" * 81}"'))
    assert run(name, "--out", str(tmp_path / "out")) == 2
    assert "variants[1].name: found" in (said := capsys.readouterr().err)
    assert "expected text of at most 80 characters" in said


def test_resuming_a_finished_study_computes_nothing_and_writes_the_same(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(write_study(), "--out", str(out), "--jobs", "1")
    before = (out / "report.md").read_bytes()
    capsys.readouterr()
    run(write_study(), "--out", str(out), "--jobs", "1", "--resume")
    assert "0 runs computed, 9 found stored" in capsys.readouterr().err
    assert (out / "report.md").read_bytes() == before


def test_a_grown_study_computes_only_what_is_new(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(write_study(), "--out", str(out), "--jobs", "1")
    capsys.readouterr()
    run(write_study(("[1, 2]", "[1, 2, 3]")), "--out", str(out), "--jobs", "1", "--resume")
    assert "3 runs computed, 9 found stored" in capsys.readouterr().err


def test_every_problem_of_every_study_is_named_and_nothing_is_written(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    name = write_study(('barrier = "coarse"', 'barrier = "corse"'))
    assert run(name, "no_such_study", "--out", str(out)) == 2
    said = capsys.readouterr().err
    assert "corse" in said
    assert "no_such_study" in said
    assert not out.exists()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(write_study(), "--out", str(tmp_path / "file" / "out")) == 2
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("executor", ["slurm:here", "dask:", "dask", "locally"])
def test_an_executor_that_is_none_is_refused(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], executor: str
) -> None:
    assert run(write_study(), "--out", str(tmp_path / "out"), "--executor", executor) == 2
    assert f'--executor: found "{executor}"' in capsys.readouterr().err


def test_foreign_results_are_refused_and_left_as_they_are(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "results.sqlite").write_text("precious")
    assert run(write_study(), "--out", str(out)) == 2
    assert "no readable results file" in capsys.readouterr().err
    assert (out / "results.sqlite").read_text() == "precious"


def _stored(path: Path) -> int:
    if not path.exists() or not path.stat().st_size:
        return 0
    db = sqlite3.connect(path, timeout=10)
    try:
        return int(db.execute("SELECT count(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:  # no table yet
        return 0
    finally:
        db.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_in_the_middle_it_goes_on_from_there(
    write_study: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: signal.Signals
) -> None:
    out = tmp_path / "out"
    values = ", ".join(str(n) for n in range(1, 21))
    name = write_study(
        ("[1, 2]", f"[{values}]"),
        ('"run.replications" = 2', '"workload.output_tokens" = 400'),
    )
    command = [sys.executable, "-m", "sim.cli", "study", name, "--out", str(out), "--jobs", "2"]
    log = tmp_path / "stderr.txt"
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr, stdout=stderr, start_new_session=True)
    try:
        while _stored(out / "results.sqlite") < 5 and process.poll() is None:
            time.sleep(0.02)
        # As a terminal does: Ctrl-C reaches the worker processes too.
        (os.kill if how is signal.SIGKILL else os.killpg)(process.pid, how)
        process.wait(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers left behind
    said = log.read_text()
    kept = _stored(out / "results.sqlite")
    total = 3 * 20 + 3
    assert 5 <= kept < total
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert "go on with --resume" in said
        assert "Traceback" not in said
    assert not (out / "report.md").exists()
    assert run(name, "--out", str(out), "--jobs", "2", "--resume") == 0
    assert f"{total - kept} runs computed, {kept} found stored" in capsys.readouterr().err
    assert _stored(out / "results.sqlite") == total
