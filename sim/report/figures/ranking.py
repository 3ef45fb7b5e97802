"""Combinations by their place: how far behind the fastest."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from sim.report.style import canvas

_SAFE, _UNSAFE = "#0072b2", "#d55e00"


def draw(titles: Sequence[str], behind: Sequence[Sequence[float]], unsafe: Sequence[bool]) -> Figure:
    """``behind[i][k]``: of the combination at place i + 1, a share, in panel k."""
    figure = canvas(4.4 * len(titles), 3.4)
    panels = figure.subplots(1, len(titles), squeeze=False, sharey=True)[0]
    for k, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        for wanted, colour, label in ((False, _SAFE, "safe"), (True, _UNSAFE, "unsafe")):
            shown = [i for i, u in enumerate(unsafe) if u is wanted]
            panel.plot(
                [i + 1 for i in shown],
                [100 * behind[i][k] for i in shown],
                "o",
                color=colour,
                markersize=4,
                label=label,
            )
        panel.set_title(title)
        panel.set_xlabel("place")
        panel.tick_params(labelleft=True)
    panels[0].set_ylabel("behind the fastest, %")
    panels[0].legend()
    return figure
