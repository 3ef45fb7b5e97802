"""A change over a grid of two factors, one panel a value of a third."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from sim.report.style import INK, canvas

_HOME = "#00916e"


@dataclass(frozen=True)
class Panel:
    """``change[i, j]``, per cent, at ``y[i]`` and ``x[j]``; ``matches[i, j]``: within the published band there."""

    title: str
    change: np.ndarray[Any, np.dtype[np.float64]]
    matches: np.ndarray[Any, np.dtype[np.bool_]]


def draw(
    x: str,
    xs: Sequence[float],
    y: str,
    ys: Sequence[float],
    panels: Sequence[Panel],
    both: np.ndarray[Any, np.dtype[np.bool_]],
    home: tuple[float, float],
    home_label: str,
) -> Figure:
    """One colour scale for all panels. Dotted cells match a panel's published figure, framed ones every panel's.

    ``home`` (x and y) is framed in green where the grid has it.
    """
    figure = canvas(4.9 * len(panels) + 1.0, 5.2)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    every = np.concatenate([p.change.ravel() for p in panels])
    colours, norm = _scale(float(np.nanmin(every)), float(np.nanmax(every)))
    for panel, what in zip(axes, panels, strict=True):
        image = panel.imshow(what.change, origin="lower", cmap=colours, norm=norm, aspect="auto")
        for i, j in np.ndindex(what.change.shape):
            change = float(what.change[i, j])
            _cell(panel, i, j, change, colours(norm(change)))
            if what.matches[i, j]:
                panel.plot(j, i + 0.33, "o", color=INK, markersize=3)
            if both[i, j]:
                _frame(panel, j, i, 0.46, INK)  # short of the neighbour, whose frame is its own
        if home[0] in xs and home[1] in ys:
            _frame(panel, list(xs).index(home[0]), list(ys).index(home[1]), 0.4, _HOME)
        panel.set_xticks(range(len(xs)), [f"{v:.3g}" for v in xs], fontsize=7.5)
        panel.set_yticks(range(len(ys)), [f"{v:.3g}" for v in ys], fontsize=7.5)
        panel.tick_params(labelleft=True)
        panel.grid(visible=False)
        panel.set_title(what.title)
        panel.set_xlabel(x)
    axes[0].set_ylabel(y)
    figure.colorbar(image, ax=list(axes), label="change in throughput, %", shrink=0.85)
    figure.legend(
        handles=[
            Patch(facecolor="none", edgecolor=_HOME, linewidth=2.2, label=home_label),
            Line2D(
                [], [], marker="o", color=INK, linestyle="none", markersize=4, label="published figure here"
            ),
            Patch(facecolor="none", edgecolor=INK, linewidth=2.2, label="all published figures"),
        ],
        loc="outside lower center",
        ncols=3,
    )
    return figure


def _scale(low: float, high: float) -> tuple[Colormap, Normalize]:
    """Red for losses, blue for gains, white for nothing; only red where there are hardly any gains."""
    if high < 0.1 * -low:
        return mpl.colormaps["Reds_r"], Normalize(low, 0.0)
    return mpl.colormaps["RdBu"], TwoSlopeNorm(0.0, min(low, -0.1), high)


def _cell(axes: Axes, i: int, j: int, change: float, shade: tuple[float, float, float, float]) -> None:
    text = f"{change:+.1f}".replace("-", "−")
    # Luminance of the cell's colour (ITU-R BT.709) decides what is readable on it.
    dark = 0.2126 * shade[0] + 0.7152 * shade[1] + 0.0722 * shade[2] < 0.45
    axes.text(
        j,
        i,
        "0.0" if text in ("−0.0", "+0.0") else text,
        ha="center",
        va="center",
        fontsize=6.5,
        color="white" if dark else INK,
    )


def _frame(axes: Axes, column: int, row: int, half: float, colour: str) -> None:
    corner = (column - half, row - half)
    axes.add_patch(Rectangle(corner, 2 * half, 2 * half, fill=False, edgecolor=colour, linewidth=2.2))
