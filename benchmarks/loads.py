"""What the benchmarks run: the shipped block-drafting scenarios, every section, kernel and graph of them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import simpy

from sim.config.loader import load_resolved
from sim.config.resolve import Resolved
from sim.replication import Replication

#: tokens a step commits on average with the default acceptance
_TOKENS_A_STEP = 6.4
#: output tokens of one request, as in the measured loads
_OUTPUT = 768


def scenario(name: str, concurrency: int, iterations: int) -> Resolved:
    """A closed loop that takes about ``iterations`` decode iterations, noise, prefills and merges included."""
    requests = max(concurrency, round(iterations * concurrency * _TOKENS_A_STEP / _OUTPUT))
    output = min(_OUTPUT, round(iterations * concurrency * _TOKENS_A_STEP / requests))
    return load_resolved(
        name,
        {
            "workload.concurrency": concurrency,
            "workload.requests": requests,
            "workload.output_tokens": max(1, output),
            "serving.max_running_requests": max(64, 2 * concurrency),
        },
    )


def simulated(resolved: Resolved) -> int:
    """One run of the SimPy model; returns its decode iterations."""
    return Replication(resolved, 0).run().books.decode_iterations


def events_an_iteration(resolved: Resolved) -> float:
    """SimPy events that a run schedules, a decode iteration."""
    schedule = simpy.Environment.schedule
    scheduled = 0

    def counting(*arguments: Any, **keywords: Any) -> None:
        nonlocal scheduled
        scheduled += 1
        schedule(*arguments, **keywords)

    with mock.patch.object(simpy.Environment, "schedule", counting):
        iterations = simulated(resolved)
    return scheduled / iterations
