"""Raw calibration data → the files the model reads: one cost profile a model, and the suite's step program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_validation.calibrate.fit import fit
from gpu_validation.raw import pieces
from sim.errors import InputError, Problem
from sim.ingest.files import write_profile, write_program
from sim.program.step_program import StepProgram

__all__ = ["ENGINE", "device_slug", "pieces", "profile_name", "write_calibration"]

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


def write_calibration(
    raw: Path,
    program: StepProgram,
    name: str | None,
    into: Path,
    provenance: dict[str, str],
    batches: Sequence[int],
    starts: int | None = None,
) -> list[Path]:
    """Writes ``into``/devices and ``into``/algorithms from the finished pieces in ``raw``; returns the files.

    ``batches``: those that are calibrated; ``starts``: as :func:`gpu_validation.raw.pieces` has it. Raises InputError
    where a model was not measured at all or pieces lack something; then nothing is written.
    """
    found = pieces(raw, "calibrate", starts)
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
    profiles = []
    for model in dict.fromkeys(p["model"] for p in models):
        of_model = [p for p in models if p["model"] == model]
        profiles.append(fit(profile_name(device, model), program, of_model, primitives, facts, batches))
    written = []
    for profile in profiles:
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
