"""The implementation is correct before it is fast: tokens do not depend on policies, order or padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import ALGORITHMS, combinations, engine, policies, safe, tokens, workload

from gpu_validation.device.stand_in import prefer, random_order
from gpu_validation.loops import run
from gpu_validation.observe.sections import SectionLog
from gpu_validation.runtime.build import tokens_of
from gpu_validation.runtime.future_map import POISON
from gpu_validation.runtime.server import RunOptions, Server
from gpu_validation.runtime.step import Step
from sim.capabilities import Barrier, HostLengths, LengthSource, PrepStream, Relay
from sim.errors import InputError
from sim.serving.request import Batch

torch.set_num_threads(1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_safe_combinations_produce_the_same_tokens(algorithm: str) -> None:
    built = engine(algorithm)
    expected = tokens(built, policies())
    chosen = [c for c in combinations(built.worker.capabilities.length_source) if safe(c)]
    assert len(chosen) >= 9
    for combination in chosen:
        assert tokens(built, combination) == expected, combination
    for unpinned in SAFE:
        if built.worker.capabilities.length_source is LengthSource.PUBLISHED:
            assert tokens(built, replace(unpinned, pinned=False)) == expected, unpinned


#: one of each policy value, each with a barrier that covers recycled rows
SAFE = [
    policies(),
    policies(barrier=Barrier.COARSE),
    policies(prep_stream=PrepStream.PLAN),
    policies(relay=Relay.DIRECT_CARRY, host_lengths=HostLengths.BOUND),
    policies(host_lengths=HostLengths.EXACT),
    policies(host_lengths=HostLengths.EXACT_DEFERRED, prep_stream=PrepStream.PLAN),
    policies(relay=Relay.DIRECT_CARRY, host_lengths=HostLengths.EXACT, barrier=Barrier.COARSE),
    policies(platform="hip", host_lengths=HostLengths.EXACT),
    policies(platform="hip", relay=Relay.DIRECT_CARRY, host_lengths=HostLengths.EXACT),
]
#: streams run ahead or stay behind as far as the events let them
ORDERS = {
    "at random": random_order(3),
    "schedule ahead": prefer("schedule", "plan", "d2h", "copy", "forward"),
    "forward ahead": prefer("forward", "copy", "d2h", "plan", "schedule"),
    "copies ahead": prefer("copy", "d2h", "plan", "forward", "schedule"),
}


@pytest.mark.parametrize("algorithm", ["eagle", "dflash"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_events_suffice_in_whatever_order_the_streams_run(algorithm: str, order: str) -> None:
    expected = tokens(engine(algorithm), policies())
    built = engine(algorithm, ORDERS[order])
    for chosen in SAFE:
        # Poisoned slots would turn a read before its publish, or a second read, into a wrong token.
        assert tokens(built, chosen, debug=True) == expected, chosen


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_speculation_changes_no_token_of_greedy_decoding(algorithm: str) -> None:
    """Vocabulary 61 and untrained drafters: a draft agrees by chance about once in sixty, so some are accepted."""
    expected = tokens(engine("none"), policies(), forced=False)
    assert tokens(engine(algorithm), policies(), forced=False) == expected


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_speculation_changes_no_token_of_keyed_sampling(algorithm: str) -> None:
    expected = tokens(engine("none", temperature=1.5), policies(), forced=False)
    assert tokens(engine(algorithm, temperature=1.5), policies(), forced=False) == expected
    assert expected != tokens(engine("none"), policies(), forced=False)


def test_right_drafts_are_accepted_and_still_change_no_token() -> None:
    """Half of the drafts are replaced by what greedy decoding will say."""
    expected = tokens(engine("none"), policies(), forced=False)
    built = engine("dflash")
    worker = built.worker
    drafted = worker._draft_body  # type: ignore[attr-defined]

    def oracle(batch: int) -> None:
        drafted(batch)
        rows, lengths = worker.draft.rows[:batch], worker.draft.lengths[:batch]  # type: ignore[attr-defined]
        block = worker.block_ids[: batch * worker.block].view(batch, worker.block)
        owners = {r.row: r for r in server.scheduler.running}
        for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            if row in owners:
                request = owners[row]
                done = length - request.prompt_tokens + 1
                right = expected[request.index][done : done + worker.block - 1]
                keep = min(len(right), len(right) // 2 + length % 2)
                block[i, 1 : 1 + keep] = torch.tensor(right[:keep], dtype=torch.int64)

    worker._draft = worker.graphs(built.streams.forward, oracle)  # type: ignore[attr-defined]
    log = SectionLog()
    server = built.server(policies(), workload(5), RunOptions(3, forced=False), log.lap())
    run(server)
    assert list(tokens_of(server)) == expected
    steps = sum(not launched.prefill for launched in server.launches)
    assert steps < sum(map(len, expected)) / 3  # without accepted drafts: one token a row and step


def test_the_forced_table_decides_how_many_tokens_a_step_commits() -> None:
    """With p = 1 every step commits the whole block, with p = 0 one token."""
    built = engine("dflash")
    for p, per_step in ((1.0, 5), (0.0, 1)):
        load = workload(5, requests=1, p=p)
        server, _ = built.run(policies(), load, RunOptions(1))
        steps = sum(not launched.prefill for launched in server.launches)
        # 14 tokens, one of them from the prefill; one more step runs before the host knows the request is over.
        assert steps == -(-13 // per_step) + 1


def test_padded_rows_are_harmless() -> None:
    expected = tokens(engine("dflash", graph_batches=(4,)), policies())
    assert tokens(engine("dflash", graph_batches=(1, 2, 3, 4)), policies()) == expected
    assert tokens(engine("dflash", graph_batches=(8,)), policies()) == expected


def test_requests_join_and_leave_one_by_one() -> None:
    built = engine("dflash")
    expected = {c: tokens(built, policies(), concurrency=c) for c in (1, 2, 3, 4)}
    assert all(t == expected[1] for t in expected.values())
    assert [len(t) for t in expected[1]] == [14, 7, 18, 10, 14]


def test_a_read_of_a_poisoned_slot_shows() -> None:
    built = engine("dflash")
    log = SectionLog()
    server = built.server(policies(), workload(5), RunOptions(3, debug=True), log.lap())
    run(server)
    # Rows that nobody published again after the last read are poisoned.
    assert (server.future.lengths_by_row == POISON).any()


def test_without_a_barrier_a_recycled_row_is_rewritten_under_a_running_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the barrier is for: the schedule stream runs ahead and a finished request's row changes hands."""
    built = engine("dflash", prefer("schedule", "plan", "d2h", "copy", "forward"))
    plain = built.setting.kernels.block_metadata
    #: slots of each row when the step was launched, in launch order; a step reads them twice
    launched: list[dict[int, list[int]]] = []
    intact: list[bool] = []

    def watched(pool_rows: torch.Tensor, lengths: torch.Tensor, table: torch.Tensor, *rest: object) -> None:
        for row, slots in launched[len(intact) // 2].items():
            intact_row = table[row, : len(slots)].tolist() == slots
            if not intact_row:
                break
        else:
            intact_row = True
        intact.append(intact_row)
        plain(pool_rows, lengths, table, *rest)

    monkeypatch.setattr(built.setting.kernels, "block_metadata", watched)
    torn = {}
    for barrier in (Barrier.READ_DONE, Barrier.COARSE, Barrier.UNGUARDED):
        launched.clear()
        intact.clear()
        server = built.server(policies(barrier=barrier), workload(5), RunOptions(4), SectionLog().lap())
        decode = server._decode

        def remember(batch: Batch, server: Server = server, decode: object = decode) -> Step:
            held = server.allocator._held
            step: Step = decode(batch)  # type: ignore[operator]
            launched.append({r.row: list(held[r.row]) for r in batch.requests})
            return step

        monkeypatch.setattr(server, "_decode", remember)
        run(server)
        torn[barrier] = not all(intact)
    assert torn == {Barrier.READ_DONE: False, Barrier.COARSE: False, Barrier.UNGUARDED: True}


def test_scratch_buffers_grow_together_when_the_batch_outgrows_them() -> None:
    built = engine("dflash")
    log = SectionLog()
    server = built.server(policies(), workload(5), RunOptions(4), log.lap())
    group = server.prompt_scratch.group(0, 1)
    before = [g.host.numel() for g in server.prompt_scratch._groups]
    grown = server.prompt_scratch.group(0, 3, slots=200)
    after = [g.host.numel() for g in server.prompt_scratch._groups]
    assert grown is not group
    assert before[0] == before[1] < after[0] == after[1]


def test_graph_batches_below_the_number_of_requests_are_refused() -> None:
    with pytest.raises(InputError, match="largest graph batch"):
        engine("none", graph_batches=(1, 2))


def test_the_synchronous_loop_runs_no_zombie_forward() -> None:
    built = engine("dflash")
    load = workload(5, requests=1, p=1.0)
    server, _ = built.run(replace(policies(barrier=Barrier.UNGUARDED), overlap=False), load, RunOptions(1))
    assert sum(not launched.prefill for launched in server.launches) == 3
