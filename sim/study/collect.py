"""Everything a report may show, read from the store and from nowhere else."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.config import paths
from sim.config.checked import shown
from sim.errors import InputError, Problem
from sim.files import unreadable
from sim.report.data import MeasuredRow, Row, StudyData
from sim.study.plan import Plan, values_of
from sim.study.spec import Measured, StudySpec, Variant
from sim.study.store import Store


def collect(plan: Plan, store: Store, command: str) -> StudyData:
    """The stored results of a study. Raises KeyError if one is missing, InputError for its measured file."""
    study = plan.study
    # Cells that are one scenario share a result; what each had filled in, and why, is its own.
    rows = [
        Row(
            cell.variant,
            dict(cell.at),
            {
                **store.get(cell.key),
                "scenario": cell.resolved.to_json(),
                "notes": list(cell.resolved.notes),
            },
        )
        for cell in plan.cells
    ]
    first = plan.cells[0].resolved
    return StudyData(
        name=plan.name,
        study=study,
        study_sha256=plan.sha256,
        command=command,
        version=store.version,
        device={
            "name": first.profile.name,
            "sha256": first.profile_sha256,
            "status": first.profile.status,
            "description": first.profile.description,
            "provenance": first.profile.provenance,
        },
        factors={factor.name: values_of(factor) for factor in study.factors},
        rows=rows,
        timelines={cell.variant: (dict(cell.at), store.get(cell.key)) for cell in plan.traced},
        refused=plan.refused,
        measured=read_measured(study, plan.path),
    )


def read_measured(study: StudySpec, path: Path) -> list[MeasuredRow]:
    """Measured cycles of the study's variants, none where it names no file.

    Raises InputError if the file does not hold what the study says.
    """
    measured = study.measured
    if measured is None:
        return []
    beside = path.parent / measured.file
    file = beside if beside.is_file() else paths.folder("data") / measured.file
    where = f"{path.name}: measured.file"
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.DictReader(stream))
    except (OSError, ValueError, csv.Error) as error:
        found = f'"{measured.file}": {unreadable(error)}'
        raise InputError(Problem(where, found, "a CSV beside the study or in configs/data")) from None
    columns = {measured.cycle_us, *measured.where, *measured.factors.values()}
    columns |= {column for v in study.variants for column in v.measured or {}}
    missing = columns - set(lines[0] if lines else {})
    if missing:
        found = f'"{measured.file}" without the column {", ".join(sorted(missing))}'
        raise InputError(Problem(where, found, "every column the study names"))
    rows = []
    for variant in study.variants:
        if variant.measured is not None:
            rows += [
                _row(measured, variant, line, where) for line in lines if _matches(measured, variant, line)
            ]
    return rows


def _matches(measured: Measured, variant: Variant, line: Mapping[str, str]) -> bool:
    wanted = {**measured.where, **(variant.measured or {})}
    return all(line[column] == str(value) for column, value in wanted.items())


def _row(measured: Measured, variant: Variant, line: Mapping[str, str], where: str) -> MeasuredRow:
    try:
        at: dict[str, Any] = {name: int(line[column]) for name, column in measured.factors.items()}
        return MeasuredRow(variant.name, at, float(line[measured.cycle_us]))
    except (TypeError, ValueError):
        columns = (*measured.factors.values(), measured.cycle_us)
        found = ", ".join(f"{column} = {shown(line[column])}" for column in columns)
        expected = "whole numbers for factors and a number for the cycle"
        raise InputError(Problem(f"{where}, {measured.file}", found, expected)) from None
