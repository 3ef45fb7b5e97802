"""What the hazard check costs: below 30 % of a run's time, and nothing when it is off."""

from __future__ import annotations

import time

import pytest

from sim.config.loader import load_resolved
from sim.config.resolve import Resolved
from sim.replication import Replication

#: one scenario that is safe, two without a barrier (the second recycles every row), one without speculation
LOADS: dict[str, tuple[str, dict[str, object]]] = {
    "dflash, concurrency 32": ("h200_dflash", {"workload.requests": 384}),
    "dflash, concurrency 1": ("h200_dflash", {"workload.concurrency": 1, "workload.requests": 64}),
    "dflash unguarded": ("h200_dflash", {"workload.requests": 384, "barrier": "unguarded"}),
    "dflash unguarded, every row recycled": (
        "h200_dflash",
        {
            "workload.requests": 384,
            "barrier": "unguarded",
            "serving.max_running_requests": 32,
            "workload.prompt_tokens": 1200,
        },
    ),
    "none, concurrency 32": ("h200_none", {"workload.requests": 256}),
}
MOST = 0.30


def quickest(resolved: Resolved, rounds: int = 15) -> tuple[float, float]:
    """CPU seconds without and with the check: the quickest of some rounds, taken in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for hazards in (False, True):
            began = time.process_time()
            Replication(resolved, 0, hazards=hazards).run()
            times[hazards].append(time.process_time() - began)
    return min(times[0]), min(times[1])


@pytest.mark.parametrize("name", LOADS)
def test_the_check_costs_less_than_a_third_of_a_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, overrides = LOADS[name]
    resolved = load_resolved(scenario, {"run.replications": 1, **overrides})
    plain, checked = quickest(resolved)
    with capsys.disabled():
        print(f"\nhazard check, {name}: {checked / plain - 1:.1%} of {plain * 1000:.0f} ms")
    assert checked < (1 + MOST) * plain
