"""How time and memory grow with concurrency, iterations and the size of a screen."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
from loads import scenario, simulated
from table import Growth

from sim.maxplus.scenarios import screen_draws

Add = Callable[[Growth], None]


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def test_concurrency(growth: Add) -> None:
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    values = []
    for concurrency in sizes:
        resolved = scenario("h200_dflash", concurrency, 600)
        began = time.process_time()
        iterations = simulated(resolved)
        values.append((time.process_time() - began) / iterations * 1e6)
    growth(Growth("SimPy model: time of an iteration", "concurrency", "µs an iteration", sizes, values))


def test_iterations(growth: Add) -> None:
    sizes = [100, 1_000, 10_000, 100_000]
    values = [seconds(partial(simulated, scenario("h200_dflash", 1, n))) for n in sizes]
    growth(Growth("SimPy model: time of a run at concurrency 1", "iterations", "s", sizes, values))
    assert values[-1] < 20 * values[-2], "a run of ten times the iterations takes about ten times as long"


def test_memory(growth: Add) -> None:
    """Peak of everything Python allocates in a run without a trace."""
    sizes = [100, 1_000, 10_000, 100_000]
    values = []
    for iterations in sizes:
        resolved = scenario("h200_dflash", 1, iterations)
        tracemalloc.start()
        simulated(resolved)
        values.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    growth(Growth("SimPy model: memory of a run", "iterations", "peak MB", sizes, values))
    assert values[-1] < 2 * values[-2], "memory does not grow with the iterations"


def test_screened_scenarios(growth: Add) -> None:
    sizes = [10, 100, 1_000, 10_000, 100_000, 300_000]
    resolved = scenario("h200_dflash_exact", 32, 100)
    random = np.random.default_rng(3)
    values = []
    for draws in sizes:
        factors = {"graph.target": random.uniform(0.5, 2.0, draws)}
        values.append(seconds(partial(screen_draws, resolved, factors)))
    growth(Growth("screen: time of a grid", "scenarios", "s", sizes, values))
