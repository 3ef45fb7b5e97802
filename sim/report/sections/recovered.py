"""How much of a loss every remedy wins back, alone and with others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sim.report.data import StudyData
from sim.report.document import Figure, Section, Table
from sim.report.figures import recovery as figure
from sim.report.series import other_points, x_factor
from sim.report.style import colours
from sim.report.text import microseconds, percent, place, short
from sim.stats.paired import paired


def loss(data: StudyData, at: Mapping[str, Any]) -> tuple[float, float]:
    """What ``start`` loses against ``goal``: µs a step, and as a share of the goal's cycle."""
    assert data.study.recovery is not None
    start, goal = data.study.recovery.start, data.study.recovery.goal
    pair = paired(data.find(goal, at), data.find(start, at), "cycle_us")
    assert pair is not None
    return pair.absolute.mean, pair.relative.mean


def share(data: StudyData, variant: str, at: Mapping[str, Any]) -> float:
    """Of that loss, what ``variant`` wins back: 0 as ``start``, 1 as ``goal``."""
    assert data.study.recovery is not None
    pair = paired(data.find(data.study.recovery.start, at), data.find(variant, at), "cycle_us")
    assert pair is not None
    return -pair.absolute.mean / loss(data, at)[0]


def remedies(data: StudyData) -> list[str]:
    """Variants that combine something, cheapest first: those of fewer parts, then in the study's order."""
    named = [v for v in data.study.variants if v.parts and v.name in data.variants()]
    return [variant.name for variant in sorted(named, key=lambda v: len(v.parts))]


def enough(data: StudyData, rest: Mapping[str, Any]) -> list[str]:
    """The combinations that win back enough at every value of the x factor, cheapest first, none that contains
    another of them."""
    assert data.study.recovery is not None
    x = x_factor(data)
    points = [{**rest, x: value} for value in data.factors[x]] if x else [dict(rest)]
    found: list[str] = []
    for name in remedies(data):
        parts = set(data.study.variant(name).parts)
        contained = any(set(data.study.variant(other).parts) < parts for other in found)
        if not contained and all(share(data, name, at) >= data.study.recovery.enough for at in points):
            found.append(name)
    return found


def section(data: StudyData) -> Section:
    recovery = data.study.recovery
    x = x_factor(data)
    assert recovery is not None
    assert x is not None
    out = Section(
        "What each remedy recovers",
        [
            f"Share of the cycle that **{recovery.start}** loses against **{recovery.goal}**: 0 % is no better than "
            f"{recovery.start}, 100 % as good as {recovery.goal}; above, better than that. Paired.",
        ],
    )
    for i, rest in enumerate(other_points(data, x)):
        where = place(rest)
        points = [{**rest, x: value} for value in data.factors[x]]
        shares = {name: [100 * share(data, name, at) for at in points] for name in remedies(data)}
        out.blocks.append(
            Figure(
                f"recovered{i or ''}",
                f"Share of the loss recovered over {x}, a line a remedy; {where}",
                f"Share of the loss recovered, %, over {x}{f', {where}' if where else ''}.",
                partial(figure.draw, x, data.factors[x], shares, colours(list(shares), None)),
            )
        )
        losses = [loss(data, at) for at in points]
        rows = [
            [
                f"loss of {recovery.start}",
                *(f"{microseconds(us)} µs ({percent(part, 1)})" for us, part in losses),
            ]
        ]
        rows += [
            [name, *(f"{value:.0f} %".replace("-", "−") for value in values)]
            for name, values in shares.items()
        ]
        headers = ["", *(f"{x} {short(value)}" for value in data.factors[x])]
        out.blocks.append(Table(headers, rows, where or "Recovered"))
    return out


def sentences(data: StudyData) -> list[str]:
    """What is lost, and the cheapest combination that wins all of it back."""
    recovery = data.study.recovery
    x = x_factor(data)
    assert recovery is not None
    out = []
    for rest in other_points(data, x or ""):
        points = [{**rest, x: value} for value in data.factors[x]] if x else [dict(rest)]
        losses = [loss(data, at)[1] for at in points]
        found = enough(data, rest)
        if found:
            told = f"the cheapest that recovers at least {recovery.enough:.0%} of it everywhere is **{found[0]}**"
            told += f"; so does {' and so does '.join(found[1:])}" if found[1:] else ""
        else:
            best = max(remedies(data), key=lambda name: min(share(data, name, at) for at in points))
            least = min(share(data, best, at) for at in points)
            told = f"nothing recovers {recovery.enough:.0%} of it everywhere; {best} comes nearest with {least:.0%}"
        singles = [name for name in remedies(data) if len(data.study.variant(name).parts) == 1]
        alone = []
        for name in singles:
            values = [share(data, name, at) for at in points]
            alone.append(f"{name} {100 * min(values):.0f} to {100 * max(values):.0f} %".replace("-", "−"))
        out.append(
            f"**{place(rest) or recovery.start}**: {recovery.start} costs {percent(min(losses), 1)} to "
            f"{percent(max(losses), 1)} of the cycle; {told}. Alone: {', '.join(alone)}."
        )
    return out
