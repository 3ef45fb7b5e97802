"""A quantity over a factor beside its change from the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from sim.report.figures.axes import curve, over
from sim.report.series import Curve
from sim.report.style import GREY, canvas


def draw(
    x: str,
    values: Sequence[Curve],
    changes: Sequence[Curve],
    colours: Mapping[str, str],
    label: str,
    change_label: str,
    banded: str | None,
) -> Figure:
    """Left the quantity, the curve of variant ``banded`` with a band of ``pi95`` (without changes: every curve).

    Right the paired change with bars of its ``pi95``, in per cent.
    """
    figure = canvas(9.5, 4.4)
    panels = figure.subplots(1, 2 if changes else 1, squeeze=False)[0]
    left = panels[0]
    for line in values:
        curve(left, line, colours[line.variant], None)
        band = [(a, i) for a, i in zip(line.x, line.pi95, strict=True) if i is not None]
        if band and (line.variant == banded or not changes):
            left.fill_between(
                [a for a, _ in band],
                [low for _, (low, _) in band],
                [high for _, (_, high) in band],
                color=colours[line.variant],
                alpha=0.08,
                linewidth=0,
            )
    over(left, x, values[0].x)
    left.set_title(label)
    if max(y for line in values for y in line.y if y) > 5 * min(y for line in values for y in line.y if y):
        left.set_yscale("log")
        left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        left.yaxis.set_minor_locator(NullLocator())
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if changes:
        right = panels[1]
        right.axhline(0, color=GREY, linewidth=1)
        for i, line in enumerate(changes):
            curve(right, _percent(line), colours[line.variant], "pi95", offset=0.04 * (i - len(changes) / 2))
        over(right, x, changes[0].x)
        right.set_title(change_label)
        right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g} %".replace("-", "−")))
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def _percent(line: Curve) -> Curve:
    def scaled(interval: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if interval is None else (100 * interval[0], 100 * interval[1])

    return Curve(
        line.variant,
        line.label,
        line.x,
        [None if y is None else 100 * y for y in line.y],
        [scaled(i) for i in line.ci95],
        [scaled(i) for i in line.pi95],
    )
