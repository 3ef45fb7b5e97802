"""A change over a grid of two factors, one panel a value of a third."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sim.report.style import INK, canvas


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
    home: tuple[float, float] | None,
    home_label: str,
) -> Figure:
    """One colour scale for all panels. Dotted cells match one panel's published figure, framed cells every one's."""
    figure = canvas(4.9 * len(panels) + 1.0, 4.9)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    low = min(float(np.nanmin(p.change)) for p in panels)
    high = max(float(np.nanmax(p.change)) for p in panels)
    norm = TwoSlopeNorm(0, min(low, -0.1), max(high, 0.1))
    for panel, what in zip(axes, panels, strict=True):
        image = panel.imshow(what.change, origin="lower", cmap="RdBu", norm=norm, aspect="auto")
        for i, j in np.ndindex(what.change.shape):
            value = what.change[i, j]
            shade = abs(value) / (-norm.vmin if value < 0 else norm.vmax)
            panel.text(
                j, i, f"{value:+.1f}".replace("-", "−"), ha="center", va="center", fontsize=6.5,
                color="white" if shade > 0.6 else INK,
            )  # fmt: skip
            if what.matches[i, j]:
                panel.plot(j, i + 0.33, "o", color=INK, markersize=3)
            if both[i, j]:
                panel.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=2.2))
        if home is not None and home[0] in xs and home[1] in ys:
            column, row = list(xs).index(home[0]), list(ys).index(home[1])
            panel.add_patch(
                Rectangle(
                    (column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor="#009e73", linewidth=2.2
                )
            )
            panel.annotate(
                home_label,
                (column + 0.46, row + 0.46),
                (column + 0.9, row + 1.0),
                fontsize=8,
                fontweight="bold",
                color="#00664b",
                arrowprops={"arrowstyle": "-", "color": "#00664b"},
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            )
        panel.set_xticks(range(len(xs)), [f"{v:.3g}" for v in xs], fontsize=7.5)
        panel.set_yticks(range(len(ys)), [f"{v:.3g}" for v in ys], fontsize=7.5)
        panel.tick_params(labelleft=True)
        panel.grid(visible=False)
        panel.set_title(what.title)
        panel.set_xlabel(x)
    axes[0].set_ylabel(y)
    figure.colorbar(image, ax=list(axes), label="change in throughput, %", shrink=0.85)
    return figure
