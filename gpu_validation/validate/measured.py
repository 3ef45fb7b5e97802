"""What the raw validation data say: one value a process start, and from those a mean with its interval.

Runs of one configuration in one start are averaged first, so that an interval covers what changes between starts.
Cycles count while the host was quiet (:func:`gpu_validation.observe.run_record.quiet_limit_ns`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_validation.observe.run_record import quiet_limit_ns
from gpu_validation.validate.claims import Cell
from sim.stats.intervals import mean_interval

#: a cycle longer than this many times the median of its iteration over all runs was disturbed from outside
DISTURBED = 1.25
#: share of a run's cycles on a quiet host for its throughput to count, unless no run of its start has so many
MOSTLY = 0.9


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
        # By configuration, since after a long sleep any host is slower for a moment.
        self._limit_ns = {
            name: quiet_limit_ns(pace for visits in starts for v in visits for pace in v["paces_ns"])
            for name, starts in self._visits.items()
        }
        #: cycles left out because the host was slow or something disturbed them, and all cycles
        self.slow = self.disturbed = self.cycles = 0
        self._kept = {
            name: self._undisturbed(starts, self._limit_ns[name]) for name, starts in self._visits.items()
        }
        #: token digests, over whole runs of the overlapped configurations and until the first finish over all
        every = [visit for block in blocks for visit in block["visits"]]
        self.digests = len({v["full_sha256"] for v in every})

    def _undisturbed(
        self, starts: Sequence[Sequence[dict[str, Any]]], slowest_ns: float
    ) -> list[NDArray[np.float64]]:
        """Per start, cycles in µs by iteration, averaged over its runs without the disturbed ones."""
        longest = max(len(visit["cycles_ns"]) for visits in starts for visit in visits)
        runs = [np.array([_padded(visit["cycles_ns"], longest) for visit in visits]) for visits in starts]
        paces = [np.array([_padded(visit["paces_ns"], longest) for visit in visits]) for visits in starts]
        limit = DISTURBED * np.nanmedian(np.concatenate(runs), axis=0)
        out = []
        for cycles, pace in zip(runs, paces, strict=True):
            slow = pace > slowest_ns
            if slow[np.isfinite(pace)].all():  # a start without a quiet moment says what it can
                slow[:] = False
            wild = (cycles > limit) & ~slow
            if (slow | wild)[
                np.isfinite(cycles)
            ].all():  # nor does one that was disturbed throughout say nothing
                wild[:] = False
            self.slow += int(slow.sum())
            self.disturbed += int(wild.sum())
            self.cycles += int(np.isfinite(cycles).sum())
            kept = np.where(slow | wild, np.nan, cycles)
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
        """Output tokens over a run's duration, tok/s; the median of a start's runs on a mostly quiet host."""
        out = []
        for visits in self._visits[name]:
            quiet = [fmean(pace <= self._limit_ns[name] for pace in v["paces_ns"]) for v in visits]
            enough = min(MOSTLY, max(quiet))
            out.append(
                median(
                    v["output_tokens"] / v["duration_ns"] * 1e9
                    for v, share in zip(visits, quiet, strict=True)
                    if share >= enough
                )
            )
        return Measured(tuple(out))

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


def measured_cells(blocks: Iterable[dict[str, Any]]) -> list[MeasuredCell]:
    """Raw pieces of kind "validate", grouped."""
    by_cell: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for block in blocks:
        by_cell[Cell(block["model"], block["concurrency"])].append(block)
    return [MeasuredCell(cell, found) for cell, found in by_cell.items()]
