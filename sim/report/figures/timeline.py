"""Two decode iterations on the host and on every stream that was used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sim.report.figures.idle import CAUSE_COLOURS
from sim.report.style import GREY, INK, canvas

LANES = ("host", "schedule", "plan", "d2h", "forward", "copy", "aux")
#: section of the scheduler on the host -> colour
SECTIONS = {
    "schedule": "#b9cfe8",
    "prepare": "#7fa8d6",
    "resolve": "#f2b880",
    "launch": "#4f81bd",
    "process": "#a5cfa5",
    "wait": "#ffffff",
}
_SECTION_OF = {
    "receive": "schedule",
    "schedule": "schedule",
    "prepare": "prepare",
    "resolve": "resolve",
    "enter": "launch",
    "forward": "launch",
    "copy": "launch",
    "queue": "process",
    "process": "process",
}
#: iterations alternate between two shades of a device lane
SHADES = ("#3c6e71", "#84a9ac")
#: a stretch narrower than this share of the window is drawn but not written on
_ROOM = 0.035


def draw(timeline: Mapping[str, Any], title: str) -> Figure:
    """``timeline``: as stored by a traced run; times in ns, shown in ms from the start of the window."""
    records = [dict(zip(timeline["fields"], row, strict=True)) for row in timeline["rows"]]
    start, end = timeline["window"]
    used = {r["lane"] for r in records}
    lanes = [lane for lane in LANES if lane in used]
    figure = canvas(10.5, 0.42 * len(lanes) + 1.5)
    axes = figure.subplots()
    for level, lane in enumerate(reversed(lanes)):
        inside = [r for r in records if r["lane"] == lane]
        if lane == "host":
            _host(axes, level, inside, start, end)
        else:
            _stream(axes, level, inside, start, end, forward=lane == "forward")
    axes.set_yticks(range(len(lanes)), list(reversed(lanes)))
    axes.set_ylim(-0.6, len(lanes) - 0.4)
    axes.set_xlim(0, (end - start) / 1e6)
    axes.set_xlabel("ms")
    axes.set_title(title)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    causes = sorted({r["cause"] for r in records if r["lane"] == "forward" and r["cause"]})
    handles = [
        Patch(facecolor=c, edgecolor=GREY, linewidth=0.5, label=f"host: {s}") for s, c in SECTIONS.items()
    ]
    handles += [Patch(facecolor=CAUSE_COLOURS[c], hatch="//", label=f"idle: {c}") for c in causes]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(8, len(handles)), fontsize=7.5)
    return figure


def _host(axes: Axes, level: int, records: Iterable[Mapping[str, Any]], start: int, end: int) -> None:
    for section, a, b in _merged(records):
        waits = section == "wait"
        _bar(axes, level, a, b, start, end, SECTIONS[section], hatch="...." if waits else None)


def _merged(records: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    """Neighbouring host records of one section as one stretch."""
    stretches: list[tuple[str, int, int]] = []
    for r in records:
        section = "wait" if r["act"] == "synchronize" else _SECTION_OF[r["phase"]]
        if stretches and stretches[-1][0] == section and stretches[-1][2] == r["start"]:
            stretches[-1] = (section, stretches[-1][1], r["end"])
        elif r["end"] > r["start"]:
            stretches.append((section, r["start"], r["end"]))
    return stretches


def _stream(
    axes: Axes, level: int, records: Sequence[Mapping[str, Any]], start: int, end: int, forward: bool
) -> None:
    previous = start
    for r in sorted(records, key=lambda r: int(r["start"])):
        if r["act"] == "wait":
            continue
        if forward and r["cause"] and r["start"] > previous:
            _bar(axes, level, previous, r["start"], start, end, CAUSE_COLOURS[r["cause"]], hatch="//")
        shade = SHADES[r["iteration"] % 2]
        label = r["name"] if forward else ""
        _bar(axes, level, r["start"], r["end"], start, end, shade, label=label)
        previous = max(previous, r["end"])


def _bar(
    axes: Axes,
    level: int,
    a: int,
    b: int,
    start: int,
    end: int,
    colour: str,
    hatch: str | None = None,
    label: str = "",
) -> None:
    a, b = max(a, start), min(b, end)
    if b <= a:
        return
    left, width = (a - start) / 1e6, (b - a) / 1e6
    wide = b - a > 0.004 * (end - start)
    axes.barh(
        level,
        width,
        0.62,
        left=left,
        color=colour,
        edgecolor=GREY if hatch else "white" if wide else colour,
        linewidth=0.4,
        hatch=hatch,
    )
    if label and b - a > max(_ROOM, 0.0085 * len(label)) * (end - start):
        dark = colour == SHADES[0]
        axes.text(
            left + width / 2,
            level,
            label,
            ha="center",
            va="center",
            fontsize=7,
            color="white" if dark else INK,
        )
