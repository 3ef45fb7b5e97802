"""From raw data to costs: what was put in comes out, by means and straight lines alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpu_validation.calibrate.device_costs import (
    MOST_OFF,
    between_starts,
    event_us,
    forward_costs,
    prefill_costs,
    reliefs,
    side_costs,
)
from gpu_validation.calibrate.fit import host_state, machine_costs, wake_costs
from gpu_validation.calibrate.host_costs import (
    BLOCKED_US,
    Sample,
    added_by_wakes,
    behind_others,
    first_in_prefill,
    first_launch_us,
    host_costs,
    references,
    samples_of,
    sections_of,
    undisturbed,
)
from gpu_validation.calibrate.measure import HOLD_US
from gpu_validation.calibrate.profile_file import device_slug, profile_name
from gpu_validation.observe.host_speed import witness
from gpu_validation.observe.run_record import LEFT_OUT, Pass, RunRecord
from gpu_validation.observe.segments import WHOLE
from gpu_validation.runtime.host_work import NO_WORK, HostWork
from gpu_validation.spec.declared import declared
from sim.config.below_zero import problems
from sim.config.profile import Cost, DeviceProfile, at_batch
from sim.program.primitives import WAKE
from sim.program.step_program import Kind

torch.set_num_threads(1)

PROGRAM = declared("dflash", 3, "suite")
GRAPHS = sorted({op.cost for op in PROGRAM.operations if op.kind is Kind.GRAPH if op.cost})
#: µs that a timing event takes on the device
EVENT = 1.5


def timed(
    rows: int, parts: dict[str, Callable[[float], float]], steps: int = 24, step_tokens: float = 6.0
) -> RunRecord:
    """A run whose forwards take ``parts`` (µs by context), timed by events in parts and as wholes by turns."""
    passes, segments = [], []
    for i in range(1 + LEFT_OUT + steps):
        context = 100 + step_tokens * i
        passes.append(Pass(rows, i == 0, context, 1000 * i, {}))
        us = {name: part(context) for name, part in parts.items()}
        if i % 2:
            segments.append({WHOLE: sum(us.values()) + EVENT})
        else:
            segments.append({name: value + EVENT for name, value in us.items()})
    return RunRecord(rows, 1, 1, "", "", passes, segments)


def test_what_an_event_takes_is_the_parts_less_the_whole() -> None:
    run = timed(4, {"a": lambda c: 50 + 0.1 * c, "b": lambda c: 7.0, "c": lambda c: 9.0})
    assert event_us([run]) == pytest.approx(EVENT)
    assert event_us([]) == 0.0


def graph_us(filled: int, rows: int, floor: float, per_empty: float) -> Callable[[float], float]:
    """The model's formula for a graph: 40 µs and 12 a row, and a slope of 0.02 a row."""
    share = max(floor, filled / rows)
    return lambda context: 40 + 12 * rows + share * 0.02 * rows * context + per_empty * (rows - filled)


@pytest.mark.parametrize(("floor", "per_empty"), [(0.6, 3.0), (0.5, -1.0), (1.0, 0.0)])
def test_empty_rows_cost_their_own_and_leave_the_context_its_floor(floor: float, per_empty: float) -> None:
    name = GRAPHS[0]
    full = {rows: [timed(rows, {name: graph_us(rows, rows, floor, per_empty)})] for rows in (1, 4, 16)}
    roomy = {
        rows: [timed(rows, {name: graph_us(rows, graph, floor, per_empty)})]
        for rows, graph in ((1, 4), (4, 16))
    }
    cost = forward_costs(PROGRAM, full, roomy, {}, EVENT, "here")[name]
    assert cost.batch == (1, 4, 16)
    assert cost.value == pytest.approx((52, 88, 232))
    assert cost.per_context == pytest.approx((0.02, 0.08, 0.32))
    # The smallest graph is never emptier than it was built for.
    assert cost.context_floor == pytest.approx((0.0, floor, floor), abs=1e-3)
    assert cost.per_empty == pytest.approx((0.0, per_empty, per_empty), abs=1e-3)
    # The model's reading of these numbers gives back what was timed.
    for rows, graph in ((1, 4), (4, 16)):
        context = 180.0
        again = (
            at_batch(cost.value, cost.batch, graph)
            + at_batch(cost.per_context, cost.batch, graph) * context * cost.reading(graph, rows)
            + cost.emptiness(graph, rows)
        )
        assert again == pytest.approx(graph_us(rows, graph, floor, per_empty)(context), rel=1e-3)


