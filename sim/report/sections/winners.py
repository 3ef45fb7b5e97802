"""Which variant has the highest throughput at every combination of factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.report.data import StudyData
from sim.report.document import Section, Table
from sim.report.series import other_points, x_factor
from sim.report.text import percent, percent_span, place, short
from sim.stats.paired import Paired, paired, verdict


def best(data: StudyData, at: Mapping[str, Any]) -> str:
    """The variant with the highest mean throughput."""
    return max(data.variants(), key=lambda v: float(data.find(v, at)["throughput_tok_s"]["mean"]))


def gain(data: StudyData, variant: str, at: Mapping[str, Any]) -> Paired:
    """Change of the throughput from the reference."""
    pair = paired(data.find(data.reference, at), data.find(variant, at), "throughput_tok_s")
    assert pair is not None
    return pair


def section(data: StudyData) -> Section:
    x = x_factor(data)
    values = data.factors[x] if x else [None]
    rows, spans = [], []
    for rest in other_points(data, x or ""):
        cells = []
        for value in values:
            at = {**rest, x: value} if x else rest
            winner = best(data, at)
            change = gain(data, winner, at)
            sure = verdict(change.relative) == "faster"
            told = f"{winner} ({percent(change.relative.mean, 1)})"
            cells.append(winner if winner == data.reference else f"**{told}**" if sure else told)
            if winner != data.reference:
                intervals = [percent_span(i, 1) for i in (change.relative.ci95, change.relative.pi95)]
                spans.append([place(at), winner, percent(change.relative.mean, 1), *intervals])
        rows.append([place(rest) or "all", *cells])
    headers = ["", *([f"{x} {short(value)}" for value in values] if x else ["best"])]
    out = Section(
        "Which is best where",
        [
            f"The variant with the highest throughput, and its paired gain over {data.reference}. Bold: faster by "
            "every interval. The gain's pi95 leaves out the uncertainty of costs that only one of the two pays.",
            Table(headers, rows),
        ],
    )
    if spans:
        out.blocks.append(Table(["at", "best", f"over {data.reference}", "ci95", "pi95"], spans, "The gains"))
    return out


def sentences(data: StudyData) -> list[str]:
    """One sentence a combination of the other factors: the best variant along the x axis."""
    x = x_factor(data)
    if x is None:
        return []
    out = []
    for rest in other_points(data, x):
        runs: list[tuple[str, list[Any]]] = []
        for value in data.factors[x]:
            winner = best(data, {**rest, x: value})
            if runs and runs[-1][0] == winner:
                runs[-1][1].append(value)
            else:
                runs.append((winner, [value]))
        parts = []
        for winner, values in runs:
            at = {**rest, x: values[-1]}
            reach = short(values[0]) if len(values) == 1 else f"{short(values[0])} to {short(values[-1])}"
            change = gain(data, winner, at).relative
            against = ""
            if winner != data.reference:
                sure = percent_span(change.pi95 or change.ci95, 1)
                against = f" ({percent(change.mean, 1)}, {sure}, at {short(values[-1])})"
            parts.append(f"{winner} at {x} {reach}{against}")
        out.append(f"**{place(rest) or 'Best'}**: {'; '.join(parts)}.")
    return out
