"""What the raw validation data say: one value a process start, and the host's speed in each run it comes from.

Nothing is corrected here; what the host's speed explains, the prediction for that speed contains
(:mod:`gpu_validation.validate.agreement`). Cycles that something disturbed from outside are left out and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_validation.validate.claims import Cell

#: a cycle longer than this many times the median of its iteration over all runs was disturbed from outside
DISTURBED = 1.25


class MeasuredCell:
    """All starts of one model at one concurrency. ``blocks``: raw pieces, one a start. ``reference_us``: the witness
    of the host's speed that the cell's costs are stated at; 0: nothing tells the speed, so it counts as that."""

    def __init__(self, cell: Cell, blocks: Sequence[dict[str, Any]], reference_us: float = 0.0):
        self.cell, self.blocks, self._reference_us = cell, blocks, reference_us
        self._visits: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        for block in blocks:
            by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for visit in block["visits"]:
                by_name[visit["configuration"]].append(visit)
            for name, visits in by_name.items():
                self._visits[name].append(visits)
        every = [visit for block in blocks for visit in block["visits"]]
        #: cycles left out because something disturbed them, and all cycles
        self.disturbed = self.cycles = 0
        self._usual = {name: _by_iteration(starts) for name, starts in self._visits.items()}
        self._kept = {name: self._undisturbed(name) for name in self._visits}
        #: what the host's speed was in the middle of all runs, over the reference: above 1 slower
        self.speed = median(self._speed(v) for v in every)
        #: token digests, over whole runs of the overlapped configurations and until the first finish over all
        self.digests = len({v["full_sha256"] for v in every})

    def _undisturbed(self, name: str) -> list[NDArray[np.float64]]:
        """Per start, cycles in µs by iteration, averaged over its runs without the disturbed ones."""
        usual = self._usual[name]
        out = []
        for visits in self._visits[name]:
            cycles = np.array([_padded(visit["cycles_ns"], len(usual)) for visit in visits])
            there = np.isfinite(cycles)
            wild = there & (cycles > DISTURBED * usual)
            if wild[there].all():  # a start that was disturbed throughout says what it can
                wild[:] = False
            self.disturbed += int(wild.sum())
            self.cycles += int(there.sum())
            kept = np.where(wild, np.nan, cycles)
            counted = np.isfinite(kept).sum(axis=0)
            means = np.divide(
                np.nansum(kept, axis=0), counted, out=np.full(len(usual), np.nan), where=counted > 0
            )
            out.append(means / 1e3)
        return out

    @property
    def configurations(self) -> list[str]:
        return list(self._visits)

    def speeds(self, name: str) -> list[list[float]]:
        """The host's speed over the reference in each run of each start."""
        return [[self._speed(visit) for visit in visits] for visits in self._visits[name]]

    def _speed(self, visit: dict[str, Any]) -> float:
        return fmean(visit["witness_us"]) / self._reference_us if self._reference_us else 1.0

    def cycle_us(self, name: str) -> list[float]:
        """Mean cycle of each start."""
        return [float(np.nanmean(start)) for start in self._kept[name]]

    def cycle_change(self, a: str, b: str) -> list[float]:
        """Of each start: mean over iterations of b's cycle less a's, paired by index, as a share of a's mean.

        Where a start has no iteration that both saw undisturbed, its means are compared.
        """
        out = []
        for x, y in zip(self._kept[a], self._kept[b], strict=True):
            n = min(len(x), len(y))
            both = np.isfinite(x[:n]) & np.isfinite(y[:n])
            if both.any():
                out.append(float((y[:n] - x[:n])[both].mean() / x[:n][both].mean()))
            else:
                out.append(float(np.nanmean(y) / np.nanmean(x) - 1))
        return out

    def throughput(self, name: str) -> list[float]:
        """Of each start: output tokens over a run's duration, tok/s, the mean of its runs. Of a disturbed cycle the
        time beyond the usual one is taken off."""
        return [fmean(self._rate(name, visit) for visit in visits) for visits in self._visits[name]]

    def _rate(self, name: str, visit: dict[str, Any]) -> float:
        usual = self._usual[name][: len(visit["cycles_ns"])]
        cycles = np.array(visit["cycles_ns"], dtype=np.float64)
        beyond = np.where(cycles > DISTURBED * usual, cycles - usual, 0.0).sum()
        return float(visit["output_tokens"] / (visit["duration_ns"] - beyond) * 1e9)

    def busy(self, name: str) -> list[float]:
        """Of each start: device time of a forward over the cycle. The forward is timed from its first event to its
        last in a run of its own, which is as long as any other where the device bounds both; there the share may
        come out above 1 by what two runs differ."""
        spans = [fmean(block["spans"]["forward_us"]) for block in self.blocks]
        return [s / c for s, c in zip(spans, self.cycle_us(name), strict=True)]

    def context(self, name: str) -> float:
        """Mean committed tokens a request over the cycles."""
        return fmean(self._visits[name][0][0]["contexts"])


def _by_iteration(starts: Sequence[Sequence[dict[str, Any]]]) -> NDArray[np.float64]:
    """Median cycle of each iteration over all runs, ns."""
    longest = max(len(visit["cycles_ns"]) for visits in starts for visit in visits)
    return np.nanmedian(
        np.array([_padded(visit["cycles_ns"], longest) for visits in starts for visit in visits]), axis=0
    )


def _padded(cycles: Sequence[int], length: int) -> NDArray[np.float64]:
    out = np.full(length, np.nan)
    out[: len(cycles)] = cycles
    return out


def measured_cells(
    blocks: Iterable[dict[str, Any]], reference: Callable[[Cell], float] = lambda cell: 0.0
) -> list[MeasuredCell]:
    """Raw pieces of kind "validate", grouped. ``reference``: the witness that a cell's costs are stated at, µs."""
    by_cell: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for block in blocks:
        by_cell[Cell(block["model"], block["concurrency"])].append(block)
    return [MeasuredCell(cell, found, reference(cell)) for cell, found in by_cell.items()]
