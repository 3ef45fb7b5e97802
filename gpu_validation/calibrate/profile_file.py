"""Raw calibration data → the files the model reads: one cost profile a model, and the suite's step program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_validation.calibrate.fit import fit
from sim.errors import InputError, Problem
from sim.ingest.files import write_profile, write_program
from sim.program.step_program import StepProgram

ENGINE = "suite"
#: the model whose profile has the plain name
MAIN_MODEL = "8b"


def device_slug(name: str) -> str:
    """``NVIDIA H200`` → ``h200``: the first word with a digit, else the whole name."""
    words = name.lower().split()
    word = next((w for w in words if any(c.isdigit() for c in w)), "-".join(words))
    return "".join(c for c in word if c.isalnum() or c == "-")


def profile_name(device: str, model: str) -> str:
    return f"{device}_{ENGINE}" + ("" if model == MAIN_MODEL else f"_{model}")


def pieces(raw: Path, kind: str) -> list[dict[str, Any]]:
    """Every finished piece of raw data of this kind by start and name. Raises InputError for broken files."""
    return [_piece(path) for path in sorted(raw.glob(f"{kind}-*.json"))]


def _piece(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError(
            Problem(
                f"{path}",
                "no JSON object",
                "a piece as the suite wrote it",
                "Delete the file and measure again; the other pieces are kept.",
            )
        ) from None


def write_calibration(
    raw: Path, program: StepProgram, name: str | None, into: Path, provenance: dict[str, str]
) -> list[Path]:
    """Writes ``into``/devices and ``into``/algorithms from all finished pieces in ``raw``; returns the files.

    Raises InputError where a model was not measured at all.
    """
    found = pieces(raw, "calibrate")
    primitives = [p for p in found if "samples" in p]
    models = [p for p in found if "batches" in p]
    if not primitives or not models:
        raise InputError(
            Problem(
                f"{raw}",
                f"{len(primitives)} pieces of primitives and {len(models)} of models",
                "at least one of each",
                "Run the calibration again; finished pieces are kept.",
            )
        )
    device = name or device_slug(primitives[0]["device"]["device"])
    facts = {**_facts(primitives), **provenance}
    written = []
    for model in dict.fromkeys(p["model"] for p in models):
        starts = [p for p in models if p["model"] == model]
        profile = fit(profile_name(device, model), program, starts, primitives, facts)
        path = into / "devices" / f"{profile.name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_profile(
            path, profile, "Written by `overlapsim gpu calibrate`; every cost is measured, none is adjusted."
        )
        written.append(path)
    path = into / "algorithms" / f"{program.algorithm}@{program.engine}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_program(
        path, program, "Written by `overlapsim gpu calibrate` from what the suite's worker declares."
    )
    return [*written, path]


def _facts(primitives: Sequence[dict[str, Any]]) -> dict[str, str]:
    dates = sorted(p["date"] for p in primitives)
    return {**{name: str(value) for name, value in primitives[0]["device"].items()}, "date": dates[-1]}
