"""What the raw validation data say: one value a process start, and from those a mean with its interval.

Runs of one configuration in one start are averaged first, so that an interval covers what changes between starts.
Cycles and durations are taken at the host's speed that the calibration states its costs at
(:mod:`gpu_validation.observe.host_speed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_validation.observe.host_speed import near, reference_us, slope
from gpu_validation.validate.claims import Cell
from sim.stats.intervals import mean_interval

#: a cycle longer than this many times the median of its iteration over all runs was disturbed from outside
DISTURBED = 1.25
#: how far from the reference the mean witness of a whole run may be; all of a run counts in its duration
RUN_WINDOW = 0.5


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
    """All starts of one model at one concurrency. ``blocks``: raw pieces, one a start. ``reference_us``: the witness
    of the host's speed that the cell's costs are stated at; None: that of these data themselves."""

    def __init__(self, cell: Cell, blocks: Sequence[dict[str, Any]], reference_us: float | None = None):
        self.cell, self.blocks = cell, blocks
        self._visits: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        for block in blocks:
            by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for visit in block["visits"]:
                by_name[visit["configuration"]].append(visit)
            for name, visits in by_name.items():
                self._visits[name].append(visits)
        every = [visit for block in blocks for visit in block["visits"]]
        self.reference_us = _own_reference(every) if reference_us is None else reference_us
        #: cycles left out because the host was slow or something disturbed them, and all cycles
        self.slow = self.disturbed = self.cycles = 0
        self._kept = {name: self._at_reference(starts) for name, starts in self._visits.items()}
        #: token digests, over whole runs of the overlapped configurations and until the first finish over all
        self.digests = len({v["full_sha256"] for v in every})

    def _at_reference(self, starts: Sequence[Sequence[dict[str, Any]]]) -> list[NDArray[np.float64]]:
        """Per start, cycles in µs by iteration at the reference speed, averaged over its runs without those of a slow
        host and the disturbed ones."""
        longest = max(len(visit["cycles_ns"]) for visits in starts for visit in visits)
        runs = [np.array([_padded(visit["cycles_ns"], longest) for visit in visits]) for visits in starts]
        speeds = [np.array([_padded(visit["witness_us"], longest) for visit in visits]) for visits in starts]
        limit = DISTURBED * np.nanmedian(np.concatenate(runs), axis=0)
        kept = [self._counted(cycles, speed, limit) for cycles, speed in zip(runs, speeds, strict=True)]
        # A run's mean tells its host's speed better than a turn, of which the witness is a small part.
        means = [_mean(c, axis=1) for c in kept]
        witnesses = [
            _mean(np.where(np.isfinite(c), s, np.nan), axis=1) for c, s in zip(kept, speeds, strict=True)
        ]
        steep = slope(np.concatenate(means), np.concatenate(witnesses)) if self.reference_us else 0.0
        return [
            _mean(c - steep * (np.nan_to_num(w, nan=self.reference_us) - self.reference_us)[:, None], axis=0)
            / 1e3
            for c, w in zip(kept, witnesses, strict=True)
        ]

    def _counted(
        self, cycles: NDArray[np.float64], speed: NDArray[np.float64], limit: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The cycles of one start, NaN for those that do not count."""
        there = np.isfinite(cycles)
        slow = ~near(speed, self.reference_us) & there
        if slow[there].all():  # a start without a quiet moment says what it can
            slow[:] = False
        wild = (cycles > limit) & ~slow
        if (slow | wild)[there].all():  # nor does one that was disturbed throughout say nothing
            wild[:] = False
        self.slow += int(slow.sum())
        self.disturbed += int(wild.sum())
        self.cycles += int(there.sum())
        return np.where(slow | wild, np.nan, cycles)

    @property
    def configurations(self) -> list[str]:
        return list(self._visits)

    def cycle_us(self, name: str) -> Measured:
        return Measured(tuple(float(np.nanmean(start)) for start in self._kept[name]))

    def cycle_change(self, a: str, b: str) -> Measured:
        """Mean over iterations of b's cycle less a's, paired by index, as a share of a's mean.

        A start without an iteration that both saw undisturbed is left out; if all are, none is paired.
        """
        out = []
        for x, y in zip(self._kept[a], self._kept[b], strict=True):
            n = min(len(x), len(y))
            both = np.isfinite(x[:n]) & np.isfinite(y[:n])
            if both.any():
                out.append(float((y[:n] - x[:n])[both].mean() / x[:n][both].mean()))
        if out:
            return Measured(tuple(out))
        pairs = zip(self.cycle_us(a).values, self.cycle_us(b).values, strict=True)
        return Measured(tuple(y / x - 1 for x, y in pairs))

    def throughput(self, name: str) -> Measured:
        """Output tokens over a run's duration, tok/s; the median of a start's runs at the reference speed."""
        starts = self._visits[name]
        durations = [np.array([v["duration_ns"] / v["output_tokens"] for v in visits]) for visits in starts]
        speeds = [np.array([fmean(v["witness_us"]) for v in visits]) for visits in starts]
        counted = []
        for each, speed in zip(durations, speeds, strict=True):
            kept = near(speed, self.reference_us, RUN_WINDOW)
            counted.append(np.where(kept, each, np.nan) if kept.any() else each)
        steep = slope(np.concatenate(counted), np.concatenate(speeds)) if self.reference_us else 0.0
        moved = [c - steep * (s - self.reference_us) for c, s in zip(counted, speeds, strict=True)]
        return Measured(tuple(1e9 / float(np.nanmedian(each)) for each in moved))

    def busy(self, name: str) -> Measured:
        """Device time of a forward, from its first event to its last, over the cycle of the same iterations."""
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


def _mean(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Over what is there; NaN where nothing is."""
    counted = np.isfinite(values).sum(axis=axis)
    total = np.nansum(values, axis=axis)
    return np.divide(total, counted, out=np.full(counted.shape, np.nan), where=counted > 0)


def _own_reference(visits: Iterable[dict[str, Any]]) -> float:
    return reference_us([us for visit in visits for us in visit["witness_us"]])


def measured_cells(
    blocks: Iterable[dict[str, Any]], reference: Callable[[Cell], float | None] = lambda cell: None
) -> list[MeasuredCell]:
    """Raw pieces of kind "validate", grouped. ``reference``: the witness that a cell's costs are stated at, µs."""
    by_cell: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for block in blocks:
        by_cell[Cell(block["model"], block["concurrency"])].append(block)
    return [MeasuredCell(cell, found, reference(cell)) for cell, found in by_cell.items()]
