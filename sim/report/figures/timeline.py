"""Two decode iterations on the host and on every stream that was used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sim.report.figures.idle import CAUSE_COLOURS
from sim.report.style import GREY, INK, canvas

LANES = ("host", "schedule", "plan", "d2h", "forward", "aux", "copy")
#: what the host does -> colour
SECTIONS = {
    "schedule": "#b9cfe8",
    "prepare": "#7fa8d6",
    "resolve": "#f2b880",
    "launch": "#4f81bd",
    "process": "#a5cfa5",
    "wait": "#eeeeee",
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
#: share of the window that one character takes, and a box too narrow for a border
_CHARACTER, _NARROW = 0.0056, 0.004


@dataclass(frozen=True)
class Box:
    """A stretch of a lane, ns."""

    start: int
    end: int
    colour: str
    label: str = ""
    hatch: str = ""


def draw(timeline: Mapping[str, Any], title: str) -> Figure:
    """``timeline``: as stored by a traced run; times in ns, shown in ms from the start of the window."""
    records = [dict(zip(timeline["fields"], row, strict=True)) for row in timeline["rows"]]
    window = timeline["window"]
    used = {r["lane"] for r in records}
    lanes = [lane for lane in LANES if lane in used]
    figure = canvas(10.5, 0.42 * len(lanes) + 1.4)
    axes = figure.subplots()
    for level, lane in enumerate(reversed(lanes)):
        inside = [r for r in records if r["lane"] == lane]
        boxes = host_boxes(inside) if lane == "host" else stream_boxes(inside, window[0], lane == "forward")
        _draw(axes, level, boxes, window)
    axes.set_yticks(range(len(lanes)), list(reversed(lanes)))
    axes.set_ylim(-0.6, len(lanes) - 0.4)
    axes.set_xlim(0, (window[1] - window[0]) / 1e6)
    axes.set_xlabel("ms")
    axes.set_title(title)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    causes = sorted({r["cause"] for r in records if r["lane"] == "forward" and r["cause"]})
    handles = [
        Patch(facecolor=colour, edgecolor=GREY, linewidth=0.5, label=f"host: {section}")
        for section, colour in SECTIONS.items()
    ]
    handles += [
        Patch(facecolor=CAUSE_COLOURS[c], edgecolor=GREY, hatch="////", label=f"idle: {c}") for c in causes
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(9, len(handles)), fontsize=7.5)
    return figure


def host_boxes(records: Iterable[Mapping[str, Any]]) -> list[Box]:
    """Neighbouring host records of one section as one box; waits with what they wait for."""
    boxes: list[Box] = []
    for r in records:
        waits = r["act"] == "synchronize"
        section = "wait" if waits else _SECTION_OF[r["phase"]]
        label = f"wait {r['event'] or r['name']}" if waits else section
        last = boxes[-1] if boxes else None
        if last is not None and last.label == label and last.end == r["start"]:
            boxes[-1] = Box(last.start, r["end"], last.colour, label)
        elif r["end"] > r["start"]:
            boxes.append(Box(r["start"], r["end"], SECTIONS[section], label))
    return boxes


def stream_boxes(records: Iterable[Mapping[str, Any]], start: int, forward: bool) -> list[Box]:
    """What ran on a stream; on the forward stream also its idle stretches, by cause."""
    boxes: list[Box] = []
    previous = start
    for r in sorted(records, key=lambda r: int(r["start"])):
        if r["act"] == "wait":
            continue
        if forward and r["cause"] and r["start"] > previous:
            boxes.append(Box(previous, r["start"], CAUSE_COLOURS[r["cause"]], hatch="////"))
        boxes.append(Box(r["start"], r["end"], SHADES[r["iteration"] % 2], r["name"]))
        previous = max(previous, r["end"])
    return boxes


def _draw(axes: Axes, level: int, boxes: Sequence[Box], window: Sequence[int]) -> None:
    start, end = window
    alike: dict[tuple[str, str, bool], list[list[tuple[float, float]]]] = defaultdict(list)
    for box in boxes:
        a, b = max(box.start, start), min(box.end, end)
        if b <= a:
            continue
        left, right, share = (a - start) / 1e6, (b - start) / 1e6, (b - a) / (end - start)
        low, high = level - 0.31, level + 0.31
        corners = [(left, low), (right, low), (right, high), (left, high)]
        alike[box.colour, box.hatch, share > _NARROW].append(corners)
        if share > _CHARACTER * (len(box.label) + 1) and box.label:
            axes.text(
                (left + right) / 2,
                level,
                box.label,
                ha="center",
                va="center",
                fontsize=7,
                color="white" if box.colour in (SHADES[0], SECTIONS["launch"]) else INK,
                bbox={"facecolor": box.colour, "edgecolor": "none", "pad": 1} if box.hatch else None,
            )
    for (colour, hatch, wide), shapes in alike.items():
        edge = GREY if hatch else "white" if wide else colour
        axes.add_collection(
            PolyCollection(shapes, facecolor=colour, edgecolor=edge, linewidth=0.4, hatch=hatch or None)
        )
