"""Simulated against measured cycles: relative errors, one panel a variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from sim.report.figures.axes import over
from sim.report.style import GREY, canvas


@dataclass(frozen=True)
class Comparison:
    """A measured cycle beside the simulated one, µs; ``pi95`` of the simulation."""

    variant: str
    x: Any
    measured_us: float
    simulated_us: float
    pi95: tuple[float, float] | None

    @property
    def error(self) -> float:
        """Of the simulation, relative to the measurement."""
        return self.simulated_us / self.measured_us - 1

    @property
    def inside(self) -> bool | None:
        return None if self.pi95 is None else self.pi95[0] <= self.measured_us <= self.pi95[1]


def draw(x: str, panels: Sequence[tuple[str, str, Sequence[Comparison]]], colours: dict[str, str]) -> Figure:
    """``panels``: variant, title, its comparisons. Points are simulated over measured; grey bars the ``pi95``."""
    figure = canvas(3.2 * len(panels) + 0.6, 3.2)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for panel, (variant, title, comparisons) in zip(axes, panels, strict=True):
        panel.axhline(0, color=GREY, linewidth=1)
        for c in comparisons:
            if c.pi95 is not None:
                low, high = (100 * (end / c.measured_us - 1) for end in c.pi95)
                panel.vlines(c.x, low, high, color=GREY, linewidth=3, alpha=0.3)
        panel.plot(
            [c.x for c in comparisons],
            [100 * c.error for c in comparisons],
            "o",
            color=colours[variant],
            markersize=5,
        )
        over(panel, x, sorted({c.x for c in comparisons}))
        panel.set_title(title)
        panel.tick_params(labelleft=True)
    axes[0].set_ylabel("simulated cycle against measured, %")
    return figure
