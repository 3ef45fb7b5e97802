"""Why the GPU waits: idle time of the forward stream by cause."""

from __future__ import annotations

from functools import partial

from sim.report.data import StudyData
from sim.report.document import Figure, Section, Table
from sim.report.figures import idle as figure
from sim.report.series import other_points, x_factor
from sim.report.text import number, place, short
from sim.trace.record import CAUSES


def section(data: StudyData) -> Section:
    x = x_factor(data)
    out = Section(
        "GPU idle by cause",
        [
            "Idle time of the forward stream, attributed to what arrived last before the operation that ended it; "
            "causes add up to the idle time. A graph replay counts as one busy span."
        ],
    )
    values = data.factors[x] if x else [None]
    for i, rest in enumerate(other_points(data, x or "")):
        idle = {
            variant: [
                data.find(variant, {**rest, x: value} if x else rest)["idle_us_per_step"] for value in values
            ]
            for variant in data.variants()
        }
        where = f", {place(rest)}" if rest else ""
        if x is not None:
            out.blocks.append(
                Figure(
                    f"idle{i or ''}",
                    f"Stacked bars of idle time by cause over {x}, a panel a variant{where}",
                    f"GPU idle time by cause, µs a step, over {x}{where}.",
                    partial(figure.draw, x, values, idle),
                )
            )
        causes = [c for c in map(str, CAUSES) if any(us[c] > 0 for steps in idle.values() for us in steps)]
        rows = [
            [
                variant,
                *([short(value)] if x else []),
                *(number(us[c], 3) for c in causes),
                number(sum(us.values()), 3),
            ]
            for variant, steps in idle.items()
            for value, us in zip(values, steps, strict=True)
        ]
        out.blocks.append(
            Table(["variant", *([x] if x else []), *causes, "all"], rows, f"Idle, µs a step{where}")
        )
    return out
