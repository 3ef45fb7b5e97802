"""GPU idle time a step, by cause: one panel a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sim.report.figures.labels import width
from sim.report.style import canvas
from sim.trace.record import CAUSES

#: one colour a cause, causes that the host is behind in warm colours
CAUSE_COLOURS = {
    "publish_sync": "#d55e00",
    "copy_done": "#e69f00",
    "barrier": "#0072b2",
    "launch_lag": "#f0c05a",
    "fence": "#9b2f6a",
    "prefill": "#7fb8a4",
    "other": "#a8a8a8",
}

#: points of the figures written; inches of a row of panels; share of a panel that its bars have
_SIZE, _PAGE, _OF_PANEL = 6.5, 9.6, 0.78


def draw(x: str, values: Sequence[Any], idle: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """``idle``: variant -> at each of ``values`` the µs a step of every cause."""
    totals = [sum(us.values()) for steps in idle.values() for us in steps]
    widest = max(width(f"{total:,.0f}", _SIZE) for total in totals) + 2
    # Every panel as wide as its figures need to stand side by side, and as many in a row as a page takes.
    needed = max(2.4, len(values) * widest / _OF_PANEL / 72)
    columns = min(4, len(idle), max(1, int(_PAGE / needed)))
    rows = -(-len(idle) // columns)
    each = max(needed, _PAGE / columns) if columns < min(4, len(idle)) else needed
    figure = canvas(each * columns + 0.8, 2.1 * rows + 0.7)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    causes = [c for c in map(str, CAUSES) if any(us[c] > 0 for steps in idle.values() for us in steps)]
    places = np.arange(len(values))
    for panel, (variant, steps) in zip(panels.flat, idle.items(), strict=False):
        bottom = np.zeros(len(values))
        for cause in causes:
            heights = np.array([us[cause] for us in steps])
            panel.bar(places, heights, 0.8, bottom=bottom, color=CAUSE_COLOURS[cause], label=cause)
            bottom += heights
        panel.set_title(variant, fontsize=8.5)
        panel.grid(axis="x", visible=False)
        panel.set_xticks(places, [f"{value:g}" for value in values], fontsize=7.5)
        for place, height in zip(places, bottom, strict=True):
            panel.text(place, height, f"{height:,.0f}", ha="center", va="bottom", fontsize=_SIZE)
        panel.tick_params(axis="y", labelleft=True)
    panels.flat[0].set_ylim(0, 1.1 * max(1.0, *totals))
    for panel in list(panels.flat)[len(idle) :]:
        panel.set_visible(False)
    for panel in panels[:, 0]:
        panel.set_ylabel("idle, µs a step")
    figure.supxlabel(x, fontsize=9)
    if causes:
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure
