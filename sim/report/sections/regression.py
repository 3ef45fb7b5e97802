"""Where on a grid of machines a published change in throughput appears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.report.data import StudyData
from sim.report.document import Block, Figure, Section, Table
from sim.report.figures import heatmap, ratio
from sim.report.text import joined, percent, place, short
from sim.stats.paired import paired

if TYPE_CHECKING:
    from sim.study.spec import Pair, Published, PublishedShape

Grid = np.ndarray[Any, np.dtype[np.float64]]
#: the grid's axes and where the measured machine is on it
X, Y, HOME = "host_scale", "device_scale", {"host_scale": 1.0, "device_scale": 1.0}


@dataclass(frozen=True)
class Mapped:
    """A pair over the grid ``[device, host]``: at each published point the change in throughput, per cent, whether
    it is the published one, and which side limits the cycle before the change."""

    pair: Pair
    changes: list[Grid]
    matches: list[np.ndarray[Any, np.dtype[np.bool_]]]
    sides: list[np.ndarray[Any, np.dtype[np.str_]]]

    @property
    def every(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Where all published points appear at once."""
        return np.logical_and.reduce(self.matches)


@dataclass(frozen=True)
class Load:
    """A load of the machines: the factor value that gives it, and the quantity that changes are taken from."""

    name: str
    at: Mapping[str, Any]
    quantity: str

    def change(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
        """Change in throughput, a share: of the whole run, or at a full batch, where it is the inverse of that of the
        paired cycles."""
        pair = paired(before, after, self.quantity)
        if pair is None:
            return None
        return pair.relative.mean if self.quantity == "throughput_tok_s" else 1 / (1 + pair.relative.mean) - 1


def loads(data: StudyData) -> list[Load]:
    """The loads of a study, in its order; without a choice of them one, nameless and steady."""
    chosen = _published(data).loads
    if chosen is None:
        return [Load("", {}, "cycle_us")]
    return [
        Load(str(value), {chosen.factor: value}, chosen.quantity[str(value)])
        for value in data.factors[chosen.factor]
    ]


def mapped(data: StudyData, load: Load) -> list[Mapped]:
    """Every pair of the study under one load."""
    out = []
    for pair in data.study.pairs:
        changes, matches, sides = [], [], []
        for point in _points(data):
            change, side = _grids(data, pair, load, {point.factor: point.value})
            changes.append(change)
            sides.append(side)
            matches.append(np.abs(change - point.change_percent) <= point.tolerance_points)
        out.append(Mapped(pair, changes, matches, sides))
    return out


def _published(data: StudyData) -> PublishedShape:
    assert data.study.published is not None
    return data.study.published


def _points(data: StudyData) -> Sequence[Published]:
    return _published(data).points


def _grids(
    data: StudyData, pair: Pair, load: Load, fixed: Mapping[str, Any]
) -> tuple[Grid, np.ndarray[Any, np.dtype[np.str_]]]:
    shape = (len(data.factors[Y]), len(data.factors[X]))
    change = np.full(shape, np.nan)
    side = np.full(shape, "", dtype="U8")
    for i, device in enumerate(data.factors[Y]):
        for j, host in enumerate(data.factors[X]):
            at = {**load.at, **fixed, X: host, Y: device}
            first = data.find(pair.before, at)
            found = load.change(first, data.find(pair.after, at))
            change[i, j] = np.nan if found is None else 100 * found
            side[i, j] = first["critical_side"] or ""
    return change, side


def section(data: StudyData) -> Section:
    published = _published(data)
    wanted = joined(
        [
            f"{_signed(p.change_percent)} % (± {p.tolerance_points:g} points) at {p.factor} {short(p.value)}"
            for p in published.points
        ]
    )
    out = Section(
        "Map of machines",
        [
            f"Published: {wanted}. Source: {published.source}.",
            "A dot: the cell matches the figure published for that panel. A black frame: it matches all of them, "
            f"the published shape. Green: {published.home}.",
        ],
    )
    out.blocks.append(_home_table(data))
    for load in loads(data):
        grids = mapped(data, load)
        for grid in grids:
            name = grid.pair.name + (f", {load.name}" if load.name else "")
            out.blocks.append(
                f"**{name}**: {grid.pair.description}. {where(data, grid)}{_detail(data, grid)}"
            )
            out.blocks.append(_figure(data, load, grid))
        out.blocks += _by_ratio(data, load, grids)
        out.blocks += _level(data, load, grids)
    return out


def _level(data: StudyData, load: Load, grids: Sequence[Mapped]) -> list[Block]:
    """The machine whose throughput before is nearest to the published one at the worst point, and what it shows."""
    points = _points(data)
    if load.quantity != "throughput_tok_s" or any(p.before_tok_s is None for p in points):
        return []
    out: list[Block] = []
    for before in dict.fromkeys(grid.pair.before for grid in grids):
        levels = np.array(
            [
                [
                    [
                        data.find(before, {**load.at, p.factor: p.value, X: host, Y: device})[load.quantity][
                            "mean"
                        ]
                        for host in data.factors[X]
                    ]
                    for device in data.factors[Y]
                ]
                for p in points
            ]
        )
        wanted = np.array([p.before_tok_s for p in points], dtype=float)
        away = np.max(np.abs(np.log(levels / wanted[:, None, None])), axis=0)
        i, j = np.unravel_index(int(np.argmin(away)), away.shape)
        level = joined(
            [f"{v:,.0f} against {w:,.0f} tok/s" for v, w in zip(levels[:, i, j], wanted, strict=True)]
        )
        shown = joined(
            [
                f"{_short(grid.pair.name)} {' and '.join(f'{_signed(c[i, j], 2)} %' for c in grid.changes)}"
                for grid in grids
                if grid.pair.before == before
            ]
        )
        out.append(
            f"Which machine has the published throughput before the change (`{before}`)? The nearest of the map has "
            f"{place({X: _rounded(data.factors[X][j]), Y: _rounded(data.factors[Y][i])})}: {level}. There, at "
            f"{joined([f'{p.factor} {short(p.value)}' for p in points])}: {shown}."
        )
    return out


def _figure(data: StudyData, load: Load, grid: Mapped) -> Figure:
    pair = grid.pair
    under = f", {load.name}" if load.name else ""
    panels = [
        heatmap.Panel(f"{p.factor} {short(p.value)}", change, match)
        for p, change, match in zip(_points(data), grid.changes, grid.matches, strict=True)
    ]
    return Figure(
        f"map_{_short(pair.name).lower()}{_suffix(load)}",
        f"Heat maps of the change in throughput over {X} and {Y} for pair {pair.name}{under}",
        f"Pair {pair.name}{under}: change in throughput, %, from `{pair.before}` to `{pair.after}`.",
        partial(
            heatmap.draw,
            f"{X} (slower host →)",
            data.factors[X],
            f"{Y} (slower device →)",
            data.factors[Y],
            panels,
            grid.every,
            (HOME[X], HOME[Y]),
            _published(data).home,
        ),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _suffix(load: Load) -> str:
    return f"_{load.name.replace(' ', '_')}" if load.name else ""


def _short(name: str) -> str:
    """``A`` of ``A: relay and exact lengths``."""
    return name.partition(":")[0].strip().replace(" ", "_")


def _signed(value: float, digits: int | None = None) -> str:
    return (f"{value:+g}" if digits is None else f"{value:+.{digits}f}").replace("-", "−")


def _home_table(data: StudyData) -> Table:
    rows = []
    for load in loads(data):
        for pair in data.study.pairs:
            for p in _points(data):
                at = {**load.at, p.factor: p.value, **HOME}
                before, after = data.find(pair.before, at), data.find(pair.after, at)
                rows.append(
                    [
                        *([load.name] if load.name else []),
                        pair.name,
                        f"{p.factor} {short(p.value)}",
                        percent(load.change(before, after)),
                        _microseconds(before, after) if load.quantity == "cycle_us" else "–",
                        f"{before['throughput_tok_s']['mean']:,.0f}",
                        percent(p.change_percent / 100, 1),
                    ]
                )
    headers = ["pair", "at", "throughput", "µs a step", "before, tok/s", "published"]
    if any(load.name for load in loads(data)):
        headers.insert(0, "load")
    return Table(headers, rows, f"What {_published(data).home} itself shows ({place(HOME)})")


def _microseconds(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    change = paired(before, after, "cycle_us")
    return "–" if change is None else _signed(change.absolute.mean, 0)


def _ratios(data: StudyData) -> dict[float, list[tuple[int, int]]]:
    """Host cost over device cost -> the grid's cells with that ratio."""
    cells: dict[float, list[tuple[int, int]]] = {}
    for i, device in enumerate(data.factors[Y]):
        for j, host in enumerate(data.factors[X]):
            cells.setdefault(_rounded(host / device), []).append((i, j))
    return dict(sorted(cells.items()))


def _by_ratio(data: StudyData, load: Load, grids: Sequence[Mapped]) -> list[Block]:
    """The change against host over device cost: what a machine's ratio alone decides."""
    cells = _ratios(data)
    spread = max(
        float(np.ptp([change[cell] for cell in on]))
        for g in grids
        for change in g.changes
        for on in cells.values()
    )
    lines = {
        (grid.pair.name, k): [float(np.mean([change[cell] for cell in on])) for on in cells.values()]
        for grid in grids
        for k, change in enumerate(grid.changes)
    }
    points = _points(data)
    panels = [
        (
            grid.pair.name,
            [
                ratio.Line(
                    f"{p.factor} {short(p.value)} (band: published)",
                    lines[grid.pair.name, k],
                    (p.change_percent - p.tolerance_points, p.change_percent + p.tolerance_points),
                )
                for k, p in enumerate(points)
            ],
        )
        for grid in grids
    ]
    label = f"{X} / {Y}"
    under = f", {load.name}" if load.name else ""
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
            f"ratio{_suffix(load)}",
            f"Change in throughput over {label}{under}, a panel a pair, a line and a band a published point",
            f"Change in throughput, %, over {label}{under}: mean of each diagonal. Bands: the published figures.",
            partial(ratio.draw, label, list(cells), panels, _published(data).home),
        ),
        Table(
            headers,
            rows,
            f"Change in throughput, %, by ratio{under}, and what limits the cycle before the change",
        ),
    ]


def where(data: StudyData, grid: Mapped) -> str:
    """In words: which machines of the map show the published shape."""
    cells = _ratios(data)
    found = [r for r, on in cells.items() if any(grid.every[cell] for cell in on)]
    if not found:
        return "No machine of the map shows the published shape."
    return (
        f"The published shape appears at {int(grid.every.sum())} of {grid.every.size} machines, those whose "
        f"host is slower against their device than the measured one's by a factor of {_runs(found, list(cells))}."
    )


def _detail(data: StudyData, grid: Mapped) -> str:
    """Where each published point appears by itself, and what the others are there; nothing where all do at once."""
    if grid.every.any():
        return ""
    cells = _ratios(data)
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
            f"{at} appears at a ratio of host to device cost of {_runs(matching, list(cells))}, where "
            f"{joined(others)}"
        )
    return f" {'; '.join(parts)}.{_order(data, grid)}"


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
        f" A clearly larger loss at {names[1]} than at {names[0]} appears at a ratio of "
        f"{_runs(ratios, list(on))}: there {names[0]} is limited by {sides[0]}"
        f" ({_between([first[cell] for cell in cells])} %) and {names[1]} by "
        f"{sides[1]} ({_between([last[cell] for cell in cells])} %)."
    )


