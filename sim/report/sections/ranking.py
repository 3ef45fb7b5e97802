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
from sim.report.quantity import WHY, Quantity, deciding
from sim.report.series import x_factor
from sim.report.text import percent, place, short

#: variant, and the factors beside x in words
_Key = tuple[str, str]
#: x value -> result
_Results = Mapping[Any, Mapping[str, Any]]


@dataclass(frozen=True)
class Ranked:
    """A combination: how far it is behind the best of its x value, for every x value, and what makes it unsafe.

    Behind by the cycle over the shortest one, or, where tokens a step differ, by the highest throughput over its own.
    """

    variant: str
    at: Mapping[str, Any]
    behind: list[float]
    #: harmful conflicts found, summed over the x values; None where nobody looked
    harmful: int | None

    @property
    def score(self) -> float:
        """Geometric mean of what it takes over the best."""
        return math.exp(math.fsum(math.log1p(b) for b in self.behind) / len(self.behind))


def ranked(data: StudyData) -> list[Ranked]:
    """Fastest first; combinations of which some x value was refused or too short are left out."""
    values, complete, places = _combinations(data)
    quantity = _told_by(values, complete)
    costs = {key: [_cost(results[v], quantity) for v in values] for key, results in complete.items()}
    best = [min(column) for column in zip(*costs.values(), strict=True)]
    out = []
    for (variant, rest), results in complete.items():
        hazards = [results[v]["hazards"] for v in values]
        counts = [
            sum(h["count"] for h in found if h["severity"] == "harmful")
            for found in hazards
            if found is not None
        ]
        out.append(
            Ranked(
                variant,
                places[variant, rest],
                [cost / least - 1 for cost, least in zip(costs[variant, rest], best, strict=True)],
                sum(counts) if len(counts) == len(values) else None,
            )
        )
    return sorted(out, key=lambda r: (round(r.score, 9), r.variant, place(r.at)))


def told_by(data: StudyData) -> Quantity:
    """The quantity that combinations are ranked by."""
    values, complete, _ = _combinations(data)
    return _told_by(values, complete)


def _told_by(values: list[Any], complete: Mapping[_Key, _Results]) -> Quantity:
    return deciding([results[v] for results in complete.values()] for v in values)


def _cost(result: Mapping[str, Any], quantity: Quantity) -> float:
    """Time: of a step, or of a token."""
    mean = float(result[quantity]["mean"])
    return mean if quantity == "cycle_us" else 1 / mean


def _combinations(
    data: StudyData,
) -> tuple[list[Any], dict[_Key, _Results], dict[_Key, Mapping[str, Any]]]:
    """The x values, and every combination that has all of them, with its results and its other factors."""
    x = x_factor(data)
    values = data.factors[x] if x else [None]
    groups: dict[_Key, dict[Any, Mapping[str, Any]]] = {}
    places: dict[_Key, Mapping[str, Any]] = {}
    for row in data.rows:
        rest = {name: value for name, value in row.at.items() if name != x}
        key = (row.variant, place(rest))
        places[key] = rest
        groups.setdefault(key, {})[row.at[x] if x else None] = row.result
    return values, {key: results for key, results in groups.items() if _complete(results, values)}, places


def _complete(results: Mapping[Any, Mapping[str, Any]], values: list[Any]) -> bool:
    return all(v in results and results[v]["cycle_us"]["mean"] is not None for v in values)


def section(data: StudyData) -> Section:
    x = x_factor(data)
    values = data.factors[x] if x else [None]
    every = ranked(data)
    by_tokens = told_by(data) == "throughput_tok_s"
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
        (
            f"Ranked {WHY}: the highest throughput at the same point over each one's, "
            if by_tokens
            else "Cycle over the shortest one at the same point, "
        )
        + "by the geometric mean over all points. *Unsafe*: a run "
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
    how = f" ({WHY})" if told_by(data) == "throughput_tok_s" else ""
    out = [
        f"**Fastest safe combination**{how}: {_named(best)}; the slowest of all {len(every)} takes up to "
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
