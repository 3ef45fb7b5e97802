"""Shares of a loss won back, one line a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.figure import Figure

from sim.report.figures.axes import over
from sim.report.style import GREY, canvas

_MARKERS = "osD^vP*X"


def draw(
    x: str, values: Sequence[float], shares: Mapping[str, Sequence[float]], colours: Mapping[str, str]
) -> Figure:
    """``shares``, per cent; the lines at 0 and 100 are the start and the goal."""
    figure = canvas(8.5, 4.4)
    axes = figure.subplots()
    for level in (0, 100):
        axes.axhline(level, color=GREY, linewidth=1)
    dashes = cycle(["-"] * 8 + ["--"] * 8)
    for (name, line), marker, dash in zip(shares.items(), cycle(_MARKERS), dashes, strict=False):
        axes.plot(
            values,
            line,
            color=colours[name],
            marker=marker,
            linestyle=dash,
            markersize=4,
            linewidth=1.4,
            label=name,
        )
    over(axes, x, values)
    axes.set_ylabel("recovered, %")
    figure.legend(loc="outside right center", fontsize=8)
    return figure
