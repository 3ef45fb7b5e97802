"""Measurements over several process starts: each start is a process of its own, one after the other.

Raw data lie in a folder, one file a finished piece, so that a run that was stopped or killed goes on where it ended.
The folder remembers what was asked; other questions need another folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_validation import settings
from gpu_validation.raw import KINDS, pieces, start_of
from sim.errors import InputError, Problem
from sim.files import check_folder, json_text, unreadable, write_atomically
from sim.lock import sole_writer

#: exit status of a program ended by Ctrl-C
INTERRUPTED = 130
#: name of the file that says what a folder of raw data holds
ASKED = "asked.json"
#: version of what pieces hold; to be raised whenever older pieces could no longer be read
FORMAT = 1
#: seconds a start needs before it measures anything
_LEAST_S = 5.0


@dataclass(frozen=True)
class Asked:
    """What is measured: ``kind`` calibrate, validate or races."""

    kind: str
    backend: str
    algorithm: str
    models: tuple[str, ...]
    starts: int
    #: platform whose order of operations is forced
    semantics: str = "cuda"

    @property
    def load(self) -> settings.Load:
        return settings.load_of(self.backend)

    def names(self, start: int) -> list[str]:
        """Files of all pieces of a start."""
        if self.kind == "races":
            from gpu_validation.validate.races import race_runs  # needs torch

            runs = race_runs(settings.races_of(self.backend))
            pieces = ["primitives", "calibration", *(run.name for run in runs)]
        elif self.kind == "calibrate":
            pieces = ["primitives", *self.models]
        else:
            pieces = [f"{m}-c{c}" for m in self.models for c in self.load.validated[m]]
        return [f"{self.kind}-{start}-{piece}.json" for piece in pieces]

    def missing(self, raw: Path) -> list[str]:
        """Files that are not there yet."""
        return [n for s in range(self.starts) for n in self.names(s) if not (raw / n).is_file()]

    def held(self, raw: Path) -> list[str]:
        """As :meth:`missing`, for a folder that is read only. Raises InputError as :meth:`check` does."""
        self.check(raw)
        return self.missing(raw)

    def settings(self) -> dict[str, Any]:
        """What pieces in one folder must share."""
        load = settings.races_of(self.backend) if self.kind == "races" else self.load
        return {
            "kind": self.kind,
            "backend": self.backend,
            "algorithm": self.algorithm,
            "semantics": self.semantics,
            "load": repr(load),
            "format": FORMAT,
        }

    def check(self, raw: Path) -> None:
        """Raises InputError if ``raw`` holds pieces of another question or of another version of the suite, pieces
        that nothing says the question of, or files between them that are none."""
        if not _pieces_in(raw):
            return
        held = _note(raw / ASKED)
        changed = ", ".join(k for k, v in self.settings().items() if held.get(k) != v)
        if changed:
            others = any(_pieces_in(raw, kind) for kind in KINDS if kind != self.kind)
            drop = "" if others else ", or drop those measurements with --fresh"
            raise InputError(
                Problem(
                    f"{raw}",
                    f"measurements made with another {changed}",
                    "a folder of the same question, or an empty one",
                    f"Name another folder with --raw{drop}.",
                )
            )
        self._check_names(raw)

    def _check_names(self, raw: Path) -> None:
        every = replace(self, models=tuple(self.load.validated))
        problems = []
        for path in _pieces_in(raw, self.kind):
            start = start_of(path)
            if start is None or path.name not in every.names(start):
                example = f"names as {every.names(0)[-1]}"
                problems.append(
                    Problem(
                        f"{path}", "a name that no piece of this question has", example, "Move it elsewhere."
                    )
                )
        if problems:
            raise InputError(problems)

    def beyond(self, raw: Path) -> list[int]:
        """Process starts in ``raw`` that were not asked for."""
        found = {start_of(path) for path in _pieces_in(raw, self.kind)}
        return sorted(start for start in found if start is not None and start >= self.starts)


def _pieces_in(raw: Path, *kinds: str) -> list[Path]:
    return sorted(path for kind in kinds or KINDS for path in raw.glob(f"{kind}-*.json"))


def _note(path: Path) -> dict[str, Any]:
    """What the pieces beside it answer."""
    try:
        # The first format's notes may not name it.
        return {"format": 1, **json.loads(path.read_text(encoding="utf-8"))}
    except OSError as error:
        found = unreadable(error)
        if isinstance(error, FileNotFoundError):
            found += " beside the pieces, so that nothing says what they answer"
    except (ValueError, TypeError, RecursionError):
        found = "no JSON object"
    remedy = "Start over with --fresh, or name another folder with --raw."
    raise InputError(Problem(f"{path}", found, "what the suite wrote there", remedy))


def models_of(given: str | None, backend: str) -> tuple[str, ...]:
    """Models by name, all of the backend's by default. Raises InputError naming the known ones."""
    known = settings.load_of(backend).validated
    names = tuple(given.split(",")) if given else tuple(known)
    wrong = [n for n in names if n not in known]
    if wrong:
        raise InputError(
            Problem("--models", f'"{wrong[0]}"', f"some of {', '.join(known)}, separated by commas")
        )
    return tuple(dict.fromkeys(names))


