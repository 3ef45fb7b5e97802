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
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_validation import settings
from sim.errors import InputError, Problem
from sim.files import check_folder, json_text, write_atomically

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
        """Raises InputError if ``raw`` holds pieces of another question or of another version of the suite."""
        note = raw / ASKED
        if not note.is_file() or not any(path.name != ASKED for path in raw.glob("*.json")):
            return
        try:
            # The first format's notes may not name it.
            held = {"format": 1, **json.loads(note.read_text(encoding="utf-8"))}
        except (ValueError, TypeError):
            raise InputError(
                Problem(f"{note}", "no JSON object", "what the suite wrote there", "Start over with --fresh.")
            ) from None
        changed = ", ".join(k for k, v in self.settings().items() if held.get(k) != v)
        if changed:
            raise InputError(
                Problem(
                    f"{raw}",
                    f"measurements made with another {changed}",
                    "a folder of the same question, or an empty one",
                    "Name another folder with --raw, or drop those measurements with --fresh.",
                )
            )


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

    Raises InputError when a process start ends badly or the folder holds something else; SystemExit on Ctrl-C.
    """
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
    """Make ``raw`` this question's folder."""
    check_folder(raw, "--raw", [ASKED])
    raw.mkdir(parents=True, exist_ok=True)
    if fresh:
        for path in raw.glob(f"{asked.kind}-*.json"):
            path.unlink()
    else:
        asked.check(raw)
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
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        child.send_signal(signal.SIGTERM)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
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
