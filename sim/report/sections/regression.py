"""Where on a grid of machines a published change in throughput appears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sim.report.data import StudyData
from sim.report.document import Block, Figure, Section, Table
from sim.report.figures import heatmap, ratio
from sim.report.text import joined, percent, place, short
from sim.stats.paired import paired

Grid = np.ndarray[Any, np.dtype[np.float64]]
#: the grid's axes and where the measured machine is on it
X, Y, HOME = "host_scale", "device_scale", {"host_scale": 1.0, "device_scale": 1.0}


@dataclass(frozen=True)
class Mapped:
    """A pair over the grid ``[device, host]``: at each published point the change in throughput, per cent, whether
    it is the published one, and which side limits the cycle before the change."""

    name: str
    changes: list[Grid]
    matches: list[np.ndarray[Any, np.dtype[np.bool_]]]
    sides: list[np.ndarray[Any, np.dtype[np.str_]]]

    @property
    def every(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Where all published points appear at once."""
        return np.logical_and.reduce(self.matches)


def mapped(data: StudyData) -> list[Mapped]:
    """Every pair of the study."""
    out = []
    for pair in data.study.pairs:
        changes, matches, sides = [], [], []
        for point in _points(data):
            change, side = _grids(data, pair.before, pair.after, {point.factor: point.value})
            changes.append(change)
            sides.append(side)
            matches.append(np.abs(change - point.change_percent) <= point.tolerance_points)
        out.append(Mapped(pair.name, changes, matches, sides))
    return out


def _points(data: StudyData) -> Sequence[Any]:
    assert data.study.published is not None
    return data.study.published.points


def throughput_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Change in throughput at a full batch, a share: the inverse of the change of the paired cycles."""
    pair = paired(before, after, "cycle_us")
    return None if pair is None else 1 / (1 + pair.relative.mean) - 1


def _grids(
    data: StudyData, before: str, after: str, fixed: Mapping[str, Any]
) -> tuple[Grid, np.ndarray[Any, np.dtype[np.str_]]]:
    shape = (len(data.factors[Y]), len(data.factors[X]))
    change = np.full(shape, np.nan)
    side = np.full(shape, "", dtype="U8")
    for i, device in enumerate(data.factors[Y]):
        for j, host in enumerate(data.factors[X]):
            at = {**fixed, X: host, Y: device}
            first = data.find(before, at)
            found = throughput_change(first, data.find(after, at))
            change[i, j] = np.nan if found is None else 100 * found
            side[i, j] = first["critical_side"] or ""
    return change, side


def section(data: StudyData) -> Section:
    published = data.study.published
    assert published is not None
    wanted = joined(
        [
            f"{_signed(p.change_percent)} % (± {p.tolerance_points:g} points) at {p.factor} {short(p.value)}"
            for p in published.points
        ]
    )
    grids = mapped(data)
    out = Section(
        "Map of machines",
        [
            f"Published: {wanted}. Source: {published.source}.",
            "A dot: the cell matches the figure published for that panel. A black frame: it matches all of them, "
            f"the published shape. Green: {published.home}.",
        ],
    )
    for pair, grid in zip(data.study.pairs, grids, strict=True):
        out.blocks += [f"**{pair.name}**: {pair.description}. {where(data, grid)}", _figure(data, pair, grid)]
    out.blocks.append(_home_table(data))
    out.blocks += _by_ratio(data, grids)
    return out


def _figure(data: StudyData, pair: Any, grid: Mapped) -> Figure:
    panels = [
        heatmap.Panel(f"{p.factor} {short(p.value)}", change, match)
        for p, change, match in zip(_points(data), grid.changes, grid.matches, strict=True)
    ]
    assert data.study.published is not None
    return Figure(
        f"map_{_short(pair.name).lower()}",
        f"Heat maps of the change in throughput over {X} and {Y} for pair {pair.name}",
        f"Pair {pair.name}: change in throughput, %, from `{pair.before}` to `{pair.after}`.",
        partial(
            heatmap.draw,
            f"{X} (slower host →)",
            data.factors[X],
            f"{Y} (slower device →)",
            data.factors[Y],
            panels,
            grid.every,
            (HOME[X], HOME[Y]),
            data.study.published.home,
        ),
    )


def _short(name: str) -> str:
    """``A`` of ``A: relay and exact lengths``."""
    return name.partition(":")[0].strip().replace(" ", "_")


def _signed(value: float, digits: int | None = None) -> str:
    return (f"{value:+g}" if digits is None else f"{value:+.{digits}f}").replace("-", "−")


def _home_table(data: StudyData) -> Table:
    assert data.study.published is not None
    rows = []
    for pair in data.study.pairs:
        for p in _points(data):
            at = {p.factor: p.value, **HOME}
            before, after = data.find(pair.before, at), data.find(pair.after, at)
            change = paired(before, after, "cycle_us")
            assert change is not None
            rows.append(
                [
                    pair.name,
                    f"{p.factor} {short(p.value)}",
                    percent(throughput_change(before, after)),
                    _signed(change.absolute.mean, 0),
                    f"{before['cycle_us']['mean']:,.0f}",
                    percent(p.change_percent / 100, 1),
                ]
            )
    headers = ["pair", "at", "throughput", "µs a step", "cycle before, µs", "published"]
    return Table(headers, rows, f"What {data.study.published.home} itself shows ({place(HOME)})")


def _ratios(data: StudyData) -> dict[float, list[tuple[int, int]]]:
    """Host cost over device cost -> the grid's cells with that ratio."""
    cells: dict[float, list[tuple[int, int]]] = {}
    for i, device in enumerate(data.factors[Y]):
        for j, host in enumerate(data.factors[X]):
            cells.setdefault(float(f"{host / device:.3g}"), []).append((i, j))
    return dict(sorted(cells.items()))