_SIDES = {"gpu": "the device", "host": "the host", "exposed": "exposed host time", "": "neither side"}


def _runs(values: Sequence[float], every: Sequence[float]) -> str:
    """``values`` as the runs they form among ``every``, both ascending: ``1 to 2 and 5.66``."""
    runs: list[list[float]] = []
    for value in values:
        if runs and every.index(value) == every.index(runs[-1][-1]) + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return joined([f"{run[0]:g}" if len(run) == 1 else f"{run[0]:g} to {run[-1]:g}" for run in runs])


def _between(values: Sequence[float]) -> str:
    low, high = (_signed(end, 1).replace("−0.0", "0.0") for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def sentences(data: StudyData) -> list[str]:
    """One sentence a load and pair, then what the measured machine shows."""
    out = []
    for load in loads(data):
        for grid in mapped(data, load):
            at_home = []
            for p in _points(data):
                at = {**load.at, p.factor: p.value, **HOME}
                change = load.change(data.find(grid.pair.before, at), data.find(grid.pair.after, at))
                at_home.append(f"{percent(change)} at {p.factor} {short(p.value)}")
            name = grid.pair.name + (f", {load.name}" if load.name else "")
            out.append(f"**{name}**: {where(data, grid)} {_published(data).home} itself: {joined(at_home)}.")
    return out
