"""From a case to its prediction: edit the declarations, fit the one free parameter, run both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scipy.optimize import brentq

from sim.cases.schema import Case, Quantity, Side
from sim.cases.verdict import Verdict, verdict
from sim.config.checked import Origin, validated
from sim.config.profile import is_model_cost
from sim.config.resolve import Resolved, resolve
from sim.config.scenario import Scenario
from sim.errors import InputError, Problem
from sim.program.step_program import Operation, StepProgram
from sim.result import RunResult
from sim.run import simulate
from sim.stats.intervals import mean_interval

#: replications of a prediction, and of every run of its fit: with few requests the luck of one moves throughput
REPLICATIONS = 3
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
    if not case.scenario:
        return Prediction(case, None, None, None, None, None)
    fitted: dict[str, float] = {}
    if case.fit is not None:
        value = _fit(case, name)
        if value is None:
            return Prediction(case, None, None, None, None, None)
        fitted[case.fit.parameter] = value
    before = simulate(_resolved(case, case.before, name, "before", fitted), new_boots=False)
    after = simulate(_resolved(case, case.after, name, "after", fitted), new_boots=False)
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
            _resolved(case, case.before, name, "before", scales), new_boots=False, hazards=False
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


def _resolved(case: Case, side: Side, name: str, which: str, scales: Mapping[str, float]) -> Resolved:
    """The scenario of one side with its program and profile edited."""
    origin = Origin(f"{name}: {which}")
    side = side.over(case.both)
    model = scales.get("model_scale", 1.0)
    keys = _over(case.scenario, side.scenario)
    keys = _over(keys, {k: v for k, v in scales.items() if k != "model_scale"})
    keys = _over(keys, {"run": {"replications": REPLICATIONS}})
    resolved = resolve(validated(Scenario, keys, origin), origin)
    costs = {
        name: cost.scaled(model) if is_model_cost(name) else cost
        for name, cost in {**resolved.profile.costs, **side.costs}.items()
    }
    profile = resolved.profile.model_copy(
        update={"costs": costs, "semantics": {**resolved.profile.semantics, **side.semantics}}
    )
    return replace(resolved, profile=profile, program=_edited(resolved.program, side, name))


def _over(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` over ``common``, tables merged key by key."""
    out = dict(common)
    for key, value in own.items():
        inner = out.get(key)
        out[key] = _over(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return out


def _edited(program: StepProgram, side: Side, name: str) -> StepProgram:
    """The program with a side's insertions and omissions in its decode list. Raises InputError on unknown names."""
    known = {op.name for op in program.operations}
    wrong = [x for x in (*side.drop, *(i.before for i in side.insert)) if x not in known]
    if wrong:
        raise InputError(
            [
                Problem(name, f'no operation "{x}"', f"an operation of {program.algorithm}@{program.engine}")
                for x in wrong
            ]
        )
    if not side.insert and not side.drop:
        return program
    operations: list[Operation] = []
    for op in program.operations:
        for insertion in side.insert:
            if insertion.before == op.name:
                operations += insertion.operations * insertion.times
        if op.name not in side.drop:
            operations.append(op)
    return program.model_copy(update={"operations": tuple(operations)})