def measure(asked: Asked, raw: Path, budget_s: float, fresh: bool = False) -> list[str]:
    """Runs what is missing within the budget; returns the files still missing.

    Raises InputError when a process start ends badly, or the folder holds something else or is being measured into by
    another process; SystemExit on Ctrl-C.
    """
    check_folder(raw, "--raw", [ASKED])
    raw.mkdir(parents=True, exist_ok=True)
    with sole_writer(raw, "--raw"):
        _claim(raw, asked, fresh)
        deadline = time.time() + budget_s
        for start in range(asked.starts):
            left = deadline - time.time()
            if all((raw / name).is_file() for name in asked.names(start)) or left < _LEAST_S:
                continue
            print(f"start {start} of {asked.starts}, {left:.0f} s left", flush=True)
            _run(asked, raw, start, deadline)
    return asked.missing(raw)


def _claim(raw: Path, asked: Asked, fresh: bool) -> None:
    """Make ``raw`` this question's folder; damaged pieces are found before minutes are spent on more of them."""
    if fresh:
        others = _pieces_in(raw, *(kind for kind in KINDS if kind != asked.kind))
        if others:
            found, expected = (
                f"other measurements beside it: {others[0].name}",
                "a folder of the same question",
            )
            raise InputError(Problem(f"{raw}", found, expected, "Name another folder with --raw."))
        for path in _pieces_in(raw, asked.kind):
            path.unlink()
    asked.check(raw)
    pieces(raw, asked.kind)
    write_atomically(raw / ASKED, json_text(asked.settings()))


def _run(asked: Asked, raw: Path, start: int, deadline: float) -> None:
    command: Sequence[str] = [
        *(sys.executable, "-m", "gpu_validation.child", asked.kind),
        *("--raw", str(raw), "--start", str(start), "--deadline", f"{deadline:.0f}"),
        *("--backend", asked.backend, "--algorithm", asked.algorithm, "--models", ",".join(asked.models)),
        *("--semantics", asked.semantics),
    ]
    package = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH")) if p)
    child: subprocess.Popen[bytes] | None = None
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        if child is not None:
            child.send_signal(signal.SIGTERM)

    # The child inherits that Ctrl-C is ignored until it has a handler of its own: it goes to all processes of a
    # terminal, and what the parent sends on ends a child that is still loading.
    previous = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
        signal.signal(signal.SIGINT, stop)
        if stopped:
            child.send_signal(signal.SIGTERM)
        status = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if stopped:
        print(f"overlapsim: stopped; {_kept(raw, asked)}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if status == 2:  # the child has said why
        sys.exit(2)
    if status:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        raise InputError(
            Problem(
                f"process start {start}",
                f"an end with {how}",
                "a measurement that ends by itself",
                _kept(raw, asked),
            )
        )


def _kept(raw: Path, asked: Asked) -> str:
    finished = len(list(raw.glob(f"{asked.kind}-*.json")))
    return f"{finished} finished pieces are kept in {raw}; the same command goes on from there"
