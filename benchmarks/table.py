"""The rates of a run as a table, what they are measured against, and growth as figures."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sim.files import json_text, write_atomically
from sim.report.style import COLOURS, canvas, save


@dataclass
class Rate:
    """``per_second`` of something; ``limit`` names the bare loop it cannot exceed and that loop's rate."""

    name: str
    unit: str
    per_second: float
    goal: float | None = None
    limits: dict[str, float] = field(default_factory=dict)


@dataclass
class Growth:
    """One quantity over a growing size. ``quantity`` has its unit in its name."""

    name: str
    size: str
    quantity: str
    sizes: list[int]
    values: list[float]

    @property
    def exponent(self) -> float:
        """Slope of the log-log line through the upper half of the sizes: 1 is proportional."""
        upper = slice(len(self.sizes) // 2, None)
        return float(np.polyfit(np.log(self.sizes[upper]), np.log(self.values[upper]), 1)[0])


@dataclass
class Tables:
    rates: list[Rate] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The report's body, Markdown."""
        out = ["| what | a second | goal | reached | of the limit |", "|---|---:|---:|---|---|"]
        for r in self.rates:
            goal = "" if r.goal is None else f"≥ {r.goal:,.0f}"
            reached = "" if r.goal is None else ("yes" if r.per_second >= r.goal else "**no**")
            limits = "; ".join(f"{r.per_second / v:.1%} of {name} ({v:,.0f})" for name, v in r.limits.items())
            out.append(f"| {r.name} | {r.per_second:,.0f} {r.unit} | {goal} | {reached} | {limits} |")
        for g in self.growths:
            out += ["", f"{g.name} (upper half grows as {g.size} to the {g.exponent:.2f}):", ""]
            out.append("| " + " | ".join([g.size, *(f"{s:,}" for s in g.sizes)]) + " |")
            out.append("|---" * (len(g.sizes) + 1) + "|")
            out.append("| " + " | ".join([g.quantity, *(f"{v:,.4g}" for v in g.values)]) + " |")
        return out


def write(tables: Tables, folder: Path) -> None:
    """``report.md``, ``results.json`` and ``growth.{svg,png}``; each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    if tables.growths:
        save(lambda: _growth(tables.growths), folder, "growth")
    head = [
        "# Speed",
        "",
        f"One core of {_processor()} ({os.cpu_count()} cores in the machine), CPython {platform.python_version()}, "
        "CPU time, best of three rounds after one to warm up. Made by",
        "",
        "    python -m pytest benchmarks --speed-report reports/performance",
        "",
        "The SimPy model runs the shipped programs with every host section, every kernel and both graphs, noise, "
        "prefills and merges included; its iterations are decode iterations. A bare SimPy loop schedules as many "
        "events as one iteration does and does nothing else; a bare Python loop unpacks, adds and compares once for "
        "each operation of one iteration.",
        "",
    ]
    tail = ["", "![growth](growth.png)"] if tables.growths else []
    write_atomically(folder / "report.md", "\n".join([*head, *tables.lines(), *tail]) + "\n")
    results = {
        "processor": _processor(),
        "python": platform.python_version(),
        "rates": [asdict(r) for r in tables.rates],
        "growths": [asdict(g) for g in tables.growths],
    }
    write_atomically(folder / "results.json", json_text(results))


def _processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in names if "model name" in line), platform.machine())


def _growth(growths: list[Growth]) -> Figure:
    figure = canvas(3.4 * len(growths), 3.0)
    for axes, growth, colour in zip(
        np.atleast_1d(figure.subplots(1, len(growths))), growths, COLOURS, strict=False
    ):
        axes.loglog(growth.sizes, growth.values, "o-", color=colour, markersize=4)
        for axis in (axes.xaxis, axes.yaxis):  # no powers: figures write names as they are, so no formulas
            axis.set_major_locator(LogLocator(numticks=6))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(growth.size)
        axes.set_ylabel(growth.quantity)
        axes.set_title(growth.name, fontsize=8.5)
    return figure
