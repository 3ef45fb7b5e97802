"""Writes a study's report: Markdown, one HTML page, figures, results.json and the resolved scenarios."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from sim.files import write_atomically
from sim.report import html, markdown, style
from sim.report.build import build
from sim.report.data import IMAGES, StudyData

#: what `results.json` keeps of every cell
KEPT = (
    "throughput_tok_s",
    "cycle_us",
    "accepted_per_step",
    "tpot_ms",
    "gpu_busy_fraction",
    "host_busy_fraction",
    "exposed_host_us_per_step",
    "run_ahead_fraction",
    "barrier_fallback_fraction",
    "direct_carry_fraction",
    "idle_us_per_step",
    "critical_side",
    "mean_context",
    "iterations",
    "extrapolated",
)


def write(data: StudyData, folder: Path, jobs: int = 1) -> Path:
    """Writes into ``folder``, which exists; returns the report. Equal data give equal files.

    ``jobs``: processes that draw.
    """
    document = build(data)
    images = folder / IMAGES
    images.mkdir(exist_ok=True)
    figures = document.figures()
    Parallel(n_jobs=min(jobs, len(figures)) or 1)(
        delayed(style.save)(figure.draw, images, figure.name) for figure in figures
    )
    names = {f"{figure.name}.{suffix}" for figure in figures for suffix in ("png", "svg")}
    for name in sorted(_drawn_before(folder / "report.md") - names):
        (images / name).unlink(missing_ok=True)
    write_atomically(folder / "results.json", _results(data, document.verdict))
    write_atomically(folder / "resolved.json", _resolved(data))
    write_atomically(folder / "report.html", html.render(document, images))
    report = folder / "report.md"
    write_atomically(report, markdown.render(document))
    return report


def _drawn_before(report: Path) -> set[str]:
    """Figures of the report that is there already: of what else a folder holds nothing is ours to remove."""
    try:
        text = report.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return set()
    stems = re.findall(rf"\({IMAGES}/([\w.-]+)\.(?:png|svg)\)", text)
    return {f"{stem}.{suffix}" for stem in stems for suffix in ("png", "svg")}


def _results(data: StudyData, verdict: list[str]) -> str:
    head = {
        "study": data.name,
        "title": data.study.title,
        "question": data.study.question,
        "command": data.command,
        "version": data.version,
        "device": data.device,
        "study_sha256": data.study_sha256,
        "factors": data.factors,
        "reference": data.study.reference,
        "verdict": verdict,
        "measured": [{"variant": m.variant, **m.at, "cycle_us": m.cycle_us} for m in data.measured],
    }
    cells = [
        {"variant": row.variant, "at": row.at, "seed": row.result["seed"], **_kept(row.result)}
        for row in data.rows
    ]
    return _lines(head, "cells", cells)


def _kept(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in KEPT}


def _resolved(data: StudyData) -> str:
    """Every variant's resolved scenario at its first combination of factors; the factors' keys say the rest."""
    first = data.points()[0]
    scenarios_of = {row.variant: row for row in reversed(data.rows)}
    head = {"at": first, "factor_keys": {factor.name: factor.keys for factor in data.study.factors}}
    scenarios = [
        {
            "variant": v,
            **({} if scenarios_of[v].at == first else {"at": scenarios_of[v].at}),
            "scenario": scenarios_of[v].result["scenario"],
        }
        for v in data.variants()
    ]
    return _lines(head, "scenarios", scenarios)


def _lines(head: Mapping[str, Any], name: str, rows: list[dict[str, Any]]) -> str:
    """JSON with one row a line: readable, and small differences stay small."""
    text = json.dumps(head, indent=1, allow_nan=False, ensure_ascii=False)
    body = ",\n  ".join(json.dumps(row, allow_nan=False, ensure_ascii=False) for row in rows)
    return f'{text[:-2]},\n "{name}": [\n  {body}\n ]\n}}\n'
