"""Throughput and cycle over the factor on the x axis."""

from __future__ import annotations

from functools import partial

from sim.report.data import StudyData
from sim.report.document import Figure, Section, Table
from sim.report.figures import curves as figure
from sim.report.series import change_curves, curves, other_points, x_factor
from sim.report.style import colours
from sim.report.text import number, place, short


def throughput(data: StudyData) -> Section:
    return _section(data, "throughput_tok_s", "Throughput", "tok/s")


def cycle(data: StudyData) -> Section:
    return _section(data, "cycle_us", "Cycle", "µs")


def _section(data: StudyData, quantity: str, title: str, unit: str) -> Section:
    x = x_factor(data)
    out = Section(title)
    if x is None:
        return out
    for i, rest in enumerate(other_points(data, x)):
        values = curves(data, x, rest, quantity)
        compared = data.study.reference is not None
        changes = change_curves(data, x, rest, quantity, lambda p: p.relative) if compared else []
        where = f", {place(rest)}" if rest else ""
        out.blocks.append(
            Figure(
                f"{title.lower()}{i or ''}",
                f"{title} over {x}{where}, one curve a variant, and its change from the reference",
                f"{title}, {unit}, over {x}{where}. Left: means, that of {data.study.reference} with its pi95 as a "
                "band. "
                f"Right: paired change from {data.study.reference} with its pi95 as bars."
                if changes
                else f"{title}, {unit}, over {x}{where}, with pi95 as a band.",
                partial(
                    figure.draw,
                    x,
                    values,
                    changes,
                    colours(data.variants(), data.study.reference),
                    f"{title}, {unit}",
                    f"Change from {data.study.reference}",
                    data.study.reference,
                ),
            )
        )
        rows = [[line.variant, *(number(y) for y in line.y)] for line in values]
        headers = ["variant", *(f"{x} {short(value)}" for value in data.factors[x])]
        out.blocks.append(Table(headers, rows, f"{title}, {unit}: mean{where}"))
        rows = [
            [line.variant, *(_half_width(y, i) for y, i in zip(line.y, line.pi95, strict=True))]
            for line in values
        ]
        if any(i is not None for line in values for i in line.pi95):
            out.blocks.append(Table(headers, rows, f"{title}: pi95 around the mean, %{where}"))
    return out


def _half_width(mean: float | None, interval: tuple[float, float] | None) -> str:
    if mean is None or interval is None:
        return "–"
    low, high = (100 * (end / mean - 1) for end in interval)
    return f"{low:+.1f} … {high:+.1f}".replace("-", "−")