def test_an_empty_row_cannot_cost_less_than_the_graph_has() -> None:
    """Two timings of noise: none of it makes a graph take less than no time."""
    name = GRAPHS[0]
    full = {rows: [timed(rows, {name: lambda c: 90.0})] for rows in (1, 4)}
    roomy = {1: [timed(1, {name: lambda c: -500.0})]}
    cost = forward_costs(PROGRAM, full, roomy, {}, EVENT, "here")[name]
    assert cost.emptiness(4, 1) == pytest.approx(-MOST_OFF * 3 * 90 / 4, abs=0.01)


def test_a_slope_of_noise_takes_no_graph_below_nothing() -> None:
    run = timed(1, {GRAPHS[0]: lambda c: 5 - 0.02 * (c - 100)})
    cost = forward_costs(PROGRAM, {1: [run]}, {}, {}, EVENT, "here")[GRAPHS[0]]
    assert isinstance(cost.value, tuple)
    assert isinstance(cost.per_context, tuple)
    assert cost.per_context[0] < 0
    last = cost.valid_range["context"][1]
    assert cost.value[0] + cost.per_context[0] * last == pytest.approx(
        (1 - MOST_OFF) * cost.value[0], rel=1e-3
    )
    profile = DeviceProfile(name="x", status="measured", engine="suite", costs={"graph.x": cost})
    assert problems(profile, "x.toml") == []


def test_a_pause_relieves_graphs_by_as_much_as_those_behind_the_first_are_shorter() -> None:
    first, *behind = [op.name for op in PROGRAM.operations if op.kind is Kind.GRAPH]

    def graphs(factor: float, delay: float = 0.0) -> dict[str, Callable[[float], float]]:
        later: dict[str, Callable[[float], float]] = {n: lambda c: factor * (3 + 0.01 * c) for n in behind}
        return {first: lambda c: 2.0 + delay, **later}

    full = {1: [timed(1, graphs(1.0))], 4: [timed(4, graphs(1.0))]}
    paused = {4: [timed(4, graphs(0.96, delay=1.0))]}  # the first waits for its launch
    for p in paused[4][0].passes:
        p.entered_ns *= 20
    found = reliefs(PROGRAM, full, paused, EVENT)
    share, at = found[4]
    assert list(found) == [4]
    assert share == pytest.approx(0.04, abs=1e-6)
    assert 0 < at < 1
    cost = forward_costs(PROGRAM, full, {}, paused, EVENT, "here")[first]
    assert cost.relief == (0.0, 0.04)
    assert cost.relieved(4, at) == pytest.approx(0.96, abs=1e-4)
    assert cost.relieved(4, at / 2) == pytest.approx(0.98, abs=1e-3)
    assert cost.relieved(4, 1.0) == pytest.approx(0.96)
    assert cost.relieved(1, 1.0) == cost.relieved(4, 0.0) == 1.0


def test_only_graphs_have_a_slope_over_the_context() -> None:
    kernel = next(
        op.cost
        for op in PROGRAM.operations
        if op.kind is Kind.KERNEL and op.stream == "forward" and op.cost not in GRAPHS
    )
    assert kernel is not None
    runs = {1: [timed(1, {kernel: lambda c: 5 + 0.01 * c, GRAPHS[0]: lambda c: 99.0})]}
    found = forward_costs(PROGRAM, runs, {}, {}, EVENT, "here")
    assert found[kernel].per_context == (0.0,)
    assert found[GRAPHS[0]].per_context == (0.0,)  # a slope that is nothing is none
    assert found[GRAPHS[0]].value == pytest.approx((99.0,))


