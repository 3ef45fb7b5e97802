"""Where results would go is looked at before anything is computed, in every command that writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from sim import files
from sim.cli import main
from sim.errors import InputError

TRACE = "tests/sim/ingest/traces/absent.json"
#: arguments of each command without the option under test, and the option
FILES = [
    (("run", "toy_dT"), "--json"),
    (("run", "toy_dT"), "--trace"),
    (("compare", "toy_dT", "toy_dF"), "--json"),
    (("explain", "toy_dT"), "--json"),
    (("explain", "toy_dT"), "--figure"),
    (("cases",), "--json"),
    (("ingest", TRACE), "--output"),
    (("ingest", TRACE, "-o", "p.toml"), "--json"),
    (("overlay", "toy_dT", TRACE), "--output"),
    (("study", "block_size"), "--export"),
]
FOLDERS = [(("study", "block_size"), "--out"), (("cases",), "--report")]
SUFFIX = {"--figure": ".svg", "--export": ".csv"}


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ran(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("computed before looking at its outputs")

    from sim import replication, run
    from sim.cases import ledger
    from sim.ingest import pipeline

    monkeypatch.setattr(replication.Replication, "run", ran)
    monkeypatch.setattr(run, "simulate", ran)
    monkeypatch.setattr(ledger, "predictions", ran)
    monkeypatch.setattr(pipeline, "ingest", ran)
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 2
    return capsys.readouterr().err


def target(option: str, name: str) -> str:
    return name + (".toml" if option == "--output" else SUFFIX.get(option, ".json"))


@pytest.mark.parametrize(("arguments", "option"), FILES)
def test_a_path_that_takes_no_file_is_refused(arguments, option, tmp_path, capsys, monkeypatch):
    folder = target(option, "folder")
    Path(folder).mkdir()
    assert f'{option}: found "{folder}", which is a folder' in refused(capsys, *arguments, option, folder)
    absent = target(option, "absent/file")
    assert f'{option}: found "{absent}", in no existing folder' in refused(capsys, *arguments, option, absent)
    monkeypatch.setattr(files, "_takes_files", lambda folder: False)
    name = target(option, "file")
    assert f'{option}: found "{name}", in a folder not writable' in refused(capsys, *arguments, option, name)


@pytest.mark.parametrize(("arguments", "option"), FOLDERS)
def test_a_path_that_takes_no_folder_is_refused(arguments, option, tmp_path, capsys, monkeypatch):
    Path("file").write_text("")
    for name in ("file", "file/below"):
        assert f'{option}: found "{name}": file is no folder' in refused(capsys, *arguments, option, name)
    Path("taken", "report.md").mkdir(parents=True)
    Path("taken", "figures").write_text("")
    said = refused(capsys, *arguments, option, "taken")
    assert f'{option}: found "taken/report.md", which is a folder' in said
    assert f'{option}: found "taken/figures", no writable folder' in said
    monkeypatch.setattr(files, "_takes_files", lambda folder: False)
    assert f'{option}: found "out", not writable' in refused(capsys, *arguments, option, "out")
    assert not Path("out").exists()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that not even root may write")
def test_what_the_file_system_refuses_is_found_out():
    for check, path in (
        (files.check_writable, Path("/proc/x.json")),
        (files.check_folder, Path("/proc/x/y")),
    ):
        with pytest.raises(InputError, match="not writable"):
            check(path, "--json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "toy_dT", "--json", "a", "--trace", "./a"), '--trace: found "a", which is --json too'),
        (("run", "s.toml", "--json", "s.toml"), '--json: found "s.toml", which is SCENARIO too'),
        (
            ("explain", "toy_dT", "--json", "a.svg", "--figure", "a.svg"),
            '--figure: found "a.svg", which is --json too',
        ),
        (("compare", "s.toml", "toy_dT", "--json", "s.toml"), '--json: found "s.toml", which is A too'),
        (("overlay", "toy_dT", "t.json", "-o", "t.json"), '--output: found "t.json", which is TRACE too'),
        (
            ("ingest", "t.json", "-o", "p.toml", "--json", "t.json"),
            '--json: found "t.json", which is TRACE t.json too',
        ),
        (
            ("ingest", "t.json", "-o", "p.toml", "--timings", "c.csv", "--json", "c.csv"),
            '--json: found "c.csv", which is --timings too',
        ),
        (("ingest", "t.json", "-o", "a@b.toml"), '--output: found "a@b.toml"; expected a name without @'),
        (
            ("study", "block_size", "--solver", "screen", "--export", "a.csv"),
            "--export: found a file with --solver screen",
        ),
        (
            ("study", "block_size", "block_size"),
            "which both write to reports/block_size",
        ),
    ],
)
def test_nothing_is_written_over_what_is_read_or_written_too(arguments, said, tmp_path, capsys):
    Path("s.toml").write_text('device = "toy"\n')
    assert said in refused(capsys, *arguments)


def test_a_trace_to_lay_over_is_read_before_anything_runs(tmp_path, capsys):
    Path("t.json").write_text("[]")
    said = refused(capsys, "overlay", "toy_dT", "t.json", "-o", "out.json")
    assert "t.json: found JSON without a traceEvents list" in said


def test_the_measured_file_of_a_study_is_read_before_anything_runs(tmp_path, capsys):
    from sim.config import paths

    text = (paths.folder("studies") / "conc_scaling.toml").read_text()
    assert "sglang_h200_cycles.csv" in text
    Path("mine.toml").write_text(text.replace("sglang_h200_cycles.csv", "absent.csv"))
    assert 'mine.toml: measured.file: found "absent.csv": no such file' in refused(
        capsys, "study", "mine.toml"
    )
