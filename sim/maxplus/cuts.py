"""What each cost would buy: derivatives of the cycle time, and the gain of cutting it by 10 µs a use or by 10 %."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.maxplus.durations import rounded, scales_of
from sim.maxplus.screen import screen
from sim.maxplus.steady import SteadyGraph, SteadyState, derivatives
from sim.units import NS_PER_US

CUT_US = 10
CUT_SHARE = 0.10
#: rows that cut every cost of one side together
ALL_HOST, ALL_DEVICE = "every host cost", "every device cost"


@dataclass(frozen=True)
class Cut:
    """One cost: what it takes a step, and what cutting it gains; µs.

    ``derivative``: µs of cycle a µs of the cost, for small changes. ``gain_10us``: every use cut by 10 µs, or to
    nothing where it is shorter. Rows that stand for many costs have neither.
    """

    name: str
    host: bool
    status: str
    us_per_step: float
    derivative: float | None
    gain_10us: float | None
    gain_10pct: float


def cuts(steady: SteadyGraph, state: SteadyState, context: float) -> list[Cut]:
    """Every cost of a turn, the most worthwhile first; gains are exact re-evaluations, not derivatives."""
    resolved = steady.batch.resolved
    vector = steady.durations.exact(scales_of(resolved), context)
    uses: dict[str, list[tuple[int, float]]] = {}
    host: dict[str, bool] = {}
    for k, share in steady.durations.named():
        uses.setdefault(share.name, []).append((k, share.share))
        host[share.name] = share.host
    names = sorted(uses)

    def shorter(
        change: Callable[[NDArray[np.float64], list[tuple[int, float]]], None],
    ) -> NDArray[np.float64]:
        """Gain in µs of changing one cost after the other, then all of the host's, then all of the device's."""
        sides = [[u for n in names if host[n] is side for u in uses[n]] for side in (True, False)]
        rows = np.repeat(vector[None, :], 1 + len(names) + 2, axis=0)
        for row, some in zip(rows[1:], [*(uses[n] for n in names), *sides], strict=True):
            change(row, some)
        cycle = screen(steady.graph, rounded(rows)).cycle_ns
        return np.asarray((cycle[0] - cycle[1:]) / NS_PER_US)

    def by_10us(row: NDArray[np.float64], some: list[tuple[int, float]]) -> None:
        for k, share in some:
            row[k] = max(row[k] - CUT_US * NS_PER_US * share, 0.0)

    def by_10pct(row: NDArray[np.float64], some: list[tuple[int, float]]) -> None:
        for k, _ in some:
            row[k] *= 1 - CUT_SHARE

    slopes = derivatives(state, steady.durations)
    us, pct = shorter(by_10us), shorter(by_10pct)
    total = [float(sum(vector[k] for k, _ in uses[n])) / NS_PER_US for n in names]
    out = [
        Cut(
            n,
            host[n],
            resolved.profile.costs[n].status,
            total[i],
            float(slopes[n]),
            float(us[i]),
            float(pct[i]),
        )
        for i, n in enumerate(names)
    ]
    out.sort(key=lambda c: (-max(c.gain_10us or 0.0, c.gain_10pct), c.name))
    for i, (name, side) in enumerate(((ALL_HOST, True), (ALL_DEVICE, False)), start=len(names)):
        spent = sum(total[j] for j, n in enumerate(names) if host[n] is side)
        out.append(Cut(name, side, "", spent, None, None, float(pct[i])))
    return out
