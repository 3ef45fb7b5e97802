"""Predicted against published change, a point a case, on classes of magnitude."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sim.report.style import COLOURS, GREY, GRID, INK, canvas

#: per cent; inside it the axes are linear
_LINEAR = 0.5
_LIMIT = 45.0
_TICKS = (-30, -15, -5, -2, -0.5, 0, 0.5, 2, 5, 15, 30)
_STYLES = {"agrees": (COLOURS[2], "o"), "disagrees": (COLOURS[1], "X"), "undecided": (GREY, "o")}


@dataclass(frozen=True)
class Point:
    """Changes in per cent; ``low`` and ``high`` the published range, if any; ``number`` the case's in the table."""

    number: int
    published: float
    predicted: float
    low: float | None
    high: float | None
    verdict: str


def draw(points: Sequence[Point], edges: Sequence[float]) -> Figure:
    """Squares on the diagonal are where class and sign are equal; hollow points decide nothing."""
    figure = canvas(7.2, 6.8)
    axes = figure.subplots()
    ends = [-_LIMIT, *(-e for e in reversed(edges)), *edges, _LIMIT]
    for low, high in pairwise(ends):
        axes.add_patch(Rectangle((low, low), high - low, high - low, color=GRID, zorder=0, linewidth=0))
    axes.plot([-_LIMIT, _LIMIT], [-_LIMIT, _LIMIT], color=GREY, linewidth=1, zorder=1)
    axes.axhline(0, color=GREY, linewidth=0.6, zorder=1)
    axes.axvline(0, color=GREY, linewidth=0.6, zorder=1)
    for verdict, (colour, marker) in _STYLES.items():
        chosen = [p for p in points if p.verdict == verdict]
        if not chosen:
            continue
        hollow = verdict == "undecided"
        axes.scatter(
            [p.published for p in chosen],
            [p.predicted for p in chosen],
            marker=marker,
            s=46,
            facecolors="none" if hollow else colour,
            edgecolors=colour,
            label=f"{verdict} ({len(chosen)})",
            zorder=3,
        )
        for p in chosen:
            if p.low is not None and p.high is not None:
                axes.plot(
                    [p.low, p.high], [p.predicted] * 2, color=colour, linewidth=1.4, alpha=0.5, zorder=2
                )
            axes.annotate(
                str(p.number),
                (p.published, p.predicted),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=7,
                color=GREY if hollow else INK,
            )
    for scale, limits, axis in (
        (axes.set_xscale, axes.set_xlim, axes.xaxis),
        (axes.set_yscale, axes.set_ylim, axes.yaxis),
    ):
        scale("symlog", linthresh=_LINEAR, linscale=0.6)
        limits(-_LIMIT, _LIMIT)
        axis.set_ticks(_TICKS, [f"{t:+g}".replace("-", "−") if t else "0" for t in _TICKS])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("published change, %")
    axes.set_ylabel("predicted change, %")
    axes.set_title("Predicted against published change")
    axes.set_aspect("equal")
    axes.legend(loc="upper left")
    return figure
