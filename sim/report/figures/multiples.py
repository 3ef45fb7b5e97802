"""Changes from the reference, one panel a variant with a scale of its own: small ones stay visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from sim.report.figures.axes import apart, curve, over
from sim.report.series import Curve
from sim.report.style import GREY, canvas
from sim.report.text import percent


def draw(
    x: str, changes: Sequence[Curve], shares: Sequence[Curve], colours: Mapping[str, str], label: str
) -> Figure:
    """``changes`` in µs with bars of their ``pi95``; of ``shares`` the per cent are written at the points."""
    columns = min(3, len(changes))
    rows = -(-len(changes) // columns)
    figure = canvas(3.4 * columns, 2.3 * rows + 0.2)
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel, line, share in zip(panels.flat, changes, shares, strict=False):
        panel.axhline(0, color=GREY, linewidth=1)
        curve(panel, line, colours[line.variant], "pi95")
        over(panel, x, line.x)
        panel.margins(y=0.22)
        for a, y, bar, part in zip(line.x, line.y, line.pi95, share.y, strict=True):
            if y is not None and part is not None and a in apart(line.x):
                top = max(y, bar[1]) if bar else y
                panel.annotate(
                    percent(part, 1), (a, top), (0, 4), textcoords="offset points", ha="center", fontsize=6.5
                )
        low, high = panel.get_ylim()
        if high - low < 2:  # µs: nothing to see, and no axis of rounding errors
            panel.set_ylim(-1, 1)
        panel.set_title(line.label)
    for panel in list(panels.flat)[len(changes) :]:
        panel.set_visible(False)
    for panel in panels[:, 0]:
        panel.set_ylabel(label)
    return figure