def test_a_segment_shorter_than_its_event_costs_nothing() -> None:
    runs = {1: [timed(1, {GRAPHS[0]: lambda c: -0.5 - 0.001 * (c % 5)})]}
    cost = forward_costs(PROGRAM, runs, {}, {}, EVENT, "here")[GRAPHS[0]]
    assert cost.value == (0.0,)
    assert cost.within_sd == 0.0


def test_starts_differ_by_what_their_forwards_do_at_equal_contexts() -> None:
    def start(factor: float) -> dict[int, list[RunRecord]]:
        return {b: [timed(b, {GRAPHS[0]: lambda c: factor * (100 + c) - EVENT})] for b in (1, 4)}

    assert between_starts([start(1.0)]) == 0.0
    assert between_starts([start(1.0), start(1.0)]) == 0.0
    assert between_starts([start(0.99), start(1.01)]) == pytest.approx(0.01 * 2**0.5, rel=1e-3)
    # A start that was stopped early counts at the batches it has.
    half = {1: start(1.01)[1]}
    assert between_starts([start(0.99), half]) == pytest.approx(0.01 * 2**0.5, rel=1e-3)


def test_disturbed_values_do_not_count() -> None:
    assert undisturbed([5.0, 5.2, 4.8, 80.0]) == [5.0, 5.2, 4.8]
    assert undisturbed([-0.2, -0.1, 0.1]) == [
        -0.2,
        -0.1,
    ]  # a negative median: what lies above it tells nothing


def test_operations_beside_the_forward_are_differences_of_medians() -> None:
    alone = {
        "nothing": [2.0, 2.0, 50.0],
        "prepare.copy": [5.0, 5.0, 5.0],
        "prepare.copy+prepare.assign": [9.0, 9.0, 9.0],
        "lengths.copy": [1.0, 1.0, 1.0],
    }
    costs = side_costs({1: [alone], 4: [alone]}, "here")
    assert costs["prepare.copy"].value == (3.0, 3.0)
    assert costs["prepare.assign"].value == (4.0, 4.0)
    assert costs["lengths.copy"].value == (0.0, 0.0)  # never below nothing
    assert costs["prefill.copy"].value == costs["prepare.copy"].value


def test_a_prefill_costs_the_device_what_is_left_once_it_is_launched() -> None:
    sections = {"prefill": 700_000, "prefill.rows": 30_000}
    passes = [Pass(1, True, 8.0, 0, sections)]
    plain = RunRecord(1, 1, 1, "", "", passes)
    timed = RunRecord(1, 1, 1, "", "", passes, [{"prefill": 400.0}])
    for held_us in (HOLD_US, 500.0):
        costs = prefill_costs(
            {1: [("as_is", 0.0, plain), ("segments", held_us, timed)]}, ["prefill.rows", "prefill"], "here"
        )
        assert costs["host.prefill.rows"].value == (30.0,)
        assert costs["prefill"].value == (held_us + 400.0 - 700.0,)


# -- the host -----------------------------------------------------------------------------------------------------


WITNESS = dict.fromkeys(witness(PROGRAM), 10_000)


def run_of(
    sections: dict[str, int], slow: tuple[int, ...] = (), steps: int = 20, speed: float = 1.0
) -> dict[str, Any]:
    """A raw run of one request whose turns all have these sections, ns, and the witness; in ``slow`` turns everything
    takes double, and ``speed`` times as long in all."""
    every = {**WITNESS, **sections}
    passes = [
        Pass(1, i == 0, 9.0, 1000 * i, {k: round(v * speed * (1 + (i in slow))) for k, v in every.items()})
        for i in range(1 + LEFT_OUT + steps)
    ]
    return {"mode": "as_is", "record": RunRecord(1, 1, 1, "", "", passes).to_json()}


