"""The critical cycle drawn over the timeline of the iterations it spans and one more."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sim.report.figures import timeline
from sim.report.style import save

LOOP = "#b3001b"
#: below the boxes of a lane, so that it hides no label
_BELOW = 0.39


def draw(explanation: Mapping[str, Any]) -> Figure:
    """``explanation``: the JSON form; times from half a turn before the cycle begins."""
    data = explanation["timeline"]
    figure = timeline.draw(data, title(explanation))
    axes = figure.axes[0]
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    start = data["window"][0]

    def ms(ns: int) -> float:
        return float(ns - start) / 1e6

    def level(lane: str) -> float:
        return lanes.index(lane) - _BELOW

    for _, origin, left, lane, arrived, end in data["loop"]:
        if origin != lane:
            axes.annotate(
                "",
                xy=(ms(arrived), level(lane)),
                xytext=(ms(left), level(origin)),
                arrowprops={"arrowstyle": "-|>", "color": LOOP, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0},
                zorder=6,
            )
            left = arrived
        axes.plot(
            [ms(left), ms(end)], [level(lane)] * 2, color=LOOP, linewidth=2, solid_capstyle="butt", zorder=5
        )
    ends = [(data["loop"][0][1], data["loop"][0][2]), (data["loop"][-1][3], data["loop"][-1][5])]
    axes.plot(
        [ms(at) for _, at in ends], [level(lane) for lane, _ in ends], "o", color=LOOP, markersize=4, zorder=7
    )
    return figure


def title(explanation: Mapping[str, Any]) -> str:
    """What is shown, the critical side and the cycle time."""
    turns = explanation["critical_cycle"]["turns"]
    return (
        f"{explanation['program']}, batch {explanation['batch']}, "
        f"{explanation['mean_context']:g} tokens a request: critical cycle (red), {explanation['critical_side']}, "
        f"{explanation['cycle_us'] * turns / 1000:.2f} ms in {turns} turn{'s' if turns > 1 else ''}"
    )


def write(explanation: Mapping[str, Any], path: Path) -> None:
    """Writes ``path`` (.svg or .png), whole or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        save(lambda: draw(explanation), Path(folder), path.stem)
        os.replace(Path(folder) / path.name, path)
