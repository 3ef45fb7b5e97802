"""What the raw validation data say: one value a process start, and from those a mean with its interval.

Runs of one configuration in one start are averaged first, so that an interval covers what changes between starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_validation.validate.claims import Cell
from sim.stats.intervals import mean_interval

#: a cycle longer than this many times the median of its iteration over all runs was disturbed from outside
DISTURBED = 1.25


@dataclass(frozen=True)
class Measured:
    """Mean of the values of the starts; None: fewer than two."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        return mean_interval(self.values)


class MeasuredCell:
    """All starts of one model at one concurrency. ``blocks``: raw pieces, one a start."""

    def __init__(self, cell: Cell, blocks: Sequence[dict[str, Any]]):
        self.cell, self.blocks = cell, blocks
        self._visits: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        for block in blocks:
            by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for visit in block["visits"]:
                by_name[visit["configuration"]].append(visit)
            for name, visits in by_name.items():
                self._visits[name].append(visits)
        #: cycles left out because something disturbed them, and all cycles
        self.disturbed = self.cycles = 0
        self._kept = {name: self._undisturbed(starts) for name, starts in self._visits.items()}
        #: token digests, over whole runs of the overlapped configurations and until the first finish over all
        every = [visit for block in blocks for visit in block["visits"]]
        self.digests = len({v["full_sha256"] for v in every})
        self.repeated = sum(v["repeated"] for v in every)

    def _undisturbed(self, starts: Sequence[Sequence[dict[str, Any]]]) -> list[NDArray[np.float64]]:
        """Per start, cycles in µs by iteration, averaged over its runs without the disturbed ones."""
        longest = max(len(visit["cycles_ns"]) for visits in starts for visit in visits)
        runs = [[_padded(visit["cycles_ns"], longest) for visit in visits] for visits in starts]
        every = np.array([run for visits in runs for run in visits])
        limit = DISTURBED * np.nanmedian(every, axis=0)
        out = []
        for visits in runs:
            cycles = np.array(visits)
            wild = cycles > limit
            self.disturbed += int(wild.sum())
            self.cycles += int(np.isfinite(cycles).sum())
            kept = np.where(wild, np.nan, cycles)
            counted = np.isfinite(kept).sum(axis=0)
            total = np.nansum(kept, axis=0)
            out.append(np.divide(total, counted, out=np.full(longest, np.nan), where=counted > 0) / 1e3)
        return out

    @property
    def configurations(self) -> list[str]:
        return list(self._visits)

    def cycle_us(self, name: str) -> Measured:
        return Measured(tuple(float(np.nanmean(start)) for start in self._kept[name]))

    def cycle_change(self, a: str, b: str) -> Measured:
        """Mean over iterations of b's cycle less a's, paired by index, as a share of a's mean."""
        out = []
        for x, y in zip(self._kept[a], self._kept[b], strict=True):
            n = min(len(x), len(y))
            both = np.isfinite(x[:n]) & np.isfinite(y[:n])
            out.append(float((y[:n] - x[:n])[both].mean() / x[:n][both].mean()))
        return Measured(tuple(out))

    def throughput(self, name: str) -> Measured:
        """Output tokens over a run's duration, tok/s; of the runs of a start, the median."""
        return Measured(
            tuple(
                median(v["output_tokens"] / v["duration_ns"] * 1e9 for v in visits)
                for visits in self._visits[name]
            )
        )

    def busy(self, name: str) -> Measured:
        """Device time of a forward that was queued before it ran, over the cycle of the same iterations' range."""
        spans = [fmean(block["spans"]["forward_us"]) for block in self.blocks]
        return Measured(
            tuple(min(1.0, s / c) for s, c in zip(spans, self.cycle_us(name).values, strict=True))
        )

    def context(self, name: str) -> float:
        """Mean committed tokens a request over the cycles."""
        return fmean(self._visits[name][0][0]["contexts"])


def _padded(cycles: Sequence[int], length: int) -> NDArray[np.float64]:
    out = np.full(length, np.nan)
    out[: len(cycles)] = cycles
    return out


def measured_cells(blocks: Iterable[dict[str, Any]]) -> list[MeasuredCell]:
    """Raw pieces of kind "validate", grouped."""
    by_cell: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for block in blocks:
        by_cell[Cell(block["model"], block["concurrency"])].append(block)
    return [MeasuredCell(cell, found) for cell, found in by_cell.items()]
