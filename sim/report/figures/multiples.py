"""Changes from the reference, one panel a variant with a scale of its own: small ones stay visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from sim.report.figures.axes import apart, curve, over
from sim.report.figures.labels import above, room
from sim.report.series import Curve
from sim.report.style import GREY, canvas
from sim.report.text import percent

#: least inches of a panel; points that are not its x axis; points of the figures written
_WIDTH, _BESIDE, _SIZE = 3.4, 50.0, 6.2


def draw(
    x: str, changes: Sequence[Curve], shares: Sequence[Curve], colours: Mapping[str, str], label: str
) -> Figure:
    """``changes`` in µs with bars of their ``pi95``; of ``shares`` the per cent are written at the points."""
    columns = min(3, len(changes))
    rows = -(-len(changes) // columns)
    written = [_written(line, share) for line, share in zip(changes, shares, strict=True)]
    needed = [room(line.x, texts, _SIZE) for line, texts in zip(changes, written, strict=True)]
    width = max(_WIDTH, (max(needed) + _BESIDE) / 72)
    figure = canvas(width * columns, 2.3 * rows + 0.2)
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel, line, texts in zip(panels.flat, changes, written, strict=False):
        panel.axhline(0, color=GREY, linewidth=1)
        curve(panel, line, colours[line.variant], "pi95")
        over(panel, x, line.x)
        panel.margins(y=0.22)
        above(panel, line, texts, _SIZE, 72 * width - _BESIDE)
        low, high = panel.get_ylim()
        if high - low < 2:  # µs: nothing to see, and no axis of rounding errors
            panel.set_ylim(min(low, -1), max(high, 1))
        panel.set_title(line.label)
    for panel in list(panels.flat)[len(changes) :]:
        panel.set_visible(False)
    for panel in panels[:, 0]:
        panel.set_ylabel(label)
    return figure


def _written(line: Curve, share: Curve) -> list[str]:
    """The per cent at each point, empty where there is none or no room."""
    kept = apart(line.x)
    return [
        percent(part, 1) if y is not None and part is not None and a in kept else ""
        for a, y, part in zip(line.x, line.y, share.y, strict=True)
    ]
