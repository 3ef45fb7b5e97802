"""What a run leaves behind: the host's pace, which turns count, when a run is over."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scenes import engine, policies, workload

from gpu_validation.observe.host_state import LIMIT, HostState
from gpu_validation.observe.pace import REFERENCE, WINDOW, at_pace, near, reference_ns
from gpu_validation.observe.run_record import LEFT_OUT, Pass, RunRecord, record_of
from gpu_validation.observe.segments import WHOLE, SegmentLog
from gpu_validation.runtime.build import Built
from gpu_validation.runtime.host_work import Held, Holder, HostWork, pace_ns
from gpu_validation.runtime.server import RunOptions
from sim.capabilities import Barrier

torch.set_num_threads(1)


# -- the host's pace ----------------------------------------------------------------------------------------------


def test_a_hold_lasts_as_long_as_asked_and_says_how_fast_its_pieces_went() -> None:
    holder = Holder()
    for microseconds in (0, 50, 3000):
        began = time.perf_counter_ns()
        holder.hold(microseconds)
        took = time.perf_counter_ns() - began
        held = holder.taken()
        assert took >= microseconds * 1e3
        assert held.busy_ns <= took
        assert (held.pieces > 0) == (microseconds > 0)
    assert holder.taken() == (0, 0)  # nothing since


def test_no_piece_is_begun_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**9, 400))  # each look at the clock, and so each piece, takes 400 ns
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(ticks))
    holder = Holder()
    holder.hold(1.0)
    assert holder.taken() == Held(2, 800)


def test_a_pace_is_the_time_of_a_whole_walk_over_all_that_was_held() -> None:
    assert pace_ns(Held(10, 40_000), Held(30, 160_000)) == 100_000
    assert pace_ns() == pace_ns(Held(0, 0)) == 0


def test_a_turn_has_the_pace_of_its_holds_and_a_cycle_of_those_between_two_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paces = iter(range(1, 10_000))
    held: list[Held] = []

    def hold(holder: Holder, microseconds: float) -> None:
        held.append(Held(1, next(paces)))

    def taken(holder: Holder) -> Held:
        found = Held(len(held), sum(h.busy_ns for h in held))
        held.clear()
        return found

    monkeypatch.setattr(Holder, "hold", hold)
    monkeypatch.setattr(Holder, "taken", taken)
    server, log = engine("none").run(policies(), workload(1, requests=1), RunOptions(1))
    # Turn 0 launches the prefill and processes nothing: its only hold is the first. Turn 1 holds on receiving, on
    # entering the forward and on processing.
    assert server.held[:3] == [
        (Held(1, 1), Held(0, 0)),
        (Held(1, 2), Held(2, 3 + 4)),
        (Held(1, 5), Held(2, 6 + 7)),
    ]
    record = record_of(server, log, 1)
    for i, (a, b) in enumerate(pairwise(server.held[: len(record.passes)])):
        assert record.passes[i].pace_ns == pace_ns(*a)
        assert record.passes[i].cycle_pace_ns == pace_ns(a[1], b[0])


def test_costs_are_stated_at_the_pace_of_a_quiet_host() -> None:
    quiet, slow = list(range(90, 130)), [180] * 60
    assert reference_ns([*slow, *quiet, 0, 0]) == 90 + int(REFERENCE * 100)
    assert reference_ns([]) == reference_ns([0, 0]) == 0.0
    assert near([100, 124, 126, 76, 74], 100).tolist() == [True, True, False, True, False]
    assert WINDOW == 0.25
    assert near([0, 5], 0.0).all()  # without a pace every turn counts


def test_times_are_moved_along_the_line_their_groups_share() -> None:
    rng = np.random.default_rng(1)
    paces = [rng.uniform(90, 120, 400) for _ in range(3)]
    # Three starts that differ by what no pace explains, and a slope of 3 each.
    values = [1000 + 10 * i + 3 * (p - 100) + rng.normal(0, 1, 400) for i, p in enumerate(paces)]
    values[1][7] = np.nan
    moved = at_pace(values, paces, 100.0)
    assert [np.nanmean(v) for v in moved] == pytest.approx([1000, 1010, 1020], abs=0.3)
    assert np.isnan(moved[1][7])
    # Half of a start on a slow host, the other start on a fast one: the slope is not what lies between them.
    apart = at_pace(
        [np.array([5.0, 5.0]), np.array([9.0, 9.0])], [np.array([90, 91.0]), np.array([110, 111.0])], 90
    )
    assert [v.tolist() for v in apart] == [[5, 5], [9, 9]]
    assert at_pace([np.array([1.0, 2.0])], [np.array([3.0, 4.0])], 0.0)[0].tolist() == [1, 2]


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
    """A run of two requests whose turns take 10 µs, after one prefill; ``paces``: of the cycles."""
    rows = rows or [2] * len(paces)
    passes = [
        Pass(n, i == 0, 10.0 + i, 10_000 * i, {}, 0, pace)
        for i, (n, pace) in enumerate(zip(rows, paces, strict=True))
    ]
    return RunRecord(2, 10_000 * len(paces), 40, "", "", passes)


def test_the_first_turns_do_not_count() -> None:
    run = record([9] * 12)
    assert run.steady() == list(range(1 + LEFT_OUT, 12))
    assert len(run.cycles_ns()) == len(run.paces_ns()) == len(run.contexts()) == 12 - 2 - LEFT_OUT


def test_a_cycle_has_the_pace_from_its_launch_to_the_next() -> None:
    paces = [9] * 12
    paces[8] = 20
    assert record(paces).paces_ns() == [9, 9, 20, 9, 9]  # cycles 6→7, 7→8, 8→9, …


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
