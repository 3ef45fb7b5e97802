"""Every combination from fastest to slowest, unsafe ones marked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sim.report.data import StudyData
from sim.report.document import Block, Figure, Section, Table
from sim.report.figures import ranking as figure
from sim.report.series import x_factor
from sim.report.text import percent, place, short


@dataclass(frozen=True)
class Ranked:
    """A combination: its cycle over the shortest of its x value, for every x value, and what makes it unsafe."""

    variant: str
    at: Mapping[str, Any]
    behind: list[float]
    #: harmful conflicts found, summed over the x values; None where nobody looked
    harmful: int | None

    @property
    def score(self) -> float:
        """Geometric mean of what it takes over the shortest."""
        return math.exp(math.fsum(math.log1p(b) for b in self.behind) / len(self.behind))


def ranked(data: StudyData) -> list[Ranked]:
    """Fastest first; combinations of which some x value was refused or too short are left out."""
    x = x_factor(data)
    values = data.factors[x] if x else [None]
    groups: dict[tuple[str, str], dict[Any, Mapping[str, Any]]] = {}
    places: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in data.rows:
        rest = {name: value for name, value in row.at.items() if name != x}
        key = (row.variant, place(rest))
        places[key] = rest
        groups.setdefault(key, {})[row.at[x] if x else None] = row.result
    complete = {key: results for key, results in groups.items() if _complete(results, values)}
    shortest = {v: min(float(r[v]["cycle_us"]["mean"]) for r in complete.values()) for v in values}
    out = []
    for (variant, _), results in complete.items():
        hazards = [results[v]["hazards"] for v in values]
        counts = [
            sum(h["count"] for h in found if h["severity"] == "harmful")
            for found in hazards
            if found is not None
        ]
        out.append(
            Ranked(
                variant,
                places[variant, _],
                [float(results[v]["cycle_us"]["mean"]) / shortest[v] - 1 for v in values],
                sum(counts) if len(counts) == len(values) else None,
            )
        )
    return sorted(out, key=lambda r: (round(r.score, 9), r.variant, place(r.at)))


def _complete(results: Mapping[Any, Mapping[str, Any]], values: list[Any]) -> bool:
    return all(v in results and results[v]["cycle_us"]["mean"] is not None for v in values)


def section(data: StudyData) -> Section:
    x = x_factor(data)
    values = data.factors[x] if x else [None]
    every = ranked(data)
    names = [name for name in data.factors if name != x]
    rows = []
    for i, r in enumerate(every, start=1):
        unsafe = (
            "not checked" if r.harmful is None else "safe" if not r.harmful else f"**unsafe** ({r.harmful})"
        )
        behind = [percent(b) for b in r.behind]
        rows.append([str(i), r.variant, *(short(r.at[name]) for name in names), *behind, unsafe])
    at = [f"behind at {x} {short(value)}" for value in values] if x else ["behind"]
    blocks: list[Block] = [
        "Cycle over the shortest one at the same point, by the geometric mean over all points. *Unsafe*: a run "
        "showed a conflict over a shared buffer that nothing ordered and that would corrupt something (how many).",
        Figure(
            "ranking",
            "Combinations from fastest to slowest, safe and unsafe ones in two colours",
            "How far each combination is behind the fastest, by its place; a panel a point.",
            partial(
                figure.draw,
                [f"{x} {short(value)}" if x else "" for value in values],
                [r.behind for r in every],
                [bool(r.harmful) for r in every],
            ),
        ),
        Table(["place", "variant", *names, *at, "safety"], rows),
    ]
    if data.refused:
        reasons: dict[str, int] = {}
        for _, _, reason in data.refused:
            reasons[reason] = reasons.get(reason, 0) + 1
        refused = [[reason, str(count)] for reason, count in sorted(reasons.items())]
        blocks.append(Table(["refused because of", "cells"], refused, "Combinations that are not legal"))
    return Section("Ranking", blocks)


def sentences(data: StudyData) -> list[str]:
    """The fastest safe combination, what the fastest unsafe one would gain, and how far the slowest is behind."""
    every = ranked(data)
    safe = [r for r in every if r.harmful == 0]
    unsafe = [r for r in every if r.harmful]
    if not safe:
        return ["No combination was found safe."]
    best = safe[0]
    slowest = max(max(r.behind) for r in every)
    out = [
        f"**Fastest safe combination**: {_named(best)}; the slowest of all {len(every)} takes up to "
        f"{slowest:.1%} more."
    ]
    if unsafe:
        gain = best.score / unsafe[0].score - 1
        out.append(
            f"**Unsafe combinations**: {len(unsafe)} of {len(every)}; the fastest of them ({_named(unsafe[0])}) "
            + (
                f"would gain {gain:.2%}."
                if gain > 1e-4
                else "gains less than 0.01 %: speed is no reason to be unsafe."
            )
        )
    return out


def _named(r: Ranked) -> str:
    return f"{r.variant}, {place(r.at)}" if r.at else r.variant
