"""Separates what a host section costs from the state its boot was in.

One factor moves all host sections of a boot together. With ``y`` the median of section ``s`` in row ``r`` (one
boot at one concurrency ``c``):

    log y(s, r) = log(b0(s) + b1(s)·c) + log state(r)

Growth with the batch that all sections share could be either the sections' or the states'. It is given to the
sections: a machine's state is taken not to depend on the load (the states have no trend over ``c``). The level is
set so that the median state is 1: costs are those of a typical boot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import norm

from sim.ingest.iterations import TracedProgram

#: residuals beyond about twice this relative size count linearly, so a burst in one section does not move a row
ROBUST_SCALE = 0.05
#: how strictly the states are held free of a trend over the batch (log units over the range of batches)
TREND = 0.005


@dataclass(frozen=True)
class HostStates:
    """``states[row]`` and, for each section, its cost at state 1 as ``b0 + b1·batch`` (µs)."""

    states: NDArray[np.float64]
    sections: dict[str, tuple[float, float]]
    #: relative residual of all fitted medians
    residual_sd: float

    def at(self, section: str, batch: float) -> float:
        b0, b1 = self.sections[section]
        return b0 + b1 * batch


def fit_states(
    concurrency: NDArray[np.float64], sections: dict[str, NDArray[np.float64]], gauge: str
) -> HostStates:
    """Joint fit over rows.

    Args:
        concurrency: batch of each row.
        sections: medians (µs) of each section in each row; NaN where a row's figure contains a wait.
        gauge: name of a section that every row has, to start from.
    """
    rows = len(concurrency)
    names = sorted(sections)
    start_states = sections[gauge] / np.nanmedian(sections[gauge])
    levels = [np.log(np.nanmedian(sections[name] / start_states)) for name in names]
    x0 = np.concatenate([np.log(start_states), levels, np.full(len(names), -4.0)])
    centred = concurrency - concurrency.mean()
    trend = centred * np.ptp(concurrency) / max(float(centred @ centred), 1e-9)

    def unpack(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], dict[str, tuple[float, float]]]:
        base = {name: float(np.exp(x[rows + i])) for i, name in enumerate(names)}
        slope = {name: float(np.exp(x[rows + len(names) + i])) for i, name in enumerate(names)}
        return x[:rows], {n: (base[n], base[n] * slope[n]) for n in names}

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        states, fitted = unpack(x)
        parts = [
            np.log(values) - np.log(fitted[name][0] + fitted[name][1] * concurrency) - states
            for name, values in sorted(sections.items())
        ]
        flat = np.concatenate([*parts, [float(trend @ states) * ROBUST_SCALE / TREND]])
        return np.where(np.isnan(flat), 0.0, flat)

    solution = least_squares(residuals, x0, loss="soft_l1", f_scale=ROBUST_SCALE)
    log_states, fitted = unpack(solution.x)
    level = float(np.median(log_states))
    known = sum(int(np.isfinite(v).sum()) for v in sections.values())
    spare = max(1, known - len(x0))
    return HostStates(
        states=np.exp(log_states - level),
        sections={n: (b0 * np.exp(level), b1 * np.exp(level)) for n, (b0, b1) in fitted.items()},
        residual_sd=float(np.sqrt(np.sum(residuals(solution.x) ** 2) / spare)),
    )


#: fewer rows than these say nothing of the spread between boots; then these log spreads below and above the median
#: are used (H200 data set, 30 rows)
FEWEST_ROWS = 6
DEFAULT_SPREADS = (0.11, 0.17)
#: probabilities a profile states
PROBABILITIES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


def state_quantiles(states: NDArray[np.float64]) -> dict[str, float]:
    """Quantiles of a new boot's state, relative to the median.

    A few dozen rows say too little about tails to read quantiles off them, and slow states reach further than fast
    ones: a lognormal with one spread below the median and another above it, each the root mean square there.
    """
    logs = np.log(states / np.median(states))
    below, above = DEFAULT_SPREADS
    if len(states) >= FEWEST_ROWS:
        below = float(np.sqrt(np.mean(logs[logs <= 0] ** 2)))
        above = float(np.sqrt(np.mean(logs[logs >= 0] ** 2)))
    z = norm.ppf(PROBABILITIES)
    return {
        str(p): round(float(np.exp(v * (below if v < 0 else above))), 3)
        for p, v in zip(PROBABILITIES, z, strict=True)
    }


def within_run(traces: list[TracedProgram]) -> float:
    """Relative spread of an iteration's host time within a run: the traces' median absolute deviation."""
    spread = []
    for traced in traces:
        host = np.array([i.host for i in traced.iterations])
        spread.append(1.4826 * float(np.median(np.abs(host / np.median(host) - 1))))
    return round(float(np.median(spread)), 3)