REFERENCE_US = 10.0 * len(WITNESS)


def sampled(*runs: dict[str, Any], work: HostWork = NO_WORK) -> list[dict[str, Sample]]:
    found = samples_of([sections_of(PROGRAM, 1, run) for run in runs], {1: REFERENCE_US}, work)
    return [{s.cost: s for s in samples} for samples in found]


def test_sections_of_a_slow_host_do_not_count() -> None:
    (found,) = sampled(run_of({"receive": 5000, "schedule": 2000}, slow=tuple(range(12, 26))))
    assert found["host.receive"].mean == 5.0
    assert found["host.schedule"].mean == 2.0
    assert found["host.receive"].sd == 0.0
    assert found["host.receive"].as_it_ran == pytest.approx(5 * (20 + 14) / 20)


@pytest.mark.parametrize("speed", [0.9, 1.1, 1.24, 1.8])
def test_sections_are_stated_at_the_reference_speed_whatever_the_run_s(speed: float) -> None:
    """All host code is as much slower as the witness; a run that was slow throughout counts as well."""
    (found,) = sampled(run_of({"receive": 5000, "schedule": 2000}, speed=speed))
    assert found["host.receive"].mean == pytest.approx(5.0, rel=1e-3)
    assert found["host.schedule"].mean == pytest.approx(2.0, rel=1e-3)
    assert found["host.receive"].as_it_ran == pytest.approx(5.0 * speed, rel=1e-3)


def test_held_work_is_held_by_the_clock_whatever_the_host_s_speed() -> None:
    run = run_of({"receive": 300_000 + 5500}, speed=1.0)
    for p in run["record"]["passes"]:
        p["sections"].update(dict.fromkeys(WITNESS, 11000))
    (found,) = sampled(run, work=HostWork(receive_us=300))
    assert found["host.receive"].mean == pytest.approx(305.0)


def test_the_reference_is_that_of_a_usual_turn_by_batch() -> None:
    runs = [(1, run_of({})), (1, run_of({})), (1, run_of({}, speed=1.5)), (4, run_of({}, speed=2.0))]
    found = references(PROGRAM, runs)
    assert found == {1: pytest.approx(REFERENCE_US), 4: pytest.approx(2 * REFERENCE_US)}
    assert references(PROGRAM, [(1, {"record": RunRecord(1, 1, 1, "", "", []).to_json()})]) == {1: 0.0}


def test_a_section_behind_a_wait_that_blocked_knows_it() -> None:
    blocked = round(BLOCKED_US * 1000) + 1
    (found,) = sampled(run_of({"result.synchronize": blocked, "process": 9000, "receive": 4000}))
    assert (found["host.process"].woken_by, found["host.process"].idle) == ("result.synchronize", True)
    assert found["host.receive"].woken_by == ""  # another piece of the loop
    (met,) = sampled(run_of({"result.synchronize": 900, "process": 9000}))
    assert met["host.process"].woken_by == ""


def sample(
    cost: str, batch: int, mean: float, woken_by: str = "", as_it_ran: float = 0.0, first: bool = False
) -> Sample:
    return Sample(cost, batch, woken_by, bool(woken_by), first, mean, 0.1 * mean, as_it_ran or mean)


def test_a_first_launch_costs_what_the_same_launch_takes_less_behind_another() -> None:
    runs = [
        [sample("host.a", 1, 47.0), sample("host.a", 4, 49.0), sample("host.b", 1, 80.0, first=True)],
        [sample("host.a", 1, 72.0, first=True), sample("host.a", 4, 73.0, first=True)],
        [
            sample("host.a", 1, 300.0, "fence.synchronize", first=True)
        ],  # behind a wake it tells something else
    ]
    us = first_launch_us(runs)
    assert us == pytest.approx(24.5)
    assert [[s.mean for s in samples] for samples in behind_others(runs, 24.5)] == [
        [47, 49, 55.5],
        [47.5, 48.5],
        [275.5],
    ]
    assert first_launch_us(runs[:1]) is None


