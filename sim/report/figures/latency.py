"""A latency over a factor: means as lines, the spread over requests as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from sim.report.figures.axes import over
from sim.report.style import canvas


def draw(
    x: str,
    values: Sequence[float],
    latency: Mapping[str, Sequence[Mapping[str, float | None]]],
    colours: Mapping[str, str],
    banded: str | None,
) -> Figure:
    """``latency``: variant -> mean, p50 and p99, ms, at each of ``values``. The variant ``banded`` (without one,
    every variant) has a band from p50 to p99."""
    figure = canvas(7.5, 4.4)
    axes = figure.subplots()
    for variant, line in latency.items():
        shown = [(a, t) for a, t in zip(values, line, strict=True) if t["mean"] is not None]
        places = [a for a, _ in shown]
        axes.plot(
            places,
            [t["mean"] or 0.0 for _, t in shown],
            color=colours[variant],
            marker="o",
            markersize=3.5,
            linewidth=1.5,
            label=variant,
        )
        if banded in (None, variant):
            axes.fill_between(
                places,
                [t["p50"] or 0.0 for _, t in shown],
                [t["p99"] or 0.0 for _, t in shown],
                color=colours[variant],
                alpha=0.12,
                linewidth=0,
            )
    over(axes, x, values)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("TPOT, ms")
    figure.legend(loc="outside lower center", ncols=min(3, len(latency)))
    return figure
