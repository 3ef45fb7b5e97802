"""What is written into figures lies on no other writing, on no curve and inside its panel; looked at as drawn."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from sim.report.figures import idle, multiples, ratio
from sim.report.series import Curve
from sim.report.style import RC

CONCURRENCY = [1, 2, 4, 8, 16, 32, 48, 64]


def drawn(figure: Figure) -> Figure:
    figure.set_dpi(RC["savefig.dpi"])
    FigureCanvasAgg(figure).draw()
    return figure


def extent(text: Text) -> Bbox:
    return Bbox.from_extents(*text.get_window_extent().extents)


def overlapping(texts: list[Text]) -> list[tuple[str, str]]:
    pairs = itertools.combinations(texts, 2)
    return [(a.get_text(), b.get_text()) for a, b in pairs if extent(a).overlaps(extent(b))]


def crossed(panel: Axes, texts: list[Text]) -> list[str]:
    """Texts that the panel's first curve or a bar runs through."""
    found = []
    curve = max(panel.lines, key=lambda line: len(line.get_xdata()))
    points = panel.transData.transform(np.column_stack([curve.get_xdata(), curve.get_ydata()]))
    xs = np.linspace(points[0, 0], points[-1, 0], 2000)
    ys = np.interp(xs, points[:, 0], points[:, 1])
    for text in texts:
        box = extent(text)
        if any(box.contains(x, y) for x, y in zip(xs, ys, strict=True)):
            found.append(text.get_text())
    return found


def curve(variant: str, x: list[float], y: list[float | None], spread: float) -> Curve:
    bars = [None if v is None else (v - spread * abs(v), v + spread * abs(v)) for v in y]
    return Curve(variant, variant, x, y, bars, bars)


SHAPES = {
    "rising": [1070.0, 1110.0, 1180.0, 1330.0, 1640.0, 2250.0, 2870.0, 3470.0],
    "falling": [-610.0, -620.0, -635.0, -660.0, -720.0, -800.0, -890.0, -980.0],
    "steep": [1.0, 2.0, 4.0, 9.0, 30.0, 90.0, 250.0, 700.0],
    "zigzag": [-200.0, 300.0, -250.0, 280.0, -240.0, 260.0, -230.0, 250.0],
    "gap": [5.0, None, 7.0, 8.0, None, 40.0, 41.0, 42.0],
    "flat": [0.0] * 8,
}


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("spread", [0.0, 0.35])
@pytest.mark.parametrize(
    "xs", [CONCURRENCY, [1, 4, 16, 32], [1], [0.1, 0.2, 0.3], [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]
)
def test_per_cent_over_a_curve(shape: str, spread: float, xs: list[float]) -> None:
    ys = (SHAPES[shape] * 2)[: len(xs)]
    line = curve(shape, xs, ys, spread)
    share = curve(shape, xs, [None if y is None else -0.1324 for y in ys], 0)
    with mpl.rc_context(RC):
        figure = drawn(multiples.draw("concurrency", [line] * 4, [share] * 4, {shape: "#000000"}, "cycle"))
    for panel in figure.axes[:4]:
        texts = [t for t in panel.texts if isinstance(t, Annotation)]
        assert texts
        assert overlapping([*texts, *(t for t in panel.get_yticklabels() if t.get_text())]) == []
        assert crossed(panel, texts) == []
        for text in texts:
            box = extent(text)
            assert panel.bbox.x0 <= box.x0
            assert box.x1 <= panel.bbox.x1 + 1


@pytest.mark.parametrize("variants", [1, 2, 7, 12])
@pytest.mark.parametrize("largest", [0.0, 31.0, 3032.0, 123456.0])
@pytest.mark.parametrize("count", [1, 4, 8, 12])
def test_sums_over_bars(variants: int, largest: float, count: int) -> None:
    values = [2**i for i in range(count)]
    nothing = dict.fromkeys(idle.CAUSE_COLOURS, 0.0)
    steps = [nothing | {"fence": largest * (1 - 0.01 * i)} for i in range(count)]
    with mpl.rc_context(RC):
        figure = drawn(idle.draw("concurrency", values, {f"variant {i}": steps for i in range(variants)}))
    for panel in figure.axes[:variants]:
        assert len(panel.texts) == count
        assert overlapping(list(panel.texts)) == []
    assert figure.get_size_inches()[0] <= 14


def test_the_machine_s_own_ratio_is_named_where_no_curve_goes() -> None:
    lines = [ratio.Line("concurrency 1", [-20.0, -20.0, -20.0], (-1.0, 0.0))]
    with mpl.rc_context(RC):
        figure = drawn(ratio.draw("host / device", [0.5, 1, 2], [("A", lines)] * 2, "H200"))
    assert all(not panel.texts for panel in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["concurrency 1", "H200"]
