"""What goes wrong before or during a measurement: said in a line, status 2, nothing half-written."""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import types
from collections.abc import Mapping
from pathlib import Path

import fabricated
import pytest
import torch
from walks import start, starts_in_process, status

from gpu_validation import device, settings, starts
from gpu_validation.device.guard import needed_bytes
from gpu_validation.device.stand_in import StandIn
from gpu_validation.runtime.shapes import SHAPES
from gpu_validation.runtime.sizes import Sizes
from gpu_validation.starts import Asked
from sim.errors import InputError
from sim.files import json_text

torch.set_num_threads(1)
GIB = 2**30
COMMANDS = ("probe", "calibrate", "validate", "races")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pieces(folder: Path) -> list[str]:
    """Files in the folder, notes of what was asked left out."""
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and p.name != "asked.json")


# -- torch and the device -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_without_torch_every_command_names_the_extra(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert status(command) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no torch in this environment" in shown.err
    assert 'pip install "overlapsim[gpu]"' in shown.err
    assert "Traceback" not in shown.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "error", [ImportError("libcudart.so.12: cannot open"), OSError("libtorch.so: bad ELF")]
)
def test_a_broken_torch_is_no_missing_one(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = builtins.__import__

    def failing(name: str, *more: object, **named: object) -> object:
        if name == "torch":
            raise error
        return plain(name, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", failing)
    assert status("probe") == 2
    assert f"a torch that cannot be imported ({error})" in capsys.readouterr().err


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a build of torch for the CPU alone, or without a driver."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_gpu_every_command_says_what_torch_sees(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ("--into", "configs") if command == "calibrate" else ()
    with starts_in_process():
        assert status(command, *into) == 2
    shown = capsys.readouterr().err
    assert f"torch {torch.__version__}, which sees no GPU" in shown
    assert "--backend cpu" in shown
    assert "Traceback" not in shown
    assert pieces(folder) == []


@pytest.mark.usefixtures("no_gpu")
def test_a_failed_start_leaves_no_claim_on_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was measured, so the next question may use it."""
    with starts_in_process() as patch:
        assert status("calibrate", "--into", "configs") == 2
        patch.setattr(starts, "_run", lambda *_: None)
        assert status("calibrate", "--backend", "cpu", "--into", "configs") == 2
    assert "at least one of each" in capsys.readouterr().err


class Busy(StandIn):
    """A stand-in that claims to be a device of 16 GiB."""

    real = True
    name = "a small device"


def on_a_device(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    total = 16 * GIB
    monkeypatch.setattr(device, "open_backend", lambda name: Busy())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, total))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    properties = types.SimpleNamespace(total_memory=total)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


@pytest.mark.parametrize("command", ["calibrate", "validate", "races"])
def test_a_device_that_others_use_is_refused(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_device(monkeypatch, free=9 * GIB)
    into = ("--into", "configs") if command == "calibrate" else ()
    with starts_in_process():
        assert status(command, *into) == 2
    shown = capsys.readouterr().err
    assert "7.0 GiB of a small device in use by other processes" in shown
    assert "CUDA_VISIBLE_DEVICES" in shown
    assert pieces(folder) == []


def test_a_model_that_does_not_fit_is_refused_before_it_is_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_device(monkeypatch, free=15 * GIB)
    with starts_in_process():
        assert status("validate", "--models", "8b") == 2
    shown = capsys.readouterr().err
    assert "15.0 GiB free on a small device" in shown
    assert "for the 8b model" in shown
    assert "--models" in shown
    assert pieces(folder) == []


def test_the_memory_a_model_needs_holds_its_weights_and_every_row() -> None:
    sizes = Sizes(64, 128, 256, (64,))
    needed = {name: needed_bytes(SHAPES[name], sizes, 16) / GIB for name in ("8b", "1.7b", "0.6b")}
    assert needed["8b"] > needed["1.7b"] > needed["0.6b"]
    # 36 + 5 layers of 4,096 and a vocabulary of 152 thousand, twice: 17.6 GiB of bf16 weights; 448 positions a row.
    assert SHAPES["8b"].weight_bytes / GIB == pytest.approx(17.6, abs=0.8)
    assert SHAPES["8b"].kv_bytes_per_token == 2 * 41 * 8 * 128 * 2
    assert needed["8b"] > (SHAPES["8b"].weight_bytes + 64 * 448 * SHAPES["8b"].kv_bytes_per_token) / GIB


# -- runs that end early ------------------------------------------------------------------------------------------


def test_ctrl_c_stops_the_start_and_says_what_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Endless:
        """Runs until it is asked to stop."""

        def __init__(self, command: list[str], env: Mapping[str, str]):
            self.sent: list[int] = []

        def send_signal(self, number: int) -> None:
            self.sent.append(number)

        def wait(self) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            assert self.sent == [signal.SIGTERM]
            return starts.INTERRUPTED

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(starts, "subprocess", types.SimpleNamespace(Popen=Endless))
    assert status("calibrate", "--backend", "cpu", "--into", "configs") == 130
    assert "0 finished pieces are kept in gpu_calibration" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert pieces(folder) == []


def test_a_budget_that_ends_leaves_the_rest_for_the_next_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1: what was asked for is not all there."""
    run: list[int] = []

    def one_piece(asked: Asked, raw: Path, number: int, deadline: float) -> None:
        run.append(number)
        (raw / asked.names(number)[0]).write_text(json.dumps(fabricated.cell(number, 1)))

    monkeypatch.setattr(starts, "_run", one_piece)
    asked = Asked("validate", "cpu", "dflash", ("tiny",), 2)
    missing = starts.measure(asked, folder / "raw", 100)
    assert run == [0, 1]
    assert missing == [f"validate-{s}-tiny-c{c}.json" for s in (0, 1) for c in (2, 4)]
    assert starts.measure(asked, folder / "raw", 1) == missing  # too little time for anything
    assert run == [0, 1]


def test_past_its_deadline_a_start_measures_nothing(folder: Path) -> None:
    (folder / "raw").mkdir()
    given = ("--raw", "raw", "--start", "0", "--backend", "cpu", "--models", "tiny", "--deadline", "0")
    for kind in ("calibrate", "validate"):
        assert start(kind, *given) == 0
    assert pieces(folder) == []


# -- folders and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("calibrate", "--backend", "cpu", "--models", "tiny,huge"),
            '--models: found "huge"; expected some of tiny',
        ),
        (("validate", "--backend", "torch", "--models", "tiny"), '"tiny"; expected some of 8b, 1.7b, 0.6b'),
        (
            ("calibrate", "--backend", "cpu", "--algorithm", "ngram"),
            '--algorithm: found "ngram"; expected one of',
        ),
        (
            ("validate", "--backend", "cpu", "--algorithm", "none"),
            "an algorithm whose lengths the device publishes",
        ),
        (
            ("races", "--backend", "cpu", "--algorithm", "none"),
            "an algorithm whose lengths the device publishes",
        ),
        (
            ("races", "--backend", "cpu", "--algorithm", "ngram"),
            '--algorithm: found "ngram"; expected one of',
        ),
        (("calibrate", "--backend", "cpu", "--raw", "file/raw"), "--raw"),
        (("calibrate", "--backend", "cpu", "--into", "file"), "--into"),
        (("validate", "--backend", "cpu", "--out", "file"), "--out"),
        (("validate", "--backend", "cpu", "--measured"), "no finished piece of a validation"),
        (
            ("calibrate", "--backend", "cpu", "--into", "c", "--measured"),
            "0 pieces of primitives and 0 of models",
        ),
        (("races", "--backend", "cpu", "--measured"), "no finished race run"),
    ],
)
def test_wrong_options_are_named_before_anything_starts(
    arguments: tuple[str, ...],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setattr(starts, "subprocess", None)
    assert status(*arguments) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert pieces(folder) == ["file"]


def test_without_a_calibration_a_validation_says_what_to_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fabricated.folder(folder / "gpu_validation_raw", "validate")
    (folder / "configs").mkdir()
    assert status("validate", "--backend", "cpu", "--measured", "--configs", "configs", "--device", "x") == 2
    shown = capsys.readouterr().err
    assert "x_suite_tiny.toml: found no such file" in shown
    assert "Calibrate first" in shown
    assert list((folder / "gpu_validation_report").iterdir()) == []


def test_without_a_calibration_a_validation_measures_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes of device time would be spent on what cannot be judged."""
    monkeypatch.setattr(starts, "subprocess", None)
    (folder / "configs").mkdir()
    assert status("validate", "--backend", "cpu", "--configs", "configs", "--device", "x") == 2
    shown = capsys.readouterr().err
    assert "x_suite_tiny.toml: found no such file" in shown
    assert "Calibrate first" in shown
    assert pieces(folder) == []


@pytest.mark.parametrize(
    ("command", "option", "blocked"),
    [
        ("calibrate", "--into", "devices"),
        ("validate", "--out", "figures"),
        ("validate", "--out", "results.json"),
        ("races", "--out", "report.md"),
        ("races", "--out", "profile.toml"),
    ],
)
def test_a_folder_that_cannot_take_the_result_is_refused_before_anything_starts(
    command: str,
    option: str,
    blocked: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(starts, "subprocess", None)
    target = folder / "target" / blocked
    target.parent.mkdir()
    if blocked in ("devices", "figures"):  # a file where a folder goes
        target.write_text("")
    else:
        target.mkdir()
    assert status(command, "--backend", "cpu", option, "target") == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"overlapsim: {option}: ")
    assert blocked in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_broken_files_among_the_raw_data_are_named(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = fabricated.folder(folder / "raw", "calibrate")
    (raw / "calibrate-0-tiny.json").write_text(text, encoding="latin-1")
    arguments = ("calibrate", "--backend", "cpu", "--raw", "raw", "--into", "c", "--measured")
    assert status(*arguments) == 2
    assert "calibrate-0-tiny.json: found no JSON object" in capsys.readouterr().err
    (raw / starts.ASKED).write_text(text, encoding="latin-1")
    assert status(*arguments) == 2
    shown = capsys.readouterr().err
    assert "asked.json: found no JSON object" in shown
    assert "--fresh" in shown
    assert list((folder / "c").rglob("*.toml")) == []


def test_measurements_with_other_settings_are_kept_until_dropped_on_purpose(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(starts, "_run", lambda *_: None)
    raw = folder / "raw"
    raw.mkdir()
    asked = Asked("calibrate", "cpu", "none", ("tiny",), 1)
    (raw / starts.ASKED).write_text(json_text(asked.settings()))
    (raw / "calibrate-0-tiny.json").write_text('{"old": 1}')
    arguments = ("calibrate", "--backend", "cpu", "--raw", "raw", "--into", "c")
    assert status(*arguments) == 2
    assert "measurements made with another algorithm" in capsys.readouterr().err
    assert pieces(raw) == ["calibrate-0-tiny.json"]
    assert status(*arguments, "--fresh") == 2  # nothing is measured here, so nothing is there
    assert pieces(raw) == []
    assert json.loads((raw / starts.ASKED).read_text())["algorithm"] == "dflash"


@pytest.mark.parametrize("more", [(), ("--measured",)])
def test_pieces_that_nothing_says_the_question_of_are_not_used(
    more: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = fabricated.folder(folder / "raw", "calibrate")
    (raw / starts.ASKED).unlink()
    assert status("calibrate", "--backend", "cpu", "--raw", "raw", "--into", "c", *more) == 2
    shown = capsys.readouterr().err
    assert "asked.json: found no such file beside the pieces" in shown
    assert "--fresh" in shown


def test_damaged_pieces_are_found_before_more_are_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(starts, "subprocess", None)
    raw = fabricated.folder(folder / "raw", "calibrate")
    (raw / "calibrate-0-tiny.json").write_text("{}")
    assert status("calibrate", "--backend", "cpu", "--raw", "raw", "--into", "c") == 2
    assert "calibrate-0-tiny.json: found start is not there" in capsys.readouterr().err


def test_fresh_drops_no_measurements_of_another_kind(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = fabricated.folder(folder / "raw", "calibrate")
    there = pieces(raw)
    (folder / "configs").mkdir()
    asked = Asked("validate", "cpu", "dflash", ("tiny",), 1)
    for fresh, message in ((False, "another kind"), (True, "other measurements beside it: calibrate-0-")):
        with pytest.raises(InputError, match=message) as refusal:
            starts.measure(asked, raw, 100, fresh)
        assert "--fresh" not in str(refusal.value)
    assert pieces(raw) == there


def test_one_command_at_a_time_measures_into_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal ones would do everything twice, two different ones would mix their pieces."""
    second: list[str] = []

    def meanwhile(asked: Asked, raw: Path, number: int, deadline: float) -> None:
        for kind in ("calibrate", "validate"):
            with pytest.raises(InputError) as refusal:
                starts.measure(Asked(kind, "cpu", "dflash", ("tiny",), 1), raw, 100)
            second.append(str(refusal.value))

    monkeypatch.setattr(starts, "_run", meanwhile)
    starts.measure(Asked("calibrate", "cpu", "dflash", ("tiny",), 1), folder / "raw", 100)
    assert len(second) == 2
    assert all(text.startswith("--raw: found ") and "another" in text for text in second)


def test_the_settings_of_a_folder_hold_the_load_to_the_last_number() -> None:
    asked = Asked("validate", "torch", "dflash", ("8b",), 1)
    assert repr(settings.DEVICE) == asked.settings()["load"]
    assert asked.settings()["format"] == starts.FORMAT
    assert Asked("races", "torch", "dflash", ("races",), 1).settings()["load"] == repr(settings.RACES)
