"""Raw pieces of the stand-in as the suite writes them, made up: whole folders in no time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_validation import settings
from gpu_validation.calibrate.complete import own_sections
from gpu_validation.calibrate.host_costs import expected_sections
from gpu_validation.calibrate.measure import TIMED
from gpu_validation.calibrate.profile_file import ENGINE
from gpu_validation.configurations import CONFIGURATIONS
from gpu_validation.observe.segments import WHOLE
from gpu_validation.raw.forms import ALONE, PRIMITIVES
from gpu_validation.spec.declared import declared
from gpu_validation.starts import ASKED, Asked
from gpu_validation.validate.races import race_runs
from sim.files import json_text
from sim.program.step_program import Kind, StreamName

Json = dict[str, Any]
PROGRAM = declared("dflash", settings.STAND_IN.block, ENGINE)
FORWARD = [
    op.name
    for op in PROGRAM.operations
    if op.kind in (Kind.KERNEL, Kind.GRAPH, Kind.PUBLISH, Kind.STASH) and op.stream is StreamName.FORWARD
]
#: passes of a run, the prefill and those left out included
PASSES = 13


def about(start: int) -> Json:
    device = {"device": "cpu", "platform": "cpu"}
    return {"start": start, "seconds": 0.1, "device": device, "date": "2026-12-01"}


def primitives(start: int) -> Json:
    return {
        "samples": {name: [5.0, 6.0, 7.0] for name in PRIMITIVES},
        "host_us": [200.0, 200.0],
        **about(start),
    }


def record(batch: int, mode: str) -> Json:
    passes, segments = [], []
    for i in range(PASSES):
        names = own_sections(PROGRAM) if i == 0 else sorted(expected_sections(PROGRAM, mode))
        passes.append(
            {
                "rows": batch,
                "prefill": i == 0,
                "context": 10.0 + 3 * i,
                "entered_ns": 1_000 + 900_000 * i,
                "sections": dict.fromkeys(names, 5_000 + 10 * i),
            }
        )
        parts = ["prefill"] if i == 0 else [WHOLE] if i % 2 else FORWARD
        segments.append({name: (400.0 if name == WHOLE else 40.0) + i for name in parts})
    return {
        "concurrency": batch,
        "duration_ns": 20_000_000,
        "output_tokens": 51 * batch,
        "tokens_sha256": "a",
        "full_sha256": "b",
        "passes": passes,
        "segments_us": segments if mode in TIMED else [],
    }


def calibration(start: int, model: str = "tiny", batches: tuple[int, ...] = (1, 4)) -> Json:
    modes = ["as_is", "ahead", "woken", "fenced", "segments", "roomy"]
    return {
        "model": model,
        "algorithm": "dflash",
        "work": {},
        "batches": {
            str(batch): {
                "runs": [
                    {
                        "mode": mode,
                        "held_us": 0.0,
                        "host_us": [200.0, 200.0],
                        "repeated": 0,
                        "record": record(batch, mode),
                    }
                    for mode in modes
                    if mode != "roomy" or batch < batches[-1]
                ],
                "alone": {name: [5.0 + k, 6.0 + k] for k, name in enumerate(ALONE)},
            }
            for batch in batches
        },
        **about(start),
    }


def cell(start: int, concurrency: int) -> Json:
    return {
        "model": "tiny",
        "algorithm": "dflash",
        "concurrency": concurrency,
        "semantics": "cuda",
        "visits": [
            {
                "configuration": name,
                "cycles_ns": [2_000_000 + 1_000 * i for i in range(12)],
                "witness_us": [100.0] * 12,
                "contexts": [24.0 + 3 * i for i in range(12)],
                "duration_ns": 30_000_000,
                "output_tokens": 51 * concurrency,
                "tokens_sha256": "a",
                "full_sha256": "b",
                "sections_ns": {"process": 5_000},
                "host_us": [200.0, 200.0],
            }
            for name in CONFIGURATIONS
        ],
        "spans": {"forward_us": [1500.0] * 6, "contexts": [24.0] * 6},
        **about(start),
    }


def races() -> dict[str, Json]:
    """By name."""
    load = settings.STAND_IN_RACES
    row = {
        "rows": 2,
        "prompt": 3,
        "forward_us": 9.0,
        "rows_us": 9.0,
        "host_us": 9.0,
        "margin_us": -9.0,
        "torn": True,
    }
    found = {"primitives": primitives(0), "calibration": calibration(0, batches=load.calibration.batches)}
    for run in race_runs(load):
        found[run.name] = {
            "configuration": run.configuration,
            "requests": run.requests,
            "held_us": run.held_us,
            "steps": 99,
            "recycled": 1,
            "torn": 0,
            "wrong_requests": 0,
            "taken_over": {"columns": list(row), "rows": [list(row.values())]},
            **about(0),
        }
    return found


def folder(raw: Path, kind: str, starts: int = 1) -> Path:
    """Everything of ``kind`` in ``raw``."""
    raw.mkdir(parents=True)
    asked = Asked(kind, "cpu", "dflash", ("races",) if kind == "races" else ("tiny",), starts)
    (raw / ASKED).write_text(json_text(asked.settings()))
    for start in range(starts):
        if kind == "calibrate":
            made = {"primitives": primitives(start), "tiny": calibration(start)}
        elif kind == "validate":
            made = {f"tiny-c{c}": cell(start, c) for c in settings.STAND_IN.validated["tiny"]}
        else:
            made = races()
        for name, piece in made.items():
            (raw / f"{kind}-{start}-{name}.json").write_text(json.dumps(piece))
    return raw


def change(path: Path, how: Callable[[Json], object]) -> None:
    """Changes a piece in place; what ``how`` returns does not matter."""
    piece = json.loads(path.read_text())
    how(piece)
    path.write_text(json.dumps(piece))
