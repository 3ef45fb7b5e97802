"""Simulated cycles beside measured ones."""

from __future__ import annotations

from functools import partial
from statistics import fmean

from sim.report.data import StudyData
from sim.report.document import Block, Figure, Section, Table
from sim.report.figures import agreement
from sim.report.figures.agreement import Comparison
from sim.report.series import x_factor
from sim.report.style import colours
from sim.report.text import number, percent, percent_span, short, span
from sim.stats.paired import paired


def comparisons(data: StudyData) -> list[Comparison]:
    """Every measured row that the study simulates too."""
    x = x_factor(data)
    assert x is not None
    out = []
    for row in data.measured:
        try:
            cycle = data.find(row.variant, row.at)["cycle_us"]
        except KeyError:
            continue
        if cycle["mean"] is not None:
            pi95 = None if cycle["pi95"] is None else (cycle["pi95"][0], cycle["pi95"][1])
            out.append(Comparison(row.variant, row.at[x], row.cycle_us, cycle["mean"], pi95))
    return out


def section(data: StudyData) -> Section:
    x = x_factor(data)
    assert x is not None
    assert data.study.measured is not None
    every = comparisons(data)
    role = {v.name: "fitted" if v.fitted else "predicted" for v in data.study.variants}
    panels = [
        (name, f"{name}: {role[name]}", [c for c in every if c.variant == name])
        for name in data.variants()
        if any(c.variant == name for c in every)
    ]
    rows = [
        [
            c.variant,
            role[c.variant],
            short(c.x),
            number(c.measured_us, 5),
            number(c.simulated_us, 5),
            percent(c.error, 1),
            span(c.pi95, 5),
            {None: "–", True: "yes", False: "**no**"}[c.inside],
        ]
        for c in every
    ]
    return Section(
        "Simulated and measured cycles",
        [
            f"Measured: {data.study.measured.source}. Rows marked *fitted* are what the profile's costs come from, "
            "so agreement there shows only that the model can hold them; rows marked *predicted* were not used.",
            *sentences(data),
            Figure(
                "measured",
                "Relative error of the simulated cycle over concurrency, a panel a measured variant",
                "Simulated mean cycle against each measured boot, %; grey bars: pi95 of the simulation.",
                partial(agreement.draw, x, panels, colours(data.variants(), data.study.reference)),
            ),
            Table(
                ["variant", "role", x, "measured, µs", "simulated, µs", "error", "pi95, µs", "inside"], rows
            ),
            *_differences(data, every),
        ],
    )


def _differences(data: StudyData, every: list[Comparison]) -> list[Block]:
    """Measured and simulated change of the cycle from the reference, where both were measured."""
    rows = []
    x = x_factor(data)
    assert x is not None
    for variant in data.variants():
        for value in data.factors[x]:
            here = [c for c in every if c.x == value]
            ours = [c.measured_us for c in here if c.variant == variant]
            theirs = [c.measured_us for c in here if c.variant == data.study.reference]
            if variant == data.study.reference or not ours or not theirs:
                continue
            measured = fmean(ours) / fmean(theirs) - 1
            pair = paired(data.find(data.reference, {x: value}), data.find(variant, {x: value}), "cycle_us")
            assert pair is not None
            pi95 = pair.relative.pi95
            inside = "–" if pi95 is None else "yes" if pi95[0] <= measured <= pi95[1] else "**no**"
            rows.append(
                [
                    variant,
                    short(value),
                    percent(measured, 1),
                    percent(pair.relative.mean, 1),
                    percent_span(pi95, 1),
                    inside,
                ]
            )
    if not rows:
        return []
    headers = ["variant", x, "measured", "simulated", "pi95", "inside"]
    caption = f"Change of the cycle from {data.study.reference} (mean of its boots), measured and simulated"
    return [Table(headers, rows, caption)]


def sentences(data: StudyData) -> list[str]:
    """The largest error and the count inside the interval, for fitted and for predicted rows."""
    fitted = {v.name for v in data.study.variants if v.fitted}
    out = []
    for role, rows in (
        ("Fitted", [c for c in comparisons(data) if c.variant in fitted]),
        ("Predicted", [c for c in comparisons(data) if c.variant not in fitted]),
    ):
        if rows:
            worst = max(rows, key=lambda c: abs(c.error))
            inside = sum(1 for c in rows if c.inside)
            out.append(
                f"{role} rows: largest error {percent(worst.error, 1)} ({worst.variant}, {short(worst.x)}); "
                f"{inside} of {len(rows)} inside `pi95`."
            )
    return out
