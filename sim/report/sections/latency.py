"""Time per output token, as requests see it."""

from __future__ import annotations

from functools import partial

from sim.report.data import StudyData
from sim.report.document import Figure, Section, Table
from sim.report.figures import latency as figure
from sim.report.series import other_points, x_factor
from sim.report.style import colours
from sim.report.text import number, place, short


def section(data: StudyData) -> Section:
    x = x_factor(data)
    out = Section(
        "Time per output token",
        [
            "Per request, the time from its first to its last token over the tokens between; the spread is over "
            "requests (all replications), not over boots."
        ],
    )
    if x is None:
        return out
    values = data.factors[x]
    for i, rest in enumerate(other_points(data, x)):
        where = f", {place(rest)}" if rest else ""
        tpot = {
            variant: [data.find(variant, {**rest, x: value})["tpot_ms"] for value in values]
            for variant in data.variants()
        }
        shades = colours(data.variants(), data.study.reference)
        out.blocks.append(
            Figure(
                f"latency{i or ''}",
                f"Time per output token over {x}{where}, one curve a variant",
                f"TPOT, ms, over {x}{where}: mean; the band of {data.study.reference or 'each'} reaches from the "
                "median to the 99th percentile of requests.",
                partial(figure.draw, x, values, tpot, shades, data.study.reference),
            )
        )
        rows = [
            [variant, *(f"{number(t['mean'], 3)} ({number(t['p99'], 3)})" for t in line)]
            for variant, line in tpot.items()
        ]
        headers = ["variant", *(f"{x} {short(value)}" for value in values)]
        out.blocks.append(Table(headers, rows, f"TPOT, ms: mean (99th percentile){where}"))
    return out