def _by_ratio(data: StudyData, grids: Sequence[Mapped]) -> list[Block]:
    """The change against host over device cost: what a machine's ratio alone decides."""
    assert data.study.published is not None
    cells = _ratios(data)
    spread = max(
        float(np.ptp([change[cell] for cell in on]))
        for g in grids
        for change in g.changes
        for on in cells.values()
    )
    lines = {
        (grid.name, k): [float(np.mean([change[cell] for cell in on])) for on in cells.values()]
        for grid in grids
        for k, change in enumerate(grid.changes)
    }
    points = _points(data)
    panels = [
        (
            grid.name,
            [
                ratio.Line(
                    f"{p.factor} {short(p.value)} (band: published)",
                    lines[grid.name, k],
                    (p.change_percent - p.tolerance_points, p.change_percent + p.tolerance_points),
                )
                for k, p in enumerate(points)
            ],
        )
        for grid in grids
    ]
    label = f"{X} / {Y}"
    headers = [label, *(f"{_short(name)} at {short(points[k].value)}" for name, k in lines)]
    headers += [f"limited by, at {short(p.value)}" for p in points]
    rows = []
    for n, (r, on) in enumerate(cells.items()):
        sides = [joined(sorted({str(side[cell]) for cell in on})) for side in grids[0].sides]
        rows.append([f"{r:g}", *(_signed(line[n], 2) for line in lines.values()), *sides])
    return [
        "Every cost is the host's or the device's, so what counts is their ratio, a diagonal of the map: along a "
        f"diagonal the change varies by at most {spread:.2g} points. The same on one axis:",
        Figure(
            "ratio",
            f"Change in throughput over {label}, a panel a pair, a line and a band a published point",
            f"Change in throughput, %, over {label}: mean of each diagonal. Bands: the published figures.",
            partial(ratio.draw, label, list(cells), panels, data.study.published.home),
        ),
        Table(
            headers, rows, "Change in throughput, %, by ratio, and what limits the cycle before the change"
        ),
    ]


def where(data: StudyData, grid: Mapped) -> str:
    """In words: which machines of the map show the published shape, or what stands against it."""
    cells = _ratios(data)
    found = [r for r, on in cells.items() if any(grid.every[cell] for cell in on)]
    if found:
        return (
            f"The published shape appears at {int(grid.every.sum())} of {grid.every.size} machines, those whose "
            f"host is slower against their device than the measured one's by a factor of {_range(found)}."
        )
    parts = []
    for k, p in enumerate(_points(data)):
        at = f"{_signed(p.change_percent)} % at {p.factor} {short(p.value)}"
        matching = [r for r, on in cells.items() if any(grid.matches[k][cell] for cell in on)]
        if not matching:
            parts.append(f"{at} appears nowhere")
            continue
        on = [cell for r in matching for cell in cells[r] if grid.matches[k][cell]]
        others = [
            f"the change at {q.factor} {short(q.value)} is {_between([grid.changes[m][cell] for cell in on])} %"
            for m, q in enumerate(_points(data))
            if m != k
        ]
        parts.append(
            f"{at} appears at a ratio of host to device cost of {_range(matching)}, where {joined(others)}"
        )
    return f"No machine of the map shows the published shape: {'; '.join(parts)}.{_order(data, grid)}"


def _order(data: StudyData, grid: Mapped) -> str:
    """Where the last published point at least loses clearly more than the first, as published, and how much."""
    points = _points(data)
    first, last = grid.changes[0], grid.changes[-1]
    if len(points) < 2 or points[-1].change_percent >= points[0].change_percent:
        return ""
    names = [f"{p.factor} {short(p.value)}" for p in (points[0], points[-1])]
    clearly = last < first - points[-1].tolerance_points
    on = {r: [cell for cell in cells if clearly[cell]] for r, cells in _ratios(data).items()}
    ratios = [r for r, cells in on.items() if cells]
    if not ratios:
        return f" Nowhere is the loss at {names[1]} clearly larger than at {names[0]}."
    cells = [cell for there in on.values() for cell in there]
    sides = [
        joined(sorted({_SIDES[str(side[cell])] for cell in cells}))
        for side in (grid.sides[0], grid.sides[-1])
    ]
    return (
        f" A clearly larger loss at {names[1]} than at {names[0]} appears at a ratio of {_range(ratios)}: there "
        f"{names[0]} is limited by {sides[0]} ({_between([first[cell] for cell in cells])} %) and {names[1]} by "
        f"{sides[1]} ({_between([last[cell] for cell in cells])} %)."
    )


_SIDES = {"gpu": "the device", "host": "the host", "exposed": "exposed host time", "": "neither side"}


def _range(values: Sequence[float]) -> str:
    return f"{values[0]:g}" if len(values) == 1 else f"{min(values):g} to {max(values):g}"


def _between(values: Sequence[float]) -> str:
    low, high = (_signed(end, 1).replace("−0.0", "0.0") for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def sentences(data: StudyData) -> list[str]:
    """One sentence a pair, then what the measured machine shows."""
    assert data.study.published is not None
    out = []
    for pair, grid in zip(data.study.pairs, mapped(data), strict=True):
        at_home = []
        for p in _points(data):
            at = {p.factor: p.value, **HOME}
            change = throughput_change(data.find(pair.before, at), data.find(pair.after, at))
            at_home.append(f"{percent(change)} at {p.factor} {short(p.value)}")
        home = data.study.published.home
        out.append(f"**{pair.name}**: {where(data, grid)} {home} itself: {joined(at_home)}.")
    return out
