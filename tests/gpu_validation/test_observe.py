"""What a run leaves behind: the host's pace, which turns count, when a run is over."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from scenes import engine, policies, workload

from gpu_validation.calibrate.usual_speed import REFERENCE, WINDOW, near, reference_us
from gpu_validation.observe.host_speed import stated_us, witness, witnessed_us
from gpu_validation.observe.host_state import LIMIT, HostState
from gpu_validation.observe.run_record import LEFT_OUT, Pass, RunRecord, record_of
from gpu_validation.observe.segments import WHOLE, SegmentLog
from gpu_validation.runtime.build import Built
from gpu_validation.runtime.host_work import Holder, HostWork
from gpu_validation.runtime.server import RunOptions
from gpu_validation.spec.declared import declared
from sim.capabilities import Barrier, Relay
from sim.config.profile import Cost, DeviceProfile

torch.set_num_threads(1)


# -- the host's speed ----------------------------------------------------------------------------------------------


def test_a_hold_lasts_as_long_as_asked() -> None:
    holder = Holder()
    for microseconds in (0, 50, 3000):
        began = time.perf_counter_ns()
        holder.hold(microseconds)
        assert time.perf_counter_ns() - began >= microseconds * 1e3


def test_no_piece_is_begun_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**9, 400))  # each look at the clock, and so each piece, takes 400 ns
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(ticks))
    holder = Holder()
    holder.hold(1.0)
    # Two pieces end at 400 and 800 ns, a third would end at 1200; then the clock is looked at until 1000 is over.
    assert next(ticks) == 1600


def test_held_work_knows_its_sections() -> None:
    work = HostWork(receive_us=3, enter_us=5, process_us=7, per_row_us=2)
    held = {name: work.held_us(name, 4) for name in ("receive", "enter.isolate", "process", "verify")}
    assert held == {"receive": 3, "enter.isolate": 5, "process": 15, "verify": 0}


PROGRAM = declared("dflash", 3, "suite")


def test_the_witness_is_what_every_policy_launches_behind_the_first_graph() -> None:
    names = witness(PROGRAM)
    assert names == ("verify.metadata", "publish", "stash.token", "result.copy")
    built = engine("dflash")
    synchronous = replace(policies(barrier=Barrier.UNGUARDED), overlap=False)
    for chosen in (policies(), policies(relay=Relay.DIRECT_CARRY), synchronous):
        server, log = built.run(chosen, workload(5, requests=3), RunOptions(3))
        passes = [p for p in record_of(server, log, 3).passes if not p.prefill]
        for p in passes:
            assert witnessed_us(p.sections, names) == sum(p.sections[n] for n in names) / 1e3 > 0
    assert np.isnan(witnessed_us({"verify": 5}, names))
    assert witness(declared("none", 1, "suite"))[0] != "decode"


def test_the_stated_witness_is_the_sum_of_its_costs() -> None:
    hosts = {op.host for op in PROGRAM.operations if op.name in witness(PROGRAM)}
    costs = {str(name): Cost(value=(10.0, 40.0), batch=(1, 4)) for name in hosts}
    profile = DeviceProfile(name="x", status="exact", engine="suite", costs=costs)
    assert stated_us(profile, PROGRAM, 2) == pytest.approx(20.0 * len(witness(PROGRAM)))


def test_costs_are_stated_at_the_speed_of_a_usual_turn() -> None:
    quiet, slow = [float(us) for us in range(100, 200)], [400.0] * 60
    assert reference_us([*slow, *quiet, 0.0, float("nan")]) == 100 + int(REFERENCE * 160)
    assert reference_us([]) == reference_us([0.0, 0.0]) == 0.0
    assert near([100, 124, 126, 76, 74, np.nan], 100).tolist() == [True, True, False, True, False, False]
    assert WINDOW == 0.25
    assert near([0, 5], 0.0).all()  # without a witness every turn counts


class Cores:
    """Two cores; on each the piece of work takes as long as ``us`` says."""

    def __init__(self) -> None:
        self.us = {0: 100.0, 1: 100.0}
        self.on = 0
        self.host = HostState()

    def now_us(self, host: HostState) -> float:
        host.best_us = min(host.best_us, self.us[self.on])
        return self.us[self.on]


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Cores:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    found = Cores()
    monkeypatch.setattr(HostState, "now_us", lambda host: found.now_us(host))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, on: setattr(found, "on", *on), raising=False)
    return found


def test_the_host_moves_to_the_quieter_core_and_stays_while_it_is_quiet(cores: Cores) -> None:
    cores.us[0] = 100.0 * LIMIT * 1.5
    assert cores.host.settle() == 100.0
    assert cores.on == 1
    cores.us[1] = 100.0 * LIMIT
    assert cores.host.settle() == 100.0 * LIMIT  # within the limit: no search
    assert cores.on == 1
    cores.us = {0: 100.0, 1: 200.0}
    cores.host.settle()
    assert cores.on == 0


def test_a_run_on_a_host_that_turned_slow_is_repeated_once(cores: Cores) -> None:
    runs: list[int] = []

    def slowing() -> int:
        runs.append(len(runs))
        cores.us = {0: 300.0, 1: 300.0}
        return len(runs)

    result, states, repeated = cores.host.steadily(slowing)
    assert (result, repeated) == (2, 1)
    assert states == [300.0, 300.0]


# -- turns that count ---------------------------------------------------------------------------------------------


def record(rows: list[int]) -> RunRecord:
    """A run of two requests whose turns take 10 µs, after one prefill; turn i has 2 × i µs of witness."""
    passes = [
        Pass(n, i == 0, 10.0 + i, 10_000 * i, {"a": 1000 * i, "b": 1000 * i, "c": 7})
        for i, n in enumerate(rows)
    ]
    return RunRecord(2, 10_000 * len(rows), 40, "", "", passes)


def test_the_first_turns_do_not_count() -> None:
    run = record([2] * 12)
    assert run.steady() == list(range(1 + LEFT_OUT, 12))
    assert len(run.cycles_ns()) == len(run.contexts()) == 12 - 2 - LEFT_OUT


def test_a_cycle_has_the_witness_of_the_turn_it_begins_in() -> None:
    assert record([2] * 12).witness_us(("a", "b")) == [12.0, 14.0, 16.0, 18.0, 20.0]  # cycles 6→7, 7→8, …


def test_a_batch_that_is_not_full_ends_no_cycle() -> None:
    rows = [2] * 12
    rows[9] = 1
    assert record(rows).cycles_ns() == [10_000] * 3  # 6→7, 7→8, 10→11


def test_records_survive_their_json_form() -> None:
    run = record([2] * 12)
    assert RunRecord.from_json(run.to_json()) == run
    older = run.to_json()
    older["passes"] = [{**p, "pace_ns": 5} for p in older["passes"]]
    assert RunRecord.from_json(older) == run


@pytest.fixture(scope="module")
def built() -> Built:
    return engine("dflash")


@pytest.mark.parametrize("overlap", [True, False])
def test_a_run_is_over_with_its_last_request_and_without_the_zombie(built: Built, overlap: bool) -> None:
    """The overlapped loop launches and processes one more forward, which no client waits for."""
    chosen = policies() if overlap else replace(policies(barrier=Barrier.UNGUARDED), overlap=False)
    work = HostWork(process_us=3000)
    server, log = built.run(chosen, workload(5, requests=3), RunOptions(3, work=work))
    found = record_of(server, log, 3)
    processed = [end - log.laps[0][1] for name, end in log.laps if name == "process"]
    assert found.duration_ns == processed[-2 if overlap else -1]
    assert found.output_tokens == 14 + 7 + 18
    assert found.throughput_tok_s == pytest.approx(39 / found.duration_ns * 1e9)
    if overlap:
        assert processed[-1] - found.duration_ns >= 3000 * 1000


def test_both_loops_agree_on_the_tokens_until_the_first_finish(built: Built) -> None:
    load = workload(5, requests=3)
    records = []
    for chosen in (policies(), replace(policies(barrier=Barrier.UNGUARDED), overlap=False)):
        server, log = built.run(chosen, load, RunOptions(3))
        records.append(record_of(server, log, 3))
    assert records[0].full_sha256 == records[1].full_sha256
    assert len(records[0].full_sha256) == 64


# -- device segments ----------------------------------------------------------------------------------------------


def test_every_other_forward_is_timed_as_a_whole(built: Built) -> None:
    held: list[float] = []
    built.backend.occupy = held.append  # type: ignore[method-assign, assignment]
    try:
        stream = built.streams.forward
        log = SegmentLog(built.backend, stream, lambda name: None, ["draft", "verify"], "enter.wait", 7.0)
        for _ in range(4):
            for name in ("receive", "enter.wait", "draft", "prepare.rows", "verify"):
                log.lap(name)
        found = log.durations_us()
    finally:
        del built.backend.occupy
    assert held == [7.0] * 4
    assert [list(step) for step in found] == [["draft", "verify"], [WHOLE], ["draft", "verify"], [WHOLE]]
    assert all(us >= 0 for step in found for us in step.values())
