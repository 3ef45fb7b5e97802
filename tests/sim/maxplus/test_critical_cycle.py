"""Cycle time, critical cycle and derivatives, against the recurrence and the SimPy model."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_oracle import simulated
from variants import Variant, drawn, legal, names, variant, with_costs

from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.maxplus.cycles import Cycle, critical_cycle, cycles
from sim.maxplus.recurrence import Weighted
from sim.maxplus.steady import SteadyGraph, SteadyState, derivatives, settle
from sim.maxplus.turn import FixedBatch

CONTEXT = 100.0


def steady(resolved: Resolved) -> tuple[SteadyGraph, SteadyState]:
    graph = SteadyGraph(FixedBatch(resolved))
    return graph, graph.at(CONTEXT)


def flat(resolved: Resolved) -> Resolved:
    """Without growth by context, so that every turn of a run costs the same."""
    costs = {n: c.model_copy(update={"per_context": 0.0}) for n, c in resolved.profile.costs.items()}
    return with_costs(resolved, costs)


SOME = [(k, keys) for k, keys in enumerate(legal()) if k % 11 == 0]


def test_the_cycle_time_is_the_long_run_rate_of_the_recurrence() -> None:
    settled = 0
    for k, keys in SOME:
        _, state = steady(drawn(variant(keys), seed=k))
        if state.settled:
            settled += 1
            assert state.cycle_ns == Fraction(state.advance, len(state.orbit)), keys
    assert settled > 0.9 * len(SOME)


def test_the_cycle_time_is_the_long_run_rate_of_the_simpy_model() -> None:
    for k, keys in SOME[::5]:
        resolved = flat(drawn(variant(keys), seed=k))
        _, state = steady(resolved)
        period = len(state.orbit)
        turns = 40 + 2 * period
        starts = [start for name, _, start, _, _ in simulated(resolved, turns) if name == "receive"]
        if (
            state.settled
            and starts[-1 - period] - starts[-1 - 2 * period] == starts[-1] - starts[-1 - period]
        ):
            assert Fraction(starts[-1] - starts[-1 - period], period) == state.cycle_ns, keys


@settings(max_examples=60, deadline=None)
@given(data=st.data(), keys=st.sampled_from(legal()))
def test_the_cycle_time_is_the_rate_for_any_costs(data: st.DataObject, keys: Variant) -> None:
    resolved = variant(keys)
    # Few, small values make ties and long orbits likely.
    values = data.draw(
        st.lists(st.integers(0, 12), min_size=len(names(resolved)), max_size=len(names(resolved)))
    )
    costs = {
        n: Cost(value=v, unit="ns", status="exact") for n, v in zip(names(resolved), values, strict=True)
    }
    _, state = steady(with_costs(resolved, costs))
    if state.settled:
        assert state.cycle_ns == Fraction(state.advance, len(state.orbit))


def length(cycle: Cycle, durations: list[int]) -> int:
    return sum(durations[t] for step in cycle.steps for t in step.terms)


def test_the_critical_cycle_is_a_cycle_and_as_long_as_it_says() -> None:
    for k, keys in SOME:
        graph, state = steady(drawn(variant(keys), seed=k))
        cycle, nodes = state.critical, graph.graph.nodes
        assert length(cycle, state.weighted.durations) == cycle.mean * cycle.turns
        assert sum(step.arc.source < 0 for step in cycle.steps) == cycle.turns
        for before, step in zip((cycle.steps[-1], *cycle.steps), cycle.steps, strict=False):
            held = step.arc.source
            if held < 0:
                held = graph.graph.outputs[graph.graph.slots[-1 - held]]
            assert nodes[held] is before.node, keys


def test_every_arc_of_the_critical_cycle_is_tight_on_the_orbit() -> None:
    """Each node of it happens exactly as long after its source as the arc says, turn for turn."""
    for k, keys in SOME[::2]:
        _, state = steady(drawn(variant(keys), seed=k))
        if not state.settled:
            continue
        slots = len(state.weighted.graph.slots)
        for step in state.critical.steps:
            lap, turn = divmod(state.critical.phase + step.turn, len(state.orbit))
            values = state.orbit[turn]
            source = values[-1 - step.arc.source] if step.arc.source < 0 else values[slots + step.arc.source]
            assert values[slots + step.number] == source + step.ns, (keys, lap)


def test_no_small_change_gains_more_than_the_derivatives_say() -> None:
    """Subgradients: the cycle time is a maximum of linear functions as long as the same waits block."""
    random = np.random.default_rng(5)
    for k, keys in SOME:
        _, state = steady(drawn(variant(keys), seed=k))
        graph, durations = state.weighted.graph, np.array(state.weighted.durations)
        uses = state.critical.uses()
        slope = np.array([uses[t] for t in range(len(durations))])
        changed = durations + random.integers(0, 50, len(durations))
        moved = critical_cycle(graph, changed.tolist(), set_of(state))
        assert moved is not None
        bound = state.cycle_ns + Fraction(int(slope @ (changed - durations)), state.critical.turns)
        assert moved.mean >= bound, keys


def set_of(state: SteadyState) -> tuple[tuple[bool, ...], ...]:
    return state.blocked if len(set(state.blocked)) > 1 else state.blocked[:1]


def test_derivatives_by_name_predict_what_a_small_cut_gains() -> None:
    """Never more than they say, and nearly always just that: another path may take over on the way."""
    cuts = exact = 0
    for k, keys in SOME[::6]:
        resolved = flat(drawn(variant(keys), seed=k))
        graph, state = steady(resolved)
        if not state.settled:
            continue
        for name, slope in derivatives(state, graph.durations).items():
            cost = resolved.profile.costs[name]
            if cost.value < 20 or name.startswith(("call.wake", "call.synchronize")):  # they move what blocks
                continue
            cut = {**resolved.profile.costs, name: cost.model_copy(update={"value": cost.value - 10})}
            _, after = steady(with_costs(resolved, cut))
            gain = state.cycle_ns - after.cycle_ns
            assert 0 <= gain <= 10 * slope, (keys, name)
            cuts += slope > 0
            exact += slope > 0 and gain == 10 * slope
    assert exact > 0.9 * cuts > 100


def test_cycles_come_in_falling_order_from_the_critical_one() -> None:
    for k, keys in SOME[::4]:
        graph, state = steady(drawn(variant(keys), seed=k))
        found = list(
            cycles(graph.graph, state.weighted.durations, set_of(state), 0.5 * float(state.cycle_ns))
        )
        means = [c.mean for c in found]
        assert means == sorted(means, reverse=True)
        assert means[0] == state.cycle_ns
        assert len({c.crossings for c in found}) == len(found)


@pytest.mark.parametrize(
    ("cost", "side"), [("graph.target", "gpu"), ("host.schedule", "host"), ("host.lengths.mirror", "exposed")]
)
def test_the_side_follows_the_cost_that_grows(cost: str, side: str) -> None:
    keys = (("host_lengths", "exact"), ("engine", "toy-0.5.15"))
    resolved = variant(keys)
    longer = {**resolved.profile.costs, cost: Cost(value=5000, unit="us", status="exact")}
    if cost == "host.lengths.mirror":  # behind the wait for publish, hence in the way of the device
        longer[cost] = Cost(value=300, unit="us", status="exact")
    else:
        longer["host.lengths.mirror"] = Cost(value=0, unit="us", status="exact")
    if cost == "graph.target":  # the copy behind publish must fit under the rest of the forward
        longer["kernel.append"] = Cost(value=500, unit="us", status="exact")
    _, state = steady(with_costs(resolved, longer))
    assert state.critical.side == side


def test_a_transient_that_does_not_end_says_so() -> None:
    graph, state = steady(variant(()))
    again = settle(graph.graph, state.weighted.durations, most=2)
    assert not again.settled
    assert again.cycle_ns == state.cycle_ns


def test_the_evaluation_of_a_turn_is_shift_invariant() -> None:
    _, state = steady(drawn(variant(legal()[40]), seed=3))
    weighted = Weighted(state.weighted.graph, state.weighted.durations)
    slots = len(weighted.graph.slots)
    values = list(state.orbit[0])
    shifted = [v + 1_000 for v in values[:slots]]
    weighted.extend(shifted)
    assert shifted == [v + 1_000 for v in values]
