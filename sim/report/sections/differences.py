"""Paired differences to the reference: what every variant costs or gains, in per cent and in µs a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from sim.report.data import StudyData
from sim.report.document import Figure, Section, Table
from sim.report.figures import multiples
from sim.report.quantity import WHY, Quantity, deciding
from sim.report.series import change_curves, other_points, x_factor
from sim.report.style import colours
from sim.report.text import joined, microseconds, percent, percent_span, place, short, span
from sim.stats.paired import Paired, paired, verdict


def section(data: StudyData) -> Section:
    x = x_factor(data)
    axis = [x] if x else []
    told = _told_by_throughput(data)
    by_tokens = (
        f" Verdicts of {joined(told)} go {WHY}; that is the change in throughput, where positive is faster."
        if told
        else ""
    )
    out = Section(
        f"Differences to {data.reference}",
        [
            "Cycle time against the reference's, paired. Positive is slower. A verdict other than *cannot tell* "
            f"needs both intervals on one side of zero.{by_tokens}",
        ],
    )
    throughput = ["throughput, %", "ci95", "pi95"] if told else []
    headers = ["variant", *axis, "cycle, %", "ci95", "pi95", "µs a step", "pi95, µs", *throughput, "verdict"]
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
    told = _told_by_throughput(data)
    for rest in other_points(data, x or ""):
        rows = []
        for variant in data.variants():
            if variant == data.study.reference:
                continue
            for value in data.factors[x] if x else [None]:
                at = {**rest, x: value} if x else rest
                pair = change(data, variant, at)
                tokens = _throughput_cells(data, variant, at) if told else []
                if pair is None:
                    end = [*tokens, word(data, variant, at)] if told else [""]
                    rows.append([variant, *([short(value)] if x else []), "too short a run", *[""] * 4, *end])
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
                        *tokens,
                        word(data, variant, at),
                    ]
                )
        yield rest, rows


def _throughput_cells(data: StudyData, variant: str, at: Mapping[str, Any]) -> list[str]:
    pair = change(data, variant, at, "throughput_tok_s")
    if pair is None:
        return [""] * 3
    relative = pair.relative
    return [percent(relative.mean), percent_span(relative.ci95), percent_span(relative.pi95)]


def _told_by_throughput(data: StudyData) -> list[str]:
    """Variants whose steps bring other numbers of tokens than the reference's."""
    return [v for v in data.variants() if told_by(data, v) == "throughput_tok_s"]


def told_by(data: StudyData, variant: str) -> Quantity:
    """The quantity that decides between ``variant`` and the reference, one for all points."""
    return deciding([data.find(name, at) for name in (data.reference, variant)] for at in data.points())


def change(
    data: StudyData, variant: str, at: Mapping[str, Any], quantity: Quantity = "cycle_us"
) -> Paired | None:
    """Change of ``quantity`` from the reference."""
    return paired(data.find(data.reference, at), data.find(variant, at), quantity)


def word(data: StudyData, variant: str, at: Mapping[str, Any]) -> str:
    """Faster, slower or cannot tell, by what decides; steps a second are the cycle's inverse."""
    quantity = told_by(data, variant)
    pair = change(data, variant, at, quantity)
    if pair is None:
        return "cannot tell"
    if pair.relative.mean == 0 and pair.relative.ci95 in (None, (0.0, 0.0)):
        return "the same"
    said = verdict(pair.relative)
    if quantity == "throughput_tok_s":
        return said
    return {"faster": "slower", "slower": "faster", "cannot tell": "cannot tell"}[said]


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
    quantity = told_by(data, variant)
    by_tokens = quantity == "throughput_tok_s"
    name, unit = ("throughput", "tok/s") if by_tokens else ("cycle", "µs a step")
    words = [word(data, variant, {**rest, x: value}) for value in values]
    if set(words) == {"the same"}:
        return f"the same {name} as {data.study.reference} everywhere, in every replication"
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
        pairs = [(value, change(data, variant, {**rest, x: value}, quantity)) for value in at]
        known = [(value, pair) for value, pair in pairs if pair is not None]
        ends = [
            min(known, key=lambda p: abs(p[1].relative.mean)),
            max(known, key=lambda p: abs(p[1].relative.mean)),
        ]
        told = [
            f"{percent(pair.relative.mean, 1)} ({microseconds(pair.absolute.mean)} {unit}, pi95 "
            f"{percent_span(pair.relative.pi95, 1)}) at {x} {short(value)}"
            for value, pair in ends
        ]
        parts.append(f"{what} {places}: {name} {' to '.join(dict.fromkeys(told))}")
    return (f"{WHY}: " if by_tokens else "") + "; ".join(parts)
