"""What the scenarios of a study have to say about themselves, each note once."""

from __future__ import annotations

from sim.config.resolve import NONE_IS_BOUND
from sim.report.data import StudyData
from sim.report.text import joined


def notes(data: StudyData) -> list[str]:
    """Every distinct note with the variants it belongs to, then the variants that no combination allows.

    That two values of ``host_lengths`` are one point is said only where the study has both.
    """
    owners: dict[str, list[str]] = {}
    lengths = set()
    for row in data.rows:
        for note in row.result["notes"]:
            owners.setdefault(note, [])
            if row.variant not in owners[note]:
                owners[note].append(row.variant)
            if note == NONE_IS_BOUND:
                lengths.add(row.result["scenario"]["host_lengths"])
    if len(lengths) < 2:
        owners.pop(NONE_IS_BOUND, None)
    every = data.variants()
    said = [
        f"{note} ({'every variant' if len(names) == len(every) else joined(names)})"
        for note, names in owners.items()
    ]
    return said + [f"{name} is left out: refused everywhere ({reason})" for name, reason in _absent(data)]


def _absent(data: StudyData) -> list[tuple[str, str]]:
    reasons = {variant: reason for variant, _, reason in reversed(data.refused)}
    return [(v.name, reasons[v.name]) for v in data.study.variants if v.name not in data.variants()]
