"""What several figures share: a concurrency axis, curves with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sim.report.series import Curve


def over(axes: Axes, name: str, values: Sequence[float]) -> None:
    """An x axis with ticks at ``values``; logarithmic when they span more than a decade."""
    if logarithmic(values):
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(apart(values)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(name)


def logarithmic(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > 10


def apart(values: Sequence[float]) -> list[float]:
    """Those of ``values`` that leave room for writing: the largest, then every one far enough from the last kept."""
    places = [math.log(v) if logarithmic(values) else v for v in values]
    room = (max(places) - min(places)) / 11
    kept: list[tuple[float, float]] = []
    for place, value in sorted(zip(places, values, strict=True), reverse=True):
        if not kept or kept[-1][0] - place >= room:
            kept.append((place, value))
    return sorted(value for _, value in kept)


def curve(axes: Axes, line: Curve, colour: str, bars: str | None, offset: float = 0.0, **style: Any) -> None:
    """A line with markers and, of ``bars`` ("ci95", "pi95"), error bars; moved aside a little by ``offset``,
    a share of the value, so that bars of several curves can be told apart."""
    shown = [i for i, y in enumerate(line.y) if y is not None]
    x = [line.x[i] * (1 + offset) for i in shown]
    y: list[float] = [value for value in line.y if value is not None]
    axes.plot(x, y, color=colour, marker="o", markersize=3.5, linewidth=1.5, label=line.label, **style)
    intervals = getattr(line, bars) if bars else [None] * len(line.x)
    for a, i in zip(x, shown, strict=True):
        interval = intervals[i]
        if interval is not None:
            axes.vlines(a, interval[0], interval[1], color=colour, linewidth=1.0, alpha=0.8)
