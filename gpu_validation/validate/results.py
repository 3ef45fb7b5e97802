"""What a validation found, in the interface's shape: judged claims, their scenarios, the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_validation import settings
from gpu_validation.calibrate.profile_file import pieces, profile_name
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS
from gpu_validation.validate.agreement import Judged, judge
from gpu_validation.validate.measured import MeasuredCell, measured_cells
from gpu_validation.validate.predict import Predictions, scenario_keys
from sim.errors import InputError, Problem
from sim.version import package_version


def results(
    raw: Path,
    configs: Path,
    device: str,
    algorithm: str,
    load: settings.Load,
    command: str,
    starts: int | None = None,
) -> dict[str, Any]:
    """Judges what was measured in ``raw``; ``starts``: by the process starts below it alone. Raises InputError where
    that is nothing, or no calibration is there."""
    blocks = pieces(raw, "validate", starts)
    if not blocks:
        problem = Problem(
            f"{raw}",
            "no finished piece of a validation",
            "at least one",
            "Run the validation again with more time.",
        )
        raise InputError(problem)
    semantics = blocks[0]["semantics"]
    predictions = Predictions(configs, device, algorithm, load, semantics)
    cells = measured_cells(blocks, predictions.witness_us)
    judged = judge(cells, predictions)
    return {
        "command": command,
        "version": package_version(),
        "device": blocks[0]["device"],
        "semantics": semantics,
        "starts": len({b["start"] for b in blocks}),
        "date": max(b["date"] for b in blocks),
        "profiles": predictions.profiles,
        "fitted": [f"{m.cell.name}-{CALIBRATED}" for m in cells if m.cell.concurrency in load.batches],
        "scenarios": {
            f"{m.cell.name}-{name}": scenario_keys(
                m.cell, name, profile_name(device, m.cell.model), algorithm, load, semantics
            )
            for m in cells
            for name in CONFIGURATIONS
        },
        "cells": [_cell(m, judged, predictions) for m in cells],
        "claims": [j.to_json() for j in judged],
    }


def _cell(m: MeasuredCell, judged: Sequence[Judged], predictions: Predictions) -> dict[str, Any]:
    half_widths = [
        (j.compared.error_interval[1] - j.compared.error_interval[0]) / 2
        for j in judged
        if j.claim.cell == m.cell and j.claim.quantity == "cycle_us" and j.compared.error_interval is not None
    ]
    return {
        "name": m.cell.name,
        "model": m.cell.model,
        "concurrency": m.cell.concurrency,
        "context": round(m.context(CALIBRATED), 2),
        "starts": len(m.blocks),
        "cycles": m.cycles,
        "host_speed": round(m.speed, 4),
        "disturbed": m.disturbed,
        "digests": m.digests,
        "half_width": max(half_widths, default=None),
        "critical_side": predictions.result(m.cell, CALIBRATED)["critical_side"],
    }
