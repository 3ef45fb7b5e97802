"""Paired differences to the reference: what every variant costs or gains, in per cent and in µs a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from sim.report.data import StudyData
from sim.report.document import Figure, Section, Table
from sim.report.figures import multiples
from sim.report.series import change_curves, other_points, x_factor
from sim.report.style import colours
from sim.report.text import joined, microseconds, percent, percent_span, place, short, span
from sim.stats.paired import Paired, paired, verdict


def section(data: StudyData) -> Section:
    x = x_factor(data)
    axis = [x] if x else []
    out = Section(
        f"Differences to {data.reference}",
        [
            "Cycle time against the reference's, paired. Positive is slower. A verdict other than *cannot tell* "
            "needs both intervals on one side of zero.",
        ],
    )
    headers = ["variant", *axis, "cycle, %", "ci95", "pi95", "µs a step", "pi95, µs", "verdict"]
    for i, (rest, rows) in enumerate(_tables(data)):
        if x is not None:
            out.blocks.append(_figure(data, x, rest, i))
        out.blocks.append(Table(headers, rows, place(rest)))
    return out


def _figure(data: StudyData, x: str, rest: Mapping[str, Any], index: int) -> Figure:
    where = f", {place(rest)}" if rest else ""
    return Figure(
        f"differences{index or ''}",
        f"Change of the cycle from {data.reference} over {x}{where}, a panel a variant",
        f"Change of the cycle from {data.reference}, µs a step with pi95 as bars and per cent written, over "
        f"{x}{where}. Every panel has its own scale.",
        partial(
            multiples.draw,
            x,
            change_curves(data, x, rest, "cycle_us", lambda p: p.absolute),
            change_curves(data, x, rest, "cycle_us", lambda p: p.relative),
            colours(data.variants(), data.reference),
            "cycle, µs a step",
        ),
    )


def _tables(data: StudyData) -> Iterator[tuple[Mapping[str, Any], list[list[str]]]]:
    x = x_factor(data)
    for rest in other_points(data, x or ""):
        rows = []
        for variant in data.variants():
            if variant == data.study.reference:
                continue
            for value in data.factors[x] if x else [None]:
                at = {**rest, x: value} if x else rest
                pair = change(data, variant, at)
                if pair is None:
                    rows.append([variant, *([short(value)] if x else []), "too short a run", *[""] * 5])
                    continue
                rows.append(
                    [
                        variant,
                        *([short(value)] if x else []),
                        percent(pair.relative.mean),
                        percent_span(pair.relative.ci95),
                        percent_span(pair.relative.pi95),
                        microseconds(pair.absolute.mean),
                        span(pair.absolute.pi95, 3).replace("-", "−"),
                        word(data, variant, at),
                    ]
                )
        yield rest, rows


def change(data: StudyData, variant: str, at: Mapping[str, Any]) -> Paired | None:
    """Change of the cycle from the reference."""
    return paired(data.find(data.reference, at), data.find(variant, at), "cycle_us")


def word(data: StudyData, variant: str, at: Mapping[str, Any]) -> str:
    """Faster, slower or cannot tell, by the cycle: steps a second are its inverse."""
    pair = change(data, variant, at)
    if pair is None:
        return "cannot tell"
    if pair.relative.mean == 0 and pair.relative.ci95 in (None, (0.0, 0.0)):
        return "the same"
    return {"faster": "slower", "slower": "faster", "cannot tell": "cannot tell"}[verdict(pair.relative)]


def sentences(data: StudyData) -> list[str]:
    """One sentence a variant: where it is slower or faster, between how much and how much."""
    x = x_factor(data)
    if x is None or data.study.reference is None:
        return []
    out = []
    for rest in other_points(data, x):
        where = f" ({place(rest)})" if rest else ""
        for variant in data.variants():
            if variant != data.study.reference:
                out.append(f"**{variant}**{where}: {_sentence(data, variant, x, rest)}.")
    return out


def _sentence(data: StudyData, variant: str, x: str, rest: Mapping[str, Any]) -> str:
    values = data.factors[x]
    words = [word(data, variant, {**rest, x: value}) for value in values]
    if set(words) == {"the same"}:
        return f"the same cycle as {data.study.reference} everywhere, in every replication"
    parts = []
    for what in ("slower", "faster", "cannot tell", "the same"):
        at = [value for value, w in zip(values, words, strict=True) if w == what]
        if not at:
            continue
        places = (
            f"at every {x}" if len(at) == len(values) else f"at {x} {joined([short(value) for value in at])}"
        )
        if what in ("cannot tell", "the same"):
            parts.append(f"{what} {places}")
            continue
        pairs = [(value, change(data, variant, {**rest, x: value})) for value in at]
        known = [(value, pair) for value, pair in pairs if pair is not None]
        ends = [
            min(known, key=lambda p: abs(p[1].relative.mean)),
            max(known, key=lambda p: abs(p[1].relative.mean)),
        ]
        told = [
            f"{percent(pair.relative.mean, 1)} ({microseconds(pair.absolute.mean)} µs a step, pi95 "
            f"{percent_span(pair.relative.pi95, 1)}) at {x} {short(value)}"
            for value, pair in ends
        ]
        parts.append(f"{what} {places}: cycle {' to '.join(dict.fromkeys(told))}")
    return "; ".join(parts)
