"""How figures look, and how they are saved so that equal data give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

#: told apart by the colour-blind too (Okabe and Ito 2008), the reference's first; then repeated
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c6d31")
INK, GREY, GRID = "#222222", "#6b6b6b", "#e4e4e4"
RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    # Names are the user's: a dollar is a dollar.
    "text.parse_math": False,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "overlapsim",
}


def canvas(width: float, height: float) -> Figure:
    """An empty figure, inches; drawn without any window system."""
    return Figure(figsize=(width, height), layout="constrained")


def save(draw: Callable[[], Figure], folder: Path, name: str) -> None:
    """``name.png`` and ``name.svg``; neither carries a date or a program's version."""
    with mpl.rc_context(RC):  # type: ignore[arg-type]
        figure = draw()
        figure.set_dpi(RC["savefig.dpi"])
        # Straight to the backends: savefig would lay out and draw everything once more for each.
        FigureCanvasAgg(figure).print_png(folder / f"{name}.png", metadata={"Software": None})
        figure.set_layout_engine("none")
        figure.set_dpi(72)
        text = io.StringIO()
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
        # A viewer without the font takes one as wide.
        fonts = "'DejaVu Sans', Verdana, sans-serif"
        (folder / f"{name}.svg").write_text(text.getvalue().replace("'DejaVu Sans'", fonts), encoding="utf-8")


def colours(names: list[str], reference: str | None) -> dict[str, str]:
    """A colour for each name, the same in every figure of a report; the reference has the first."""
    ordered = sorted(names, key=lambda name: (name != reference, names.index(name)))
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(ordered)}
