"""Many fixed-batch questions at once: scenarios as they are, or one scenario under many draws of its costs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.config.scenario import ListedLengths, LogNormal
from sim.errors import InputError, Problem
from sim.maxplus.durations import rounded, scales_of
from sim.maxplus.screen import CHUNK, Screened, joined, screen
from sim.maxplus.steady import SteadyGraph
from sim.maxplus.turn import FixedBatch
from sim.program.policies import policies_of
from sim.units import NS_PER_US

#: how results name this solver
SOLVER = "screen"


@dataclass(frozen=True)
class Answer:
    """The cycle of a full batch at one context, central costs. ``settled``: the last turns repeated themselves, so
    that the figure is exact; otherwise it is their mean."""

    cycle_us: float
    batch: int
    context: float
    settled: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "solver": SOLVER,
            "cycle_us": {"mean": self.cycle_us},
            "batch": self.batch,
            "mean_context": self.context,
            "settled": self.settled,
        }


def middle_context(resolved: Resolved) -> float:
    """Mean context of a request halfway through its output, prompt included, from the means of the lengths."""
    workload = resolved.scenario.workload
    return _mean(workload.prompt_tokens) + _mean(workload.output_tokens) / 2


def _mean(lengths: int | LogNormal | ListedLengths) -> float:
    if isinstance(lengths, LogNormal):
        return lengths.mean
    if isinstance(lengths, ListedLengths):
        values = lengths.values or ()
        return sum(values) / len(values)
    return float(lengths)


def screen_scenarios(scenarios: Sequence[Resolved], context: float | None = None) -> list[Answer]:
    """The cycle of each scenario's full batch at ``context`` (default: the middle of its own output).

    Scenarios that differ in nothing but the scales of their costs share an event graph and are evaluated together.
    Raises InputError for an open loop, whose batch is not fixed.
    """
    contexts = [middle_context(r) if context is None else context for r in scenarios]
    answers: dict[int, Answer] = {}
    for members in _alike(scenarios, contexts):
        batch = fixed_batch(scenarios[members[0]])
        steady = SteadyGraph(batch)
        at = contexts[members[0]]
        found = screen(steady.graph, steady.durations.at([scales_of(scenarios[i]) for i in members], at))
        for i, ns, settled in zip(members, found.cycle_ns, found.settled, strict=True):
            answers[i] = Answer(float(ns) / NS_PER_US, batch.batch, at, bool(settled))
    return [answers[i] for i in range(len(scenarios))]


def screen_draws(
    resolved: Resolved, factors: Mapping[str, NDArray[np.float64]], context: float | None = None
) -> Screened:
    """The cycle of one scenario under draws of its costs: ``factors`` maps names to one multiplier a draw."""
    steady = SteadyGraph(fixed_batch(resolved))
    draws = len(next(iter(factors.values())))
    vector = steady.durations.exact(
        scales_of(resolved), middle_context(resolved) if context is None else context
    )
    columns = [(k, factors[share.name]) for k, share in steady.durations.named() if share.name in factors]
    parts = []
    for first in range(0, draws, CHUNK):  # the matrix of all draws would be large
        some = slice(first, min(first + CHUNK, draws))
        matrix = np.repeat(vector[None, :], some.stop - first, axis=0)
        for k, factor in columns:
            matrix[:, k] *= factor[some]
        parts.append(screen(steady.graph, rounded(matrix)))
    return joined(parts)


def fixed_batch(resolved: Resolved) -> FixedBatch:
    """The scenario's full batch. Raises InputError for an open loop."""
    if resolved.scenario.workload.concurrency is None:
        raise InputError(
            Problem(
                "workload.arrival_rate_per_s",
                "an open loop, whose batch changes all the time",
                "a closed loop (workload.concurrency): this solver answers for a fixed batch",
                "Use the SimPy model for open loops.",
            )
        )
    return FixedBatch(resolved)


def _alike(scenarios: Sequence[Resolved], contexts: Sequence[float]) -> list[list[int]]:
    """Numbers of the scenarios by what they share: all that durations depend on but the scales."""
    groups: dict[Hashable, list[tuple[dict[str, Cost], list[int]]]] = {}
    for i, resolved in enumerate(scenarios):
        same = groups.setdefault((*_structure(resolved), contexts[i]), [])
        costs = resolved.profile.costs
        # Nearly always one and the same table, or one whose entries are the same objects: quickly compared.
        members = next((found for known, found in same if known == costs), None)
        if members is None:
            same.append((costs, [i]))
        else:
            members.append(i)
    return [members for same in groups.values() for _, members in same]


def _structure(resolved: Resolved) -> tuple[Hashable, ...]:
    """Everything but costs and their scales that the durations of a turn depend on."""
    s = resolved.scenario
    return (
        # Programs are compared by identity: those of one file are one object.
        id(resolved.program),
        policies_of(resolved),
        s.serving.page_size,
        s.serving.graph_batches,
        s.block_size,
        s.workload.concurrency,
    )
