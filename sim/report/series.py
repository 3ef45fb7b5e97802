"""Results as curves: one a variant (and combination of the other factors) over the factor on the x axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sim.report.data import StudyData
from sim.report.text import place
from sim.stats.paired import Paired, paired


@dataclass(frozen=True)
class Curve:
    """``y[i]`` at ``x[i]``; intervals where there are any. None where there is nothing to show."""

    variant: str
    label: str
    x: list[Any]
    y: list[float | None]
    ci95: list[tuple[float, float] | None]
    pi95: list[tuple[float, float] | None]


def x_factor(data: StudyData) -> str | None:
    """The factor on x axes: concurrency if it is varied, else the first one of several numbers."""
    return x_of(data.factors)


def x_of(factors: Mapping[str, list[Any]]) -> str | None:
    """The same, from the factors' values."""
    varied = [name for name, values in factors.items() if len(set(map(str, values))) > 1]
    numeric = [n for n in varied if all(isinstance(v, int | float) for v in factors[n])]
    return "concurrency" if "concurrency" in numeric else numeric[0] if numeric else None


def other_points(data: StudyData, x: str) -> list[dict[str, Any]]:
    """Combinations of all factors but ``x``, each once; one empty combination if there are none."""
    points: list[dict[str, Any]] = []
    for at in data.points():
        rest = {name: value for name, value in at.items() if name != x}
        if rest not in points:
            points.append(rest)
    return points


def curves(data: StudyData, x: str, rest: Mapping[str, Any], quantity: str) -> list[Curve]:
    """``quantity`` (of results that have mean, ci95 and pi95) of every variant, the other factors at ``rest``."""
    out = []
    for variant in data.variants():
        values = [data.find(variant, {**rest, x: value})[quantity] for value in data.factors[x]]
        out.append(
            Curve(
                variant,
                variant,
                data.factors[x],
                [v["mean"] for v in values],
                [v["ci95"] for v in values],
                [v["pi95"] for v in values],
            )
        )
    return out


def change_curves(
    data: StudyData,
    x: str,
    rest: Mapping[str, Any],
    quantity: str,
    pick: Callable[[Paired], Any],
) -> list[Curve]:
    """Change from the reference to every other variant; ``pick`` takes the absolute or the relative change."""
    assert data.study.reference is not None
    out = []
    for variant in data.variants():
        if variant == data.study.reference:
            continue
        changes = []
        for value in data.factors[x]:
            at = {**rest, x: value}
            pair = paired(data.find(data.study.reference, at), data.find(variant, at), quantity)
            changes.append(None if pair is None else pick(pair))
        out.append(
            Curve(
                variant,
                variant,
                data.factors[x],
                [None if c is None else c.mean for c in changes],
                [None if c is None else c.ci95 for c in changes],
                [None if c is None else c.pi95 for c in changes],
            )
        )
    return out


def titled(rest: Mapping[str, Any]) -> str:
    return place(rest)
