"""Two iterations of every variant, operation by operation."""

from __future__ import annotations

import re
from functools import partial

from sim.report.data import StudyData
from sim.report.document import Figure, Section
from sim.report.figures import timeline as figure
from sim.report.text import joined, place


def section(data: StudyData) -> Section:
    out = Section(
        "Timelines",
        [
            "From one traced run a variant: what happens while two successive decode iterations are on the "
            "forward stream. The host is then already busy with the next ones. Grey: the host waits; hatched: "
            "the forward stream idles. Wide boxes carry the name of the operation.",
        ],
    )
    for variant, (at, timeline) in data.timelines.items():
        title = f"{variant}, {place(at)}, iterations {joined([str(i) for i in timeline['shown']])}"
        out.blocks.append(
            Figure(
                f"timeline_{re.sub('[^a-z0-9]+', '_', variant.lower())}",
                f"Lanes of host and streams over two decode iterations of {variant}",
                f"{variant}: {_description(data, variant)}.",
                partial(figure.draw, timeline, title),
            )
        )
    return out


def _description(data: StudyData, variant: str) -> str:
    return data.study.variant(variant).description or variant
