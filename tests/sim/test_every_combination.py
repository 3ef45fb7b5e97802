"""Contracts that every algorithm, relay, host-length policy, barrier and stream choice must keep."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from sim.config.loader import load_resolved
from sim.config.resolve import Resolved
from sim.errors import InputError
from sim.replication import Replication
from sim.run import simulate
from sim.trace.record import HOST_LANE, Record
from sim.trace.recorder import Recorder

PROGRAMS = [
    ("none", "toy-0.5.15"),
    ("standalone", "toy-0.5.15"),
    ("eagle", "toy-0.5.15"),
    ("eagle3", "toy-0.5.15"),
    ("ngram", "toy-0.5.15"),
    ("dflash", "toy-0.5.14"),
    ("dflash", "toy-0.5.15"),
]
RELAYS = ("direct_carry", "unified")
LENGTHS = ("none", "bound", "exact", "exact_deferred")
BARRIERS = ("unguarded", "coarse", "read_done", "self_fence")
PLACEMENTS = ("loop_top", "after_launch")
PREPS = ("schedule", "plan")
PLATFORMS = ("cuda", "hip")

BASE = {
    "workload.concurrency": "3",
    "workload.requests": "8",
    "workload.output_tokens": "{ values = [9, 17, 13, 30] }",
    "serving.max_running_requests": "6",
}


def resolved(overrides: dict[str, str]) -> Resolved:
    return load_resolved("toy_dF", {**BASE, **overrides})


def legal() -> list[dict[str, str]]:
    """Every combination the loader accepts, and the synchronous loop of every program."""
    out = []
    for (algorithm, engine), relay, lengths, barrier, placement, prep, platform in itertools.product(
        PROGRAMS, RELAYS, LENGTHS, BARRIERS, PLACEMENTS, PREPS, PLATFORMS
    ):
        combination = {
            "algorithm": algorithm,
            "engine": engine,
            "relay": relay,
            "host_lengths": lengths,
            "barrier": barrier,
            "barrier_placement": placement,
            "prep_stream": prep,
            "platform": platform,
        }
        try:
            resolved(combination)
        except InputError:
            continue
        out.append(combination)
    out += [{"algorithm": a, "engine": e, "overlap": "false"} for a, e in PROGRAMS]
    return out


LEGAL = legal()


def run(combination: dict[str, str]) -> tuple[Replication, list[Record]]:
    recorder = Recorder()
    return Replication(resolved(combination), 0, recorder=recorder).run(), recorder.records


def test_the_refusals_leave_most_combinations_and_refuse_some() -> None:
    everything = len(PROGRAMS) * len(RELAYS) * len(LENGTHS) * len(BARRIERS) * 2 * 2 * 2
    assert 0.3 * everything < len(LEGAL) < everything


@pytest.fixture(scope="module")
def runs() -> list[tuple[dict[str, str], Replication, list[Record]]]:
    return [(c, *run(c)) for c in LEGAL]


def test_tokens_are_conserved(runs: Any) -> None:
    wanted = 9 + 17 + 13 + 30
    for combination, replication, _ in runs:
        assert replication.books.output_tokens == 2 * wanted, combination
        assert not replication.scheduler.waiting
        assert replication.scheduler.pool.free == 6, combination


def test_idle_causes_add_up_to_the_idle_time(runs: Any) -> None:
    for combination, replication, _ in runs:
        machine = replication.machine
        elapsed = machine.free[0] - machine.forward_started
        assert sum(machine.idle) + machine.busy == elapsed, combination


def test_no_stream_runs_two_operations_at_once_and_nothing_starts_before_its_launch(runs: Any) -> None:
    for combination, _, records in runs:
        end: dict[str, int] = {}
        for r in records:
            if r.lane == HOST_LANE or r.act == "event":
                continue
            assert r.start >= end.get(r.lane, 0), (combination, r)
            assert r.start > r.issued - 1, (combination, r)
            end[r.lane] = r.end


def test_nothing_is_read_before_it_is_published(runs: Any) -> None:
    """A read of a relayed field starts after the last write of it that was enqueued before the read."""
    for combination, _, records in runs:
        written: dict[str, int] = {}
        for r in records:
            if r.lane == HOST_LANE:
                continue
            for buffer in r.reads:
                if buffer.startswith("future_map"):
                    assert r.start >= written.get(buffer, 0), (combination, r)
            for buffer in r.writes:
                if buffer.startswith("future_map"):
                    written[buffer] = r.end


def test_a_result_is_processed_only_after_its_copy(runs: Any) -> None:
    for combination, _, records in runs:
        copied = {}
        for r in records:
            if r.name in ("copy.result",):
                copied[r.iteration] = r.end
            if r.name == "process":
                assert r.start >= copied[r.iteration], (combination, r)


def test_equal_seed_gives_equal_bytes() -> None:
    for combination in LEGAL[:: max(1, len(LEGAL) // 12)]:
        first, second = (simulate(resolved(combination)).to_json() for _ in range(2))
        for result in (first, second):
            del result["wall_s"]
        assert json.dumps(first) == json.dumps(second)


def test_tracing_leaves_the_result_unchanged(tmp_path: Any) -> None:
    for combination in LEGAL[:: max(1, len(LEGAL) // 7)]:
        plain = simulate(resolved(combination)).to_json()
        traced = simulate(resolved(combination), trace=tmp_path / "t.json").to_json()
        del plain["wall_s"], traced["wall_s"]
        assert plain == traced


def answer(overrides: dict[str, str]) -> dict[str, Any]:
    """What a run measured, without the scenario that is echoed in it."""
    result = simulate(resolved(overrides)).to_json()
    for echoed in ("scenario", "wall_s", "notes", "seed", "device"):
        del result[echoed]
    return result


EVERY_OPTION = [
    ({}, {"relay": "direct_carry"}),
    ({}, {"host_lengths": "exact"}),
    ({"host_lengths": "exact"}, {"host_lengths": "exact_deferred"}),
    ({"algorithm": "eagle", "host_lengths": "none"}, {"host_lengths": "bound"}),
    ({}, {"barrier": "unguarded"}),
    ({}, {"barrier": "coarse"}),
    ({}, {"barrier": "self_fence"}),
    ({}, {"barrier_placement": "after_launch"}),
    ({}, {"prep_stream": "plan"}),
    ({}, {"overlap": "false"}),
    ({}, {"platform": "hip"}),
    ({"host_lengths": "exact"}, {"d2h_stream": "schedule"}),
    ({}, {"pinned": "false"}),
    ({}, {"engine": "toy-0.5.14"}),
    ({}, {"algorithm": "eagle"}),
    ({}, {"host_scale": "1.5"}),
    ({}, {"device_scale": "1.5"}),
    ({}, {"block_size": "3"}),
    ({"algorithm": "eagle"}, {"draft_steps": "2"}),
    ({}, {"serving.max_running_requests": "2"}),
    ({}, {"serving.min_free_slots": "5"}),
    ({}, {"workload.concurrency": "2"}),
    ({}, {"workload.requests": "9"}),
    ({}, {"workload.prompt_tokens": "4000"}),
    ({}, {"workload.output_tokens": "20"}),
    ({}, {"workload.output_tokens": '{ distribution = "lognormal", mean = 20, cv = 0.5 }'}),
    ({}, {"workload.client_delay_us": "5000"}),
    ({}, {"acceptance.mean_accepted_drafts": "1.5"}),
    ({}, {"acceptance": '{ model = "per_position", probabilities = [0.9, 0.5] }'}),
    ({}, {"acceptance": '{ model = "recorded", values = [[1, 2], [0]] }'}),
    ({}, {"run.replications": "2"}),
]


@pytest.mark.parametrize(
    ("base", "change"), EVERY_OPTION, ids=lambda d: ",".join(f"{k}={v}" for k, v in d.items())
)
def test_every_accepted_option_changes_some_result(base: dict[str, str], change: dict[str, str]) -> None:
    assert answer(base) != answer({**base, **change})


def test_the_seed_changes_the_luck_of_a_random_model() -> None:
    random = {"acceptance": '{ model = "truncated_geometric", mean_accepted_drafts = 3.0 }'}
    assert answer(random) != answer({**random, "run.seed": "2"})


def test_padding_to_a_captured_batch_changes_graph_costs() -> None:
    per_row = {"workload.concurrency": "3", "device": "toy"}
    assert answer(per_row) == answer({**per_row, "serving.graph_batches": "[3, 8]"}), (
        "toy graphs cost the same"
    )


def test_none_and_bound_are_one_point_where_no_lengths_are_consumed() -> None:
    assert answer({"host_lengths": "none"}) == answer({"host_lengths": "bound"})


def test_an_open_loop_answers_and_depends_on_its_rate() -> None:
    open_loop = {
        "workload": "{ arrival_rate_per_s = 1000.0, requests = 8, prompt_tokens = 16, output_tokens = 12 }"
    }
    scenario = {k: v for k, v in BASE.items() if not k.startswith("workload")}
    slow = simulate(load_resolved("toy_dF", {**scenario, **open_loop})).to_json()
    open_loop["workload"] = open_loop["workload"].replace("1000.0", "4000.0")
    fast = simulate(load_resolved("toy_dF", {**scenario, **open_loop})).to_json()
    assert slow["throughput_tok_s"]["mean"] < fast["throughput_tok_s"]["mean"]
