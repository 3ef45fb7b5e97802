"""Changes over the ratio of host to device costs: the map of machines on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from sim.report.figures.axes import over
from sim.report.style import COLOURS, GREY, INK, canvas


@dataclass(frozen=True)
class Line:
    """``y``, per cent, and the band ``published`` around the published figure."""

    label: str
    y: Sequence[float]
    published: tuple[float, float]


def draw(
    x: str, xs: Sequence[float], panels: Sequence[tuple[str, Sequence[Line]]], home_label: str
) -> Figure:
    """``panels``: title and lines. Every band has its line's colour; the dotted line, called ``home_label``, is the
    ratio 1."""
    figure = canvas(3.6 * len(panels) + 0.4, 3.5)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for panel, (title, lines) in zip(axes, panels, strict=True):
        panel.axhline(0, color=GREY, linewidth=1)
        home = panel.axvline(1, color=INK, linewidth=1, linestyle=":")
        for line, colour in zip(lines, COLOURS, strict=False):
            panel.axhspan(*line.published, color=colour, alpha=0.2, linewidth=0)
            panel.plot(xs, line.y, color=colour, marker="o", markersize=3, linewidth=1.5, label=line.label)
        over(panel, x, [v for v in xs if math.log2(v).is_integer()] or xs)
        panel.set_title(title)
        panel.tick_params(labelleft=True)
    axes[0].set_ylabel("change in throughput, %")
    # In the legend: within a panel, curves may go wherever a label stands.
    handles, labels = axes[0].get_legend_handles_labels()
    handles, labels = [*handles, home], [*labels, home_label]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure
