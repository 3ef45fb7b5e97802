"""From a case to its prediction: fit the one free parameter, run both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq

from sim.cases.check import checked
from sim.cases.edit import resolved_side
from sim.cases.schema import Case, Quantity
from sim.cases.verdict import Verdict, verdict
from sim.errors import InputError, Problem
from sim.result import RunResult
from sim.run import simulate
from sim.stats.intervals import mean_interval

#: range of a fitted scale, and relative tolerance of the quantity it reproduces
SCALES = (0.02, 50.0)
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Prediction:
    """What a case came to. Changes in per cent; ``before`` and ``after`` are the quantity's means."""

    case: Case
    #: the free parameter's value; None without one, or where no value reproduces *before*
    fitted: float | None
    before: RunResult | None
    after: RunResult | None
    change_percent: float | None
    ci95_percent: tuple[float, float] | None

    @property
    def verdict(self) -> Verdict:
        p = self.case.published
        return verdict(
            self.case.decidable, self.change_percent, self.case.change_percent, p.low_percent, p.high_percent
        )

    @property
    def fit_failed(self) -> bool:
        return self.case.fit is not None and bool(self.case.scenario) and self.fitted is None


def predict(case: Case, name: str) -> Prediction:
    """The prediction of a case; empty for one that has no scenario. Raises InputError on one that is wrong."""
    checked(case, name)
    if not case.scenario:
        return Prediction(case, None, None, None, None, None)
    fitted: dict[str, float] = {}
    if case.fit is not None:
        value = _fit(case, name)
        if value is None:
            return Prediction(case, None, None, None, None, None)
        fitted[case.fit.parameter] = value
    before = simulate(resolved_side(case, case.before, f"{name}: before", fitted), new_boots=False)
    after = simulate(resolved_side(case, case.after, f"{name}: after", fitted), new_boots=False)
    was, becomes = mean_of(before, case.quantity), mean_of(after, case.quantity)
    change = None if not was or becomes is None else (becomes / was - 1) * 100
    interval = _interval(before, after, case.quantity)
    return Prediction(case, next(iter(fitted.values()), None), before, after, change, interval)


def mean_of(result: RunResult, quantity: Quantity) -> float | None:
    """The mean of ``quantity`` in its unit; idle time is that of the forward stream, µs a step."""
    if quantity == "idle_us":
        return math.fsum(result.idle_us_per_step.values())
    value = getattr(result, quantity)
    mean = value["mean"] if isinstance(value, dict) else value.mean
    return None if mean is None else float(mean)


def _interval(before: RunResult, after: RunResult, quantity: Quantity) -> tuple[float, float] | None:
    """Interval of the change over paired replications, where they keep the quantity."""
    pairs = zip(before.samples.get(quantity, ()), after.samples.get(quantity, ()), strict=True)
    ratios = [(b / a - 1) * 100 for a, b in pairs if a and b]
    return mean_interval(ratios) if len(ratios) > 1 else None


def _fit(case: Case, name: str) -> float | None:
    """The scale at which *before* has the published value; None where none in :data:`SCALES` does."""
    fit = case.fit
    assert fit is not None

    def miss(log_scale: float) -> float:
        scales: dict[str, float] = {fit.parameter: math.exp(log_scale)}
        result = simulate(
            resolved_side(case, case.before, f"{name}: before", scales), new_boots=False, hazards=False
        )
        value = mean_of(result, fit.quantity)
        if not value:
            raise InputError(
                Problem(f"{name}: scenario", f"a run without {fit.quantity}", "a run long enough to fit it")
            )
        return math.log(value / fit.target)

    low, high = (math.log(scale) for scale in SCALES)
    if miss(low) * miss(high) > 0:
        return None
    found = math.exp(brentq(miss, low, high, xtol=TOLERANCE / 4, rtol=TOLERANCE / 4))
    return found if abs(miss(math.log(found))) <= 2 * TOLERANCE else None
