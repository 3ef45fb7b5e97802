"""What a run leaves behind: the host's pace, which turns count, when a run is over."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from math import inf

import pytest
import torch
from scenes import engine, policies, workload

from gpu_validation.observe.host_state import LIMIT, HostState
from gpu_validation.observe.run_record import (
    BEST,
    LEFT_OUT,
    QUIET,
    Pass,
    RunRecord,
    quiet_limit_ns,
    record_of,
)
from gpu_validation.observe.segments import WHOLE, SegmentLog
from gpu_validation.runtime.build import Built
from gpu_validation.runtime.host_work import PACED_US, HostWork, hold
from gpu_validation.runtime.server import RunOptions
from sim.capabilities import Barrier

torch.set_num_threads(1)


# -- the host's pace ----------------------------------------------------------------------------------------------


def test_the_quiet_limit_is_a_fifth_above_the_best_tenth() -> None:
    paces = [*range(100, 200)]
    assert quiet_limit_ns(reversed(paces)) == QUIET * paces[int(BEST * len(paces))] == 1.2 * 110
    # One lucky turn does not decide, and slow ones move nothing.
    assert quiet_limit_ns([1, *paces[1:-1], 10**9]) == 1.2 * 110


def test_without_a_pace_every_turn_counts_as_quiet() -> None:
    assert quiet_limit_ns([]) == inf
    assert quiet_limit_ns([0] * 20) == 0  # nothing was held: each pace is 0, which is within 0


def test_a_hold_lasts_as_long_as_asked_and_paces_itself_meanwhile() -> None:
    for microseconds in (50, PACED_US, 3000):
        began = time.perf_counter_ns()
        pace = hold(microseconds)
        took = time.perf_counter_ns() - began
        assert took >= microseconds * 1e3
        assert (0 < pace <= took) if microseconds >= PACED_US else pace == 0
    assert hold(0) == 0


def test_the_pace_of_a_turn_is_that_of_its_slowest_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    paces = iter(range(1, 10_000))
    monkeypatch.setattr("gpu_validation.runtime.server.hold", lambda microseconds: next(paces))
    built = engine("none")
    server, log = built.run(policies(), workload(1, requests=1), RunOptions(1))
    # A turn holds on receiving, on entering a decode forward and on processing; the numbers only grow.
    record = record_of(server, log, 1)
    assert [p.pace_ns for p in record.passes] == server.paces[: len(record.passes)]
    assert server.paces == sorted(server.paces)
    # Turn 0 launches the prefill and processes nothing: its only hold is the first.
    assert server.paces[0] == 1
    # Turn 1: receive is 2, entering 3, processing 4.
    assert server.paces[1] == 4


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


def record(paces: list[int], rows: list[int] | None = None) -> RunRecord:
    """A run of two requests whose turns take 10 µs, after one prefill."""
    rows = rows or [2] * len(paces)
    passes = [
        Pass(n, i == 0, 10.0 + i, 10_000 * i, {}, pace)
        for i, (n, pace) in enumerate(zip(rows, paces, strict=True))
    ]
    return RunRecord(2, 10_000 * len(paces), 40, "", "", passes)


def test_the_first_turns_and_those_on_a_slow_host_do_not_count() -> None:
    run = record([9] * 12)
    assert run.steady() == list(range(1 + LEFT_OUT, 12))
    assert len(run.cycles_ns()) == len(run.paces_ns()) == len(run.contexts()) == 12 - 2 - LEFT_OUT
    paces = [9] * 12
    paces[8] = 20
    assert 8 in record(paces).steady()
    assert record(paces).steady(19) == [6, 7, 9, 10, 11]


def test_a_cycle_is_as_slow_as_the_slower_of_its_two_turns() -> None:
    paces = [9] * 12
    paces[8] = 20
    assert record(paces).paces_ns() == [9, 20, 20, 9, 9]  # cycles 6→7, 7→8, 8→9, …


def test_a_batch_that_is_not_full_ends_no_cycle() -> None:
    rows = [2] * 12
    rows[9] = 1
    assert record([0] * 12, rows).cycles_ns() == [10_000] * 3  # 6→7, 7→8, 10→11


def test_records_survive_their_json_form() -> None:
    run = record([9] * 12)
    assert RunRecord.from_json(run.to_json()) == run


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
