"""A study answered by the vectorised recurrence instead of the SimPy model: full-batch cycles, many at once.

Every screen re-runs a random sample of its cells with the SimPy model, as fixed batches around the same context,
and says how far the two are apart.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.config.scenario import MatchExpected
from sim.files import json_text, write_atomically
from sim.maxplus.durations import reading
from sim.maxplus.scenarios import SOLVER, Answer, fixed_batch, screen_scenarios
from sim.maxplus.steady import SteadyGraph
from sim.run import simulate
from sim.study.plan import Plan

#: cells of every screen that the SimPy model answers too
SAMPLE = 8
#: prompt and output tokens of such a run; its costs know no other context than the one in question
_PROMPT, _OUTPUT = 16, 80


@dataclass(frozen=True)
class Checked:
    """One cell answered by both solvers for one fixed batch at one context; µs."""

    cell: int
    context: float
    screened_us: float
    simulated_us: float

    @property
    def relative(self) -> float:
        return self.simulated_us / self.screened_us - 1


@dataclass(frozen=True)
class Agreement:
    """How far the two solvers are apart on a sample of a screen."""

    checked: tuple[Checked, ...]
    cells: int

    @property
    def largest(self) -> float:
        return max((abs(c.relative) for c in self.checked), default=0.0)

    def __str__(self) -> str:
        apart = "every cycle equal" if self.largest == 0 else f"cycles at most {self.largest:.2%} apart"
        return f"{len(self.checked)} of {self.cells:,} cells re-run with the SimPy model as fixed batches: {apart}"

    def to_json(self) -> dict[str, Any]:
        return {
            "sample": len(self.checked),
            "largest_relative_difference": self.largest,
            "checked": [
                {
                    "cell": c.cell,
                    "mean_context": c.context,
                    "screen_us": c.screened_us,
                    "simpy_us": c.simulated_us,
                }
                for c in self.checked
            ],
        }


def screen_plan(plan: Plan, folder: Path) -> Agreement:
    """Answers every cell of a study; writes ``screen.csv`` (one row a cell) and ``screen.json`` in ``folder``.

    Raises InputError for a cell with an open loop, whose batch is not fixed.
    """
    scenarios = [cell.resolved for cell in plan.cells]
    answers = screen_scenarios(scenarios)
    agreement = check(scenarios, answers, plan.study.design_seed)
    table = io.StringIO()
    factors = [factor.name for factor in plan.study.factors]
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["variant", *factors, "solver", "batch", "mean_context", "cycle_us", "settled"])
    for cell, answer in zip(plan.cells, answers, strict=True):
        values = [cell.at[name] for name in factors]
        result = [SOLVER, answer.batch, answer.context, answer.cycle_us, str(answer.settled).lower()]
        writer.writerow([cell.variant, *values, *result])
    summary = {
        "study": plan.name,
        "sha256": plan.sha256,
        "solver": SOLVER,
        "cells": len(answers),
        "settled": sum(answer.settled for answer in answers),
        "agreement": agreement.to_json(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "screen.csv", table.getvalue())
    write_atomically(folder / "screen.json", json_text(summary))
    return agreement


def check(scenarios: Sequence[Resolved], answers: Sequence[Answer], seed: int) -> Agreement:
    """Re-runs a random sample with the SimPy model, keyed by ``seed``."""
    random = np.random.Generator(np.random.PCG64([seed, len(scenarios)]))
    chosen = sorted(random.choice(len(scenarios), min(SAMPLE, len(scenarios)), replace=False).tolist())
    checked = (_both(i, scenarios[i], answers[i].context, answers[i].cycle_us) for i in chosen)
    return Agreement(tuple(checked), len(scenarios))


def _both(cell: int, resolved: Resolved, context: float, screened_us: float) -> Checked:
    simulated = simulate(as_fixed_batch(resolved, context), new_boots=False).cycle_us.mean
    assert simulated is not None
    return Checked(cell, context, screened_us, simulated)


def as_fixed_batch(resolved: Resolved, context: float) -> Resolved:
    """The same machine and policies under a load whose batch stays full, with the costs of one context.

    Costs neither grow with the real context nor vary, and no draft is accepted, so that requests last.
    """
    scenario, profile = resolved.scenario, resolved.profile
    batch = scenario.workload.concurrency
    update = {
        "workload": scenario.workload.model_copy(
            update={
                "requests": batch,
                "prompt_tokens": _PROMPT,
                "output_tokens": _OUTPUT,
                "client_delay_us": 0.0,
            }
        ),
        "serving": scenario.serving.model_copy(
            update={
                "min_free_slots": 0,
                "max_running_requests": max(batch or 1, scenario.serving.max_running_requests),
            }
        ),
        "acceptance": MatchExpected(model="match_expected", mean_accepted_drafts=0.0),
        "run": scenario.run.model_copy(update={"replications": 1}),
    }
    costs = {name: cost.model_copy(update={"within_sd": 0.0}) for name, cost in profile.costs.items()}
    for _, share in SteadyGraph(fixed_batch(resolved)).durations.named():
        costs[share.name] = _at_context(profile.costs[share.name], context * reading(profile, share))
    quiet = profile.host_state.model_copy(update={"within_sd": 0.0})
    return replace(
        resolved,
        scenario=scenario.model_copy(update=update),
        profile=profile.model_copy(update={"costs": costs, "host_state": quiet}),
    )


def _at_context(cost: Cost, context: float) -> Cost:
    """The cost as it is at one context, whatever the real one; without noise."""
    slope = cost.per_context
    if isinstance(slope, tuple) or isinstance(cost.value, tuple):
        batches = cost.batch or ()
        values = cost.value if isinstance(cost.value, tuple) else (cost.value,) * len(batches)
        slopes = slope if isinstance(slope, tuple) else (slope,) * len(batches)
        value: float | tuple[float, ...] = tuple(v + s * context for v, s in zip(values, slopes, strict=True))
    else:
        value = cost.value + slope * context
    return cost.model_copy(update={"value": value, "per_context": 0.0, "within_sd": 0.0})
