"""The table of unprofiled timings: one row a run and concurrency, medians of the scheduler's own sections."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.config.checked import shown
from sim.errors import InputError, Problem
from sim.files import unreadable
from sim.ingest.host_state import HostStates, fit_states

#: columns the table must have; others are ignored
REQUIRED = (
    "engine",
    "configuration",
    "phase",
    "concurrency",
    "cycle_mean_us",
    "host_schedule_us",
    "host_run_batch_us",
    "host_process_result_us",
    "host_publish_us",
)
NUMBERS = (
    "concurrency",
    "cycle_mean_us",
    "cycle_median_us",
    "accepted_per_step",
    "throughput_tok_s",
    "wall_s",
    "tokens",
    "requests",
    "full_batch_cycles",
    "host_schedule_us",
    "host_run_batch_us",
    "host_process_result_us",
    "host_resolve_us",
    "host_publish_us",
)
GAUGE = "host_publish_us"
#: outside them is no figure of a run, in any column's unit
_SMALLEST, _LARGEST = 1e-6, 1e12


@dataclass(frozen=True)
class Row:
    engine: str
    configuration: str
    replicate: str
    phase: str
    figures: dict[str, float]

    def __getitem__(self, column: str) -> float:
        return self.figures[column]

    @property
    def batch(self) -> int:
        return round(self.figures["concurrency"])


def read_timings(path: Path) -> list[Row]:
    """All rows of a timings table.

    Raises:
        InputError: unreadable, missing columns, or figures that are no positive number (all named at once).
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or []
            given = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        found = unreadable(error)
        raise InputError(Problem(str(path), found, "a CSV table of timings", "Check the path.")) from error
    missing = [c for c in REQUIRED if c not in columns]
    if missing:
        raise InputError(
            Problem(
                f"{path}: header",
                f"no column {', '.join(missing)}",
                f"columns {', '.join(REQUIRED)}",
                "Medians over the full-batch iterations of each run, in microseconds.",
            )
        )
    problems, rows = [], []
    for line, entry in enumerate(given, start=2):
        figures = {}
        for column in NUMBERS:
            text = entry.get(column)
            if text is None or text == "":
                continue
            try:
                number = float(text)
            except ValueError:
                number = float("nan")
            low, high = (1.0, 1e6) if column == "concurrency" else (_SMALLEST, _LARGEST)
            if not low <= number <= high:
                expected = f"a positive number, {low:g} to {high:g}"
                problems.append(Problem(f"{path}:{line}: {column}", shown(text), expected))
            figures[column] = number
        for column in REQUIRED[3:]:
            if column not in figures:
                problems.append(Problem(f"{path}:{line}: {column}", "nothing", "a positive number"))
        rows.append(
            Row(
                entry["engine"] or "",
                entry["configuration"] or "",
                entry.get("replicate") or "1",
                entry["phase"] or "",
                figures,
            )
        )
    if not rows:
        problems.append(Problem(str(path), "no rows", "at least one run"))
    if problems:
        raise InputError(problems)
    return rows


@dataclass(frozen=True)
class Section:
    """Which rows' figure of a section is free of waits."""

    column: str
    configurations: tuple[str, ...]


def states_of(rows: list[Row], sections: dict[str, Section]) -> HostStates:
    """Joint fit of the rows' host states and the sections' costs over the batch (see :mod:`host_state`)."""

    def column(section: Section) -> NDArray[np.float64]:
        return np.array(
            [
                r.figures.get(section.column, np.nan) if r.configuration in section.configurations else np.nan
                for r in rows
            ]
        )

    columns = {name: column(section) for name, section in sections.items()}
    shown_by_rows = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    return fit_states(np.array([r["concurrency"] for r in rows]), shown_by_rows, "publish")
