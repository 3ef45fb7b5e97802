"""Figures written into a panel: how wide they are, and how far up they must go to lie on nothing drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from sim.report.figures.axes import logarithmic
from sim.report.series import Curve

#: widths of the characters of figures in the reports' font, in sizes of the font; of a digit for all others
_DIGIT, _WIDTHS = 0.637, {",": 0.318, ".": 0.318, " ": 0.318, "+": 0.838, "−": 0.838, "%": 0.951}
#: points between a label and what it stands on
GAP = 3.0


def width(text: str, size: float) -> float:
    """Points that a figure written as ``text`` takes at a font size."""
    return size * sum(_WIDTHS.get(character, _DIGIT) for character in text)


def room(xs: Sequence[float], texts: Sequence[str], size: float) -> float:
    """Points that an x axis needs for ``texts`` to stand side by side over ``xs``, empty texts left out."""
    places = _places(xs)
    written = sorted(place for place, text in zip(places, texts, strict=True) if text)
    widest = max((width(text, size) for text in texts), default=0.0) + GAP
    nearest = min((b - a for a, b in pairwise(written)), default=0.0)
    return widest * (1 + (max(places) - min(places)) / nearest) if nearest > 0 else widest


def above(panel: Axes, line: Curve, texts: Sequence[str], size: float, panel_width: float) -> None:
    """Writes ``texts`` centred over the points of ``line``, each clear of the curve and of the bars of its ``pi95``.

    ``panel_width``, points, is what the x axis takes; its margins are made so that the first and the last label lie
    inside. Empty texts are not written, points without a value passed over.
    """
    drawn = [
        (x, y, max(y, bar[1]) if bar else y, text)
        for x, y, bar, text in zip(line.x, line.y, line.pi95, texts, strict=True)
        if y is not None
    ]
    if not drawn:
        return
    places = _places([x for x, *_ in drawn])
    span = max(places) - min(places)
    half = max(width(text, size) for text in texts) / 2 + 1
    margin = half / max(panel_width - 2 * half, half)
    panel.margins(x=max(margin, 0.05))
    reach = half / panel_width * (1 + 2 * margin) * span
    for (x, _, top, text), place in zip(drawn, places, strict=True):
        if text:
            ys = [y for _, y, _, _ in drawn]
            covered = [_curve(places, ys, place + side * reach) for side in (-1, 1)]
            covered += [t for p, (_, _, t, _) in zip(places, drawn, strict=True) if abs(p - place) < reach]
            at = (x, max(top, *covered))
            panel.annotate(
                text, at, (0, GAP), textcoords="offset points", ha="center", va="bottom", fontsize=size
            )


def _places(xs: Sequence[float]) -> list[float]:
    return [math.log2(x) for x in xs] if logarithmic(xs) else list(xs)


def _curve(places: Sequence[float], ys: Sequence[float], at: float) -> float:
    """The straight lines between the points, level beyond the ends."""
    for (a, y), (b, z) in pairwise(zip(places, ys, strict=True)):
        if a <= at <= b:
            return y + (z - y) * (at - a) / (b - a) if b > a else max(y, z)
    return ys[0] if at < places[0] else ys[-1]