def test_a_prefill_has_its_own_first_launch() -> None:
    """Its page table entries; the prompt's own launches come behind them."""
    assert first_in_prefill(PROGRAM) == {"host.prefill.assign"}


def test_a_turn_knows_which_launch_is_the_first_after_a_host_section() -> None:
    sections = {"prepare.assign": 60_000, "draft.metadata": 47_000, "enter.gather_token": 52_000}
    (unified,) = samples_of([sections_of(PROGRAM, 1, run_of(sections))], {1: REFERENCE_US}, NO_WORK)
    carried = {**run_of(sections), "mode": "fenced"}
    (direct,) = samples_of([sections_of(PROGRAM, 1, carried)], {1: REFERENCE_US}, NO_WORK)
    first = [{s.cost for s in samples if s.first} for samples in (unified, direct)]
    assert first[0] == {"host.prepare.assign", "host.enter.gather_token"}
    assert first[1] == {"host.prepare.assign", "host.draft.metadata"}


def test_host_costs_are_means_by_batch_and_wakes_what_comes_on_top() -> None:
    runs = [
        [sample("host.process", batch, 10 + 2 * batch), sample("host.receive", batch, 3.0 + batch)]
        for batch in (1, 4)
    ]
    runs += [[sample("host.process", batch, 15 + 3 * batch, "result.synchronize")] for batch in (1, 4)]
    costs = host_costs(PROGRAM, runs, "here")
    assert costs["host.process"].value == pytest.approx((12, 18))
    assert costs["host.process"].batch == (1, 4)
    assert costs["host.process"].within_sd == pytest.approx(0.1)
    assert costs["host.receive"].value == pytest.approx(
        5.5
    )  # what is received has nothing to do with the batch
    added = added_by_wakes(costs, runs)
    assert added == {f"{WAKE}.result.synchronize": {1: pytest.approx(6), 4: pytest.approx(9)}}
    costs[WAKE] = Cost(value=20.0)
    (wake,) = wake_costs(costs, {"call.wake.x": {4: 9.0, 16: 5.0}}, [1, 4, 16, 64], "one start").values()
    assert wake.value == (
        29.0,
        29.0,
        25.0,
        25.0,
    )  # where it never blocked, as at the nearest batch where it did
    assert wake.batch == (1, 4, 16, 64)


def test_the_host_state_is_how_runs_went_whatever_their_speed() -> None:
    runs = [[sample("host.process", 1, 10.0, as_it_ran=10.0 + i)] for i in range(11)]
    costs = host_costs(PROGRAM, runs, "here")
    state = host_state(runs, costs)
    assert state.quantiles["0.975"] == pytest.approx(1.975)
    assert state.quantiles["0.025"] == pytest.approx(1.025)


def test_a_wake_is_what_blocking_takes_longer_than_polling() -> None:
    samples = {
        "known_by_polling": [9.0, 9.0, 30.0],
        "query_met": [1.0],
        "known_by_blocking": [28.0],
        "hop": [-0.5],
        "copy_h2d_pageable": [14.0],
        "copy_h2d_pinned": [6.0],
    }
    values = {name: cost.value for name, cost in machine_costs([{"samples": samples}], "here").items()}
    assert values == {WAKE: 20.0, "hop.launch": 8.0, "hop.cross_stream": 0.0, "call.pageable_copy": 8.0}


def test_a_profile_is_named_after_the_device() -> None:
    assert device_slug("NVIDIA H100 80GB HBM3") == "h100"
    assert device_slug("AMD Instinct MI355X") == "mi355x"
    assert device_slug("Some Device") == "some-device"
    assert profile_name("h200", "8b") == "h200_suite"
    assert profile_name("h200", "0.6b") == "h200_suite_0.6b"
