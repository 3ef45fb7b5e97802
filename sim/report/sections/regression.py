"""Where on a grid of machines a published change in throughput appears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.report.data import StudyData
from sim.report.document import Figure, Section, Table
from sim.report.figures import heatmap
from sim.report.text import joined, percent, place, short
from sim.stats.paired import paired

Grid = np.ndarray[Any, np.dtype[np.float64]]
#: the grid's axes and where the measured machine is on it
X, Y, HOME = "host_scale", "device_scale", {"host_scale": 1.0, "device_scale": 1.0}


@dataclass(frozen=True)
class Mapped:
    """A pair's change in throughput, per cent, ``[device, host]``, at each published point, and what matches."""

    name: str
    changes: list[Grid]
    matches: list[np.ndarray[Any, np.dtype[np.bool_]]]

    @property
    def both(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.logical_and.reduce(self.matches)


def mapped(data: StudyData) -> list[Mapped]:
    """Every pair over the grid."""
    assert data.study.published is not None
    points = data.study.published.points
    out = []
    for pair in data.study.pairs:
        changes = [_grid(data, pair.before, pair.after, {p.factor: p.value}) for p in points]
        matches = [
            np.abs(change - p.change_percent) <= p.tolerance_points
            for change, p in zip(changes, points, strict=True)
        ]
        out.append(Mapped(pair.name, changes, matches))
    return out


def throughput_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Change in throughput at a full batch, a share: the inverse of the change of the paired cycles."""
    pair = paired(before, after, "cycle_us")
    return None if pair is None else 1 / (1 + pair.relative.mean) - 1


def _grid(data: StudyData, before: str, after: str, fixed: Mapping[str, Any]) -> Grid:
    grid = np.full((len(data.factors[Y]), len(data.factors[X])), np.nan)
    for i, device in enumerate(data.factors[Y]):
        for j, host in enumerate(data.factors[X]):
            at = {**fixed, X: host, Y: device}
            change = throughput_change(data.find(before, at), data.find(after, at))
            if change is not None:
                grid[i, j] = 100 * change
    return grid


def section(data: StudyData) -> Section:
    published = data.study.published
    assert published is not None
    wanted = joined(
        [
            f"{p.change_percent:+g} % (± {p.tolerance_points:g} points) at {p.factor} {short(p.value)}".replace(
                "-", "−"
            )
            for p in published.points
        ]
    )
    out = Section(
        "Map of machines",
        [
            f"Published: {wanted}. Source: {published.source}.",
            "A dot: the cell matches the figure published for that panel's concurrency. A black frame: it matches "
            f"all of them, the published shape. Green: {published.home}.",
        ],
    )
    hosts, devices = data.factors[X], data.factors[Y]
    home = (HOME[X], HOME[Y])
    for pair, grid in zip(data.study.pairs, mapped(data), strict=True):
        panels = [
            heatmap.Panel(f"{p.factor} {short(p.value)}", change, match)
            for p, change, match in zip(published.points, grid.changes, grid.matches, strict=True)
        ]
        out.blocks.append(f"**{pair.name}**: {pair.description}. {_where(data, grid)}")
        out.blocks.append(
            Figure(
                f"map_{pair.name.partition(':')[0].strip().lower().replace(' ', '_')}",
                f"Heat maps of the change in throughput over {X} and {Y}, a panel a published point, pair {pair.name}",
                f"Pair {pair.name}: change in throughput, %, from `{pair.before}` to `{pair.after}`.",
                lambda panels=panels, grid=grid: heatmap.draw(  # type: ignore[misc]
                    f"{X} (slower host →)",
                    hosts,
                    f"{Y} (slower device →)",
                    devices,
                    panels,
                    grid.both,
                    home,
                    published.home,
                ),
            )
        )
    out.blocks.append(_home_table(data))
    out.blocks += _ratio(data)
    return out


def _home_table(data: StudyData) -> Table:
    published = data.study.published
    assert published is not None
    rows = []
    for pair in data.study.pairs:
        for p in published.points:
            at = {p.factor: p.value, **HOME}
            before, after = data.find(pair.before, at), data.find(pair.after, at)
            change = paired(before, after, "cycle_us")
            assert change is not None
            rows.append(
                [
                    pair.name,
                    f"{p.factor} {short(p.value)}",
                    percent(throughput_change(before, after)),
                    f"{change.absolute.mean:+,.0f}".replace("-", "−"),
                    f"{before['cycle_us']['mean']:,.0f}",
                    percent(p.change_percent / 100, 1),
                ]
            )
    headers = ["pair", "at", "throughput", "µs a step", "cycle before, µs", "published"]
    return Table(headers, rows, f"What {published.home} itself shows ({place(HOME)})")


def _ratio(data: StudyData) -> list[Any]:
    """The change against host over device speed: what a machine's ratio alone decides."""
    published = data.study.published
    assert published is not None
    hosts, devices = data.factors[X], data.factors[Y]
    ratios = sorted({float(f"{h / d:.3g}") for h in hosts for d in devices})
    rows = []
    for ratio in ratios:
        cells = [
            (i, j)
            for i, d in enumerate(devices)
            for j, h in enumerate(hosts)
            if float(f"{h / d:.3g}") == ratio
        ]
        row = [f"{ratio:g}"]
        for grid in mapped(data):
            for change in grid.changes:
                values = [change[cell] for cell in cells]
                row.append(f"{sum(values) / len(values):+.2f}".replace("-", "−"))
        rows.append(row)
    headers = ["host_scale / device_scale"]
    headers += [
        f"{pair.name.partition(':')[0]} at {short(p.value)}"
        for pair in data.study.pairs
        for p in published.points
    ]
    return [
        "Every cost is the host's or the device's, so a machine's place on the map is its ratio of the two: "
        "the diagonals. The next table takes the mean of each.",
        Table(headers, rows, "Change in throughput, %, by ratio"),
    ]


def _where(data: StudyData, grid: Mapped) -> str:
    hosts, devices = data.factors[X], data.factors[Y]
    found = [(hosts[j], devices[i]) for i, j in np.argwhere(grid.both)]
    if found:
        ratios = sorted({float(f"{h / d:.3g}") for h, d in found})
        between = f"{ratios[0]:g}" if len(ratios) == 1 else f"{ratios[0]:g} to {ratios[-1]:g}"
        return (
            f"The published shape appears at {len(found)} of {grid.both.size} machines: those whose host is "
            f"slower against their device by a factor of {between} than the measured one's."
        )
    counts = [int(match.sum()) for match in grid.matches]
    assert data.study.published is not None
    singly = joined(
        [
            f"{n} at {p.factor} {short(p.value)}"
            for n, p in zip(counts, data.study.published.points, strict=True)
        ]
    )
    return f"No machine of the grid shows the published shape: {singly} match their figure alone, none matches all."


def sentences(data: StudyData) -> list[str]:
    """One sentence a pair, then what the measured machine shows."""
    published = data.study.published
    assert published is not None
    out = []
    for pair, grid in zip(data.study.pairs, mapped(data), strict=True):
        at_home = []
        for p in published.points:
            at = {p.factor: p.value, **HOME}
            change = throughput_change(data.find(pair.before, at), data.find(pair.after, at))
            at_home.append(f"{percent(change)} at {p.factor} {short(p.value)}")
        out.append(f"**{pair.name}**: {_where(data, grid)} {published.home} itself: {joined(at_home)}.")
    return out
