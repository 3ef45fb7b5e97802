"""Iterations a second of both solvers, beside the limits of the language and of SimPy."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice, repeat

import numpy as np
import pytest
from limits import bare_python, bare_simpy
from loads import events_an_iteration, scenario, simulated
from table import Rate

from sim.maxplus.recurrence import run
from sim.maxplus.scenarios import screen_draws
from sim.maxplus.screen import CHUNK, screen
from sim.maxplus.steady import SteadyGraph
from sim.maxplus.turn import FixedBatch

Measure = Callable[..., Rate]

#: goals of the project, a second on one core
SIMPY_GOALS = {1: 10_000, 32: 5_000}
SCREEN_GOAL = 2_000_000
DRAWS = 100_000


def primitives(name: str, concurrency: int) -> int:
    """Primitives of one turn."""
    return len(FixedBatch(scenario(name, concurrency, 100)).steady.primitives)


def best(work: Callable[[], float]) -> float:
    """Units of ``work`` a second, best of three."""
    rates = []
    for _ in range(3):
        began = time.process_time()
        done = work()
        rates.append(done / (time.process_time() - began))
    return max(rates)


@pytest.mark.parametrize("concurrency", [1, 32])
@pytest.mark.parametrize("name", ["h200_dflash", "h200_dflash_exact", "h200_dflash_0514_default"])
def test_simpy_model(rate: Measure, name: str, concurrency: int) -> None:
    resolved = scenario(name, concurrency, 3000)
    found = rate(
        f"SimPy model, {name}, concurrency {concurrency}",
        "iterations",
        lambda: simulated(resolved),
        SIMPY_GOALS[concurrency],
    )
    events, operations = events_an_iteration(resolved), primitives(name, concurrency)
    found.limits[f"SimPy's at {events:.1f} events an iteration"] = best(lambda: bare_simpy(200_000)) / events
    found.limits[f"Python's at {operations} operations"] = (
        best(lambda: bare_python(operations, 2000)) / operations
    )


@pytest.mark.parametrize("concurrency", [1, 32])
def test_recurrence(rate: Measure, concurrency: int) -> None:
    batch = FixedBatch(scenario("h200_dflash_exact", concurrency, 100))
    turns = 3000
    found = rate(
        f"recurrence, h200_dflash_exact, fixed batch of {concurrency}, one context",
        "iterations",
        lambda: sum(1 for _ in run(batch, list(islice(repeat(400.0), turns)))),
    )
    operations = len(batch.steady.primitives)
    found.limits[f"Python's at {operations} operations"] = (
        best(lambda: bare_python(operations, 2000)) / operations
    )


def matrix(scenarios: int) -> tuple[SteadyGraph, np.ndarray]:
    """One event graph under random durations: every entry between half and twice its value."""
    steady = SteadyGraph(FixedBatch(scenario("h200_dflash_exact", 32, 100)))
    factors = np.random.default_rng(1).uniform(0.5, 2.0, (scenarios, len(steady.vector(400.0))))
    return steady, np.rint(steady.vector(400.0) * factors).astype(np.int64)


def test_screen(rate: Measure) -> None:
    steady, durations = matrix(10 * CHUNK)
    rate(
        "screen, h200_dflash_exact, batch 32, set-up of every scenario included",
        "scenario-iterations",
        lambda: screen(steady.graph, durations).scenario_turns,
        SCREEN_GOAL,
    )


def test_a_hundred_thousand_scenarios(rate: Measure) -> None:
    """Draws of three costs of one scenario, from the profile to the cycle of each."""
    resolved = scenario("h200_dflash_exact", 32, 100)
    random = np.random.default_rng(2)
    names = ("graph.target", "host.v0515.draft", "hop.cross_stream")
    factors = {name: random.uniform(0.5, 2.0, DRAWS) for name in names}
    rate(
        f"{DRAWS:,} cost draws of one scenario, each to its cycle time (goal: in 60 s)",
        "scenarios",
        lambda: len(screen_draws(resolved, factors).cycle_ns),
        DRAWS / 60,
    )
