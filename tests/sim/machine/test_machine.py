"""The rules of the machine, one small program each; every expected number can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import simpy

from sim.config.profile import Cost, DeviceProfile
from sim.errors import InputError, WaitError
from sim.machine.costs import CostBook, Scales
from sim.machine.machine import CAUSES, Machine
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Kind, Phase
from sim.randomness import RunKey
from sim.trace.record import Cause

US = 1000
COSTS = {
    "call": 2,
    "call.wake": 5,
    "hop.cross_stream": 3,
    "hop.launch": 1,
    "work": 10,
    "short": 4,
    "long": 100,
}


def machine(**extra: Cost) -> Machine:
    costs = {name: Cost(value=us, status="exact") for name, us in COSTS.items()} | extra
    profile = DeviceProfile(name="test", status="exact", engine="e", costs=costs)
    return Machine(simpy.Environment(), CostBook(profile, Scales(), RunKey(1, 0)))


def launch(name: str, device: str, stream: str = "forward") -> Primitive:
    return Primitive(
        Act.LAUNCH, name, Phase.FORWARD, stream=stream, host="call", device=device, kind=Kind.KERNEL
    )


def host(cost: str = "work") -> Primitive:
    return Primitive(Act.HOST, "host", Phase.FORWARD, host=cost)


def record(event: str, stream: str = "forward") -> Primitive:
    return Primitive(Act.RECORD, "record", Phase.FORWARD, stream=stream, event=event)


def wait(event: str, stream: str, cause: Cause | None = None) -> Primitive:
    return Primitive(Act.WAIT, "wait", Phase.FORWARD, stream=stream, event=event, cause=cause)


def sync(event: str, cause: Cause = Cause.COPY_DONE) -> Primitive:
    return Primitive(Act.SYNC, "sync", Phase.FORWARD, host="call", event=event, cause=cause)


def run(
    m: Machine, *primitives: Primitive, batch: int = 1, iteration: int = 0, context: float = 0
) -> Machine:
    step = m.compile(primitives, batch, batch, 1)
    m.env.run(until=m.env.process(m.run(step, context, iteration)))
    return m


def idle(m: Machine) -> dict[str, int]:
    return {str(c): m.idle[k] // US for k, c in enumerate(CAUSES) if m.idle[k]}


def test_a_kernel_starts_one_launch_latency_after_its_call_ends() -> None:
    assert run(machine(), host(), launch("a", "short")).free[0] == (10 + 2 + 1 + 4) * US


def test_queued_kernels_run_back_to_back() -> None:
    m = run(machine(), launch("a", "long"), launch("b", "long"))
    assert m.free[0] == (2 + 1 + 200) * US
    assert idle(m) == {}


def test_a_slow_launcher_leaves_gaps_and_they_are_launch_lag() -> None:
    m = run(machine(), launch("a", "short"), host(), launch("b", "short"))
    # a: 3..7, b is launched at 14, starts at 15
    assert m.free[0] == 19 * US
    assert idle(m) == {"launch_lag": 8}
    assert m.exposed == 8 * US


def test_a_stream_wait_costs_the_hop_between_streams_and_names_its_cause() -> None:
    m = run(
        machine(),
        launch("first", "short"),
        launch("slow", "long", "schedule"),
        record("done", "schedule"),
        wait("done", "forward", Cause.BARRIER),
        launch("second", "short"),
    )
    # slow: 5..105; second starts at 105 + 3
    assert m.free[0] == 112 * US
    assert idle(m) == {"barrier": 101}
    assert m.exposed == 0, "a wait of the stream is not exposed host time"


def test_a_wait_on_the_same_stream_costs_no_hop() -> None:
    m = run(machine(), launch("a", "long"), record("e"), wait("e", "forward"), launch("b", "short"))
    assert m.free[0] == (3 + 100 + 4) * US


def test_a_wait_refers_to_the_latest_record_before_it_not_to_a_later_one() -> None:
    m = run(
        machine(),
        launch("a", "short", "schedule"),
        record("e", "schedule"),
        wait("e", "forward"),
        launch("b", "long", "schedule"),
        record("e", "schedule"),
        launch("c", "short"),
    )
    # c: launched at 6, starts at max(7, a's end 7 + hop 3)
    assert m.free[0] == (10 + 4) * US


def test_an_unmet_event_blocks_the_host_until_it_is_met_plus_the_wake() -> None:
    m = run(machine(), launch("a", "long"), record("e"), sync("e"))
    assert m.now == (3 + 100 + 5) * US
    assert m.blocked == 101 * US


def test_a_wake_with_a_cost_of_its_own_takes_that_one_in_place_of_the_common_one() -> None:
    own = {"call.wake.sync": Cost(value=20, status="exact")}
    m = run(machine(**own), launch("a", "long"), record("e"), sync("e"))
    assert m.now == (3 + 100 + 20) * US
    met = run(machine(**own), launch("a", "short"), record("e"), host(), sync("e"))
    assert met.now == (2 + 10 + 2) * US


def test_an_event_already_met_costs_the_host_only_its_call() -> None:
    m = run(machine(), launch("a", "short"), record("e"), host(), sync("e"))
    assert m.now == (2 + 10 + 2) * US
    assert m.blocked == 0


def test_idle_belongs_to_the_last_host_wait_for_as_long_as_that_blocked_the_host() -> None:
    m = run(
        machine(),
        launch("a", "short"),
        record("e"),
        sync("e", Cause.PUBLISH_SYNC),
        launch("b", "short"),
        host(),
        launch("c", "short"),
    )
    # a: 3..7; the host is blocked from 2 to 12; b is launched at 14, starts at 15: 8 µs of those 10
    # c is launched at 26, starts at 27 after b's end at 19: the other 2, and 6 of launching
    assert idle(m) == {"publish_sync": 10, "launch_lag": 6}


def test_a_record_with_nothing_behind_a_wait_is_met_when_the_wait_is() -> None:
    m = run(
        machine(),
        launch("a", "long"),
        record("a_done"),
        wait("a_done", "schedule"),
        record("joined", "schedule"),
        sync("joined"),
    )
    assert m.now == (103 + 3 + 5) * US


def test_a_wait_for_an_event_nobody_recorded_names_it_and_does_not_hang() -> None:
    with pytest.raises(WaitError, match=r'wait \(forward\) waits for event "never"'):
        run(machine(), wait("never", "forward"))


def test_an_unknown_cost_is_one_clear_message() -> None:
    with pytest.raises(InputError, match=r'no cost "lnog", which operation a needs.*near: long'):
        run(machine(), launch("a", "lnog"))


def test_a_graph_runs_at_the_padded_batch_and_shares_context_over_its_rows() -> None:
    rows = Cost(value=(100.0, 200.0), batch=(1, 8), per_context=(1.0, 2.0), status="exact")
    m = machine(graph=rows)
    step = m.compile(
        [
            Primitive(
                Act.LAUNCH, "g", Phase.FORWARD, stream="forward", host="call", device="graph", kind=Kind.GRAPH
            )
        ],
        batch=4,
        padded=8,
        block_size=1,
    )
    m.env.run(until=m.env.process(m.run(step, 10, 0)))
    # 200 at the padded batch; four of eight rows hold context: 10 tokens × 2 µs × 4/8
    assert m.free[0] == (3 + 200 + 10) * US


def test_a_context_floor_is_the_least_a_graph_keeps_of_its_slope_when_rows_are_empty() -> None:
    cost = Cost(value=100.0, batch=(1, 8), per_context=2.0, context_floor=(0.0, 0.5), status="exact")
    assert [cost.reading(8, filled) for filled in (8, 6, 4, 2)] == [1.0, 0.75, 0.5, 0.5]
    assert cost.reading(1, 1) == 1.0


def test_empty_rows_of_a_graph_add_their_cost() -> None:
    cost = Cost(value=100.0, batch=(1, 8), per_empty=(0.0, 3.0), status="exact")
    assert [cost.emptiness(8, filled) for filled in (8, 6)] == [0.0, 6.0]


def test_noise_is_keyed_by_cost_and_iteration_and_has_mean_one() -> None:
    noisy = Cost(value=100.0, within_sd=0.1, status="exact")

    def durations(first: list[Primitive]) -> list[int]:
        m = machine(noisy=noisy)
        out = []
        for i in range(2000):
            before = m.free[1]
            run(m, *first, launch("x", "noisy", "schedule"), iteration=i)
            start = max(before, m.now + 1 * US)
            out.append(m.free[1] - start)
        return out

    alone = durations([])
    beside = durations([launch("other", "long", "copy"), host()])
    assert alone == beside, "what else runs must not shift the luck"
    mean = sum(alone) / len(alone)
    assert abs(mean / (100 * US) - 1) < 4 * 0.1 / 2000**0.5
    assert len(set(alone)) > 1900


def test_scales_multiply_host_and_device_costs_apart() -> None:
    profile = DeviceProfile(
        name="t",
        status="exact",
        engine="e",
        costs={n: Cost(value=v, status="exact") for n, v in COSTS.items()},
    )
    m: Any = Machine(simpy.Environment(), CostBook(profile, Scales(host=2.0, device=3.0), RunKey(1, 0)))
    run(m, launch("a", "long"), record("e"), sync("e"))
    # call 4, latency 3 (a device constant), 300, wake 10
    assert m.free[0] == 307 * US
    assert m.now == 317 * US
