"""Removes what profiling adds to host time: an amount per recorded operator and per kind of runtime call.

Traced host time of a stretch = state · (unprofiled + Σ amount(kind) · count(kind)). The amounts are the same in
all traces of one machine; the state is the boot's (see :mod:`sim.ingest.host_state`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.ingest.iterations import Entry
from sim.ingest.kineto import CallKind

KINDS = ("operator", "launch", "event", "minor")
#: microseconds added for each recorded thing, where no unprofiled timings are given, with relative spreads: the
#: fit on the H200 data set rounded (operators 1.0, launches and copies 6, event calls 2, queries 1)
DEFAULT_AMOUNT = {"operator": 1.0, "launch": 6.0, "event": 2.0, "minor": 1.0}
DEFAULT_SPREAD = {"operator": 0.35, "launch": 0.25, "event": 0.5, "minor": 0.35}
#: log state of a trace: around 1, wide enough for every state seen (0.83 to 1.6 of the median)
STATE_PRIOR = (0.0, 0.25)
#: no stretch is deflated below this share of its traced time: amounts are averages
FLOOR = 0.25
#: relative error of one traced section
SECTION_ERROR = 0.05


@dataclass(frozen=True)
class Stretch:
    """Traced host time (µs, waits and graph launch calls left out) and what was recorded in it."""

    time: float
    counts: tuple[float, ...]  # as KINDS

    def __add__(self, other: Stretch) -> Stretch:
        return Stretch(
            self.time + other.time, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        )


EMPTY = Stretch(0.0, (0.0,) * len(KINDS))


def gap_of(entry: Entry) -> Stretch:
    """Host work in front of an entry."""
    return Stretch(entry.gap, (entry.operators, 0.0, 0.0, entry.minor))


def call_of(entry: Entry) -> Stretch:
    """The call itself; a graph launch counts nothing (unprofiled primitives give it), a wait only its call."""
    if entry.kind in (CallKind.LAUNCH, CallKind.COPY):
        return Stretch(entry.call, (0.0, 1.0, 0.0, 0.0))
    if entry.kind in (CallKind.RECORD, CallKind.WAIT):
        return Stretch(entry.call, (0.0, 0.0, 1.0, 0.0))
    if entry.kind == CallKind.HOST:
        return Stretch(entry.call, EMPTY.counts)
    return EMPTY


@dataclass(frozen=True)
class Inflation:
    """``amount`` µs per recorded thing of each kind; ``spread`` its relative uncertainty; ``fitted`` or default."""

    amount: dict[str, float]
    spread: dict[str, float]
    #: state of each trace
    states: dict[str, float]
    fitted: bool
    #: graph launch calls cost what the trace shows, not what an unprofiled primitive says
    graphs_as_traced: bool = False

    def moved(self, kind: str, by: float) -> Inflation:
        """The same with one amount a relative ``by`` larger."""
        return replace(self, amount=self.amount | {kind: self.amount[kind] * (1 + by)})

    def deflate(self, stretch: Stretch, state: float) -> float:
        """Unprofiled µs at host state 1."""
        added = sum(self.amount[k] * n for k, n in zip(KINDS, stretch.counts, strict=True))
        own = stretch.time / state
        return max(own - added, FLOOR * own)


@dataclass(frozen=True)
class Known:
    """A section with traced time and a known unprofiled cost at state 1 (µs)."""

    trace: str
    stretch: Stretch
    unprofiled: float


def no_inflation(traces: list[str]) -> Inflation:
    """Host times as traced: for traces without a profiler's slowdown, and for comparing in profiled time."""
    zero = dict.fromkeys(KINDS, 0.0)
    return Inflation(zero, zero, dict.fromkeys(traces, 1.0), fitted=False, graphs_as_traced=True)


def default_inflation(traces: list[str]) -> Inflation:
    """Without unprofiled timings: default amounts, every trace taken to be at the usual state 1."""
    return Inflation(dict(DEFAULT_AMOUNT), dict(DEFAULT_SPREAD), dict.fromkeys(traces, 1.0), fitted=False)


def fit_inflation(known: list[Known]) -> Inflation:
    """Amounts and states that explain the traced sections, starting from the defaults as prior knowledge."""
    traces = sorted({k.trace for k in known})
    prior = np.log([DEFAULT_AMOUNT[k] for k in KINDS])
    width = np.array([DEFAULT_SPREAD[k] for k in KINDS])
    counts = np.array([k.stretch.counts for k in known])
    times = np.array([k.stretch.time for k in known])
    base = np.array([k.unprofiled for k in known])
    of = np.array([traces.index(k.trace) for k in known])

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        states, amounts = x[: len(traces)], x[len(traces) :]
        expected = states[of] + np.log(base + counts @ np.exp(amounts))
        return np.concatenate(
            [
                (np.log(times) - expected) / SECTION_ERROR,
                (states - STATE_PRIOR[0]) / STATE_PRIOR[1],
                (amounts - prior) / width,
            ]
        )

    x0 = np.concatenate([np.full(len(traces), STATE_PRIOR[0]), prior])
    solution = least_squares(residuals, x0)
    covariance = np.linalg.inv(solution.jac.T @ solution.jac)
    spread = np.sqrt(np.diag(covariance))[len(traces) :]
    return Inflation(
        amount=dict(zip(KINDS, np.exp(solution.x[len(traces) :]).tolist(), strict=True)),
        spread=dict(zip(KINDS, spread.tolist(), strict=True)),
        states=dict(zip(traces, np.exp(solution.x[: len(traces)]).tolist(), strict=True)),
        fitted=True,
    )
