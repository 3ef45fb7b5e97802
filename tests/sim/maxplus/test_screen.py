"""The vectorised recurrence gives, scenario by scenario, what the other one gives."""

from __future__ import annotations

import numpy as np
import pytest
from variants import drawn, legal, variant, with_costs

from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.errors import InputError
from sim.maxplus.durations import Scales
from sim.maxplus.recurrence import Weighted
from sim.maxplus.scenarios import middle_context, screen_draws, screen_scenarios
from sim.maxplus.screen import STRIDE, screen
from sim.maxplus.steady import SteadyGraph, settle
from sim.maxplus.turn import FixedBatch


@pytest.mark.parametrize("start", range(0, 60, 6))
def test_every_kind_of_structure_screens_to_its_cycle_time(start: int) -> None:
    for k, keys in list(enumerate(legal()))[start::60]:
        steady = SteadyGraph(FixedBatch(drawn(variant(keys), seed=k)))
        random = np.random.default_rng(k)
        vector = steady.vector(50.0)
        draws = np.rint(vector * random.uniform(0.2, 3, (12, len(vector)))).astype(np.int64)
        found = screen(steady.graph, draws)
        for row, cycle_ns, settled in zip(draws, found.cycle_ns, found.settled, strict=True):
            state = settle(steady.graph, row.tolist())
            if settled and state.settled:
                assert cycle_ns == pytest.approx(float(state.cycle_ns), abs=1e-6), keys


def test_a_transient_longer_than_the_screen_is_said_to_be_one() -> None:
    """A forward stream one nanosecond slower than the host falls behind by one nanosecond a turn."""
    steady = SteadyGraph(FixedBatch(variant(())))
    primitives = steady.graph.turn.primitives
    target = len(primitives) + [p.name for p in primitives].index("verify")
    forward = [len(primitives) + i for i, p in enumerate(primitives) if p.stream == "forward"]
    fast, near, slow = (steady.vector(0.0) for _ in range(3))
    fast[target] = 0
    host_ns = int(settle(steady.graph, fast.tolist()).cycle_ns)
    near[target] = host_ns + 1 - fast[forward].sum()
    slow[target] = 10 * near[target]
    found = screen(steady.graph, np.stack([fast, near, slow]))
    assert found.settled.tolist() == [True, False, True]
    assert host_ns <= found.cycle_ns[1] <= host_ns + 1


def test_the_turns_counted_are_those_evaluated() -> None:
    steady = SteadyGraph(FixedBatch(variant(())))
    found = screen(steady.graph, np.stack([steady.vector(0.0)] * 5))
    assert found.settled.all()
    assert found.scenario_turns % (5 * STRIDE) == 0
    assert found.scenario_turns >= 2 * 5 * STRIDE


def test_scenarios_of_many_structures_answer_in_their_order() -> None:
    overrides = [
        {"workload.concurrency": c, "host_scale": h, "host_lengths": lengths, "algorithm": algorithm}
        for algorithm in ("dflash", "eagle")
        for lengths in ("none", "exact")
        for h in (0.5, 2.0)
        for c in (1, 3)
    ]
    scenarios = [load_resolved("toy_dF", o) for o in overrides]
    for resolved, answer in zip(scenarios, screen_scenarios(scenarios), strict=True):
        state = SteadyGraph(FixedBatch(resolved)).at(middle_context(resolved))
        assert answer.cycle_us == float(state.cycle_ns) / 1000
        assert answer.batch == resolved.scenario.workload.concurrency
        assert answer.to_json()["solver"] == "screen"


def test_scenarios_that_differ_in_one_cost_are_kept_apart() -> None:
    resolved = variant(())
    slower = {**resolved.profile.costs, "graph.target": Cost(value=900, status="exact")}
    fast, slow = screen_scenarios([resolved, with_costs(resolved, slower)], context=20.0)
    assert slow.cycle_us == fast.cycle_us + 500


def test_draws_of_a_cost_are_scenarios_with_that_cost() -> None:
    resolved = variant(())
    factors = np.array([0.5, 1.0, 4.0])
    found = screen_draws(resolved, {"graph.target": factors, "host.process": factors[::-1]}, context=20.0)
    for i, factor in enumerate(factors):
        costs = dict(resolved.profile.costs)
        for name, f in (("graph.target", factor), ("host.process", factors[::-1][i])):
            cost = costs[name]
            costs[name] = cost.model_copy(
                update={"value": cost.value * float(f), "per_batch": cost.per_batch * float(f)}
            )
        state = SteadyGraph(FixedBatch(with_costs(resolved, costs))).at(20.0)
        assert found.cycle_ns[i] == float(state.cycle_ns)


def test_an_open_loop_is_refused_with_what_to_do() -> None:
    workload = "{ arrival_rate_per_s = 10.0, requests = 8, prompt_tokens = 16, output_tokens = 12 }"
    with pytest.raises(InputError, match=r"closed loop \(workload.concurrency\)"):
        screen_scenarios([load_resolved("toy_dF", {"workload": workload})])


def test_the_middle_of_an_output_takes_the_means_of_lengths() -> None:
    lengths = {
        "workload.prompt_tokens": '{ distribution = "lognormal", mean = 100, cv = 0.5 }',
        "workload.output_tokens": "{ values = [10, 30] }",
    }
    assert middle_context(load_resolved("toy_dF", lengths)) == 110.0


def test_many_scales_are_the_same_as_one_at_a_time() -> None:
    steady = SteadyGraph(FixedBatch(drawn(variant(legal()[99]), seed=4)))
    scales = [Scales(0.7, 1.9), Scales(3.0, 0.1)]
    together = steady.durations.at(scales, 33.0)
    for row, each in zip(together, scales, strict=True):
        assert (row == steady.durations.at(each, 33.0)).all()
    assert Weighted(steady.graph, together[0].tolist()).evaluate({})
