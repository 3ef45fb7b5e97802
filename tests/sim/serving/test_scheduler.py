"""Batch selection: prefill first, filters and merges together, the zombie, admission."""

from __future__ import annotations

from sim.randomness import RunKey
from sim.serving.request import Batch, Request
from sim.serving.scheduler import BatchScheduler
from sim.spec.acceptance import PerPositionAcceptance, RequestAcceptance

NEVER = PerPositionAcceptance([0.0] * 3, 3)


def request(index: int, output: int = 4, prompt: int = 10) -> Request:
    return Request(index, prompt, output, RequestAcceptance(NEVER, RunKey(1, 0), index))


def scheduler(rows: int = 4, min_free: int = 0, budget: int = 8192) -> BatchScheduler:
    return BatchScheduler(rows, min_free, budget, max_drafts=3)


def launch(s: BatchScheduler) -> Batch:
    batch = s.next_batch()
    assert batch is not None
    s.launch(batch)
    return batch


def test_a_prefill_has_priority_and_leaves_the_running_batch_alone() -> None:
    s = scheduler()
    s.submit(request(0))
    s.process(launch(s))
    s.process(launch(s))
    s.submit(request(1))
    second = launch(s)
    assert second.prefill
    assert [r.index for r in second.requests] == [1]
    s.process(second)
    joined = launch(s)
    assert joined.merged
    assert [r.index for r in joined.requests] == [0, 1]


def test_the_first_prefill_becomes_the_running_batch_and_direct_carry_stays_valid() -> None:
    s = scheduler()
    s.submit(request(0))
    launch(s)
    first = launch(s)
    assert not first.merged
    assert first.carry_valid


def test_a_merge_breaks_direct_carry_for_exactly_one_decode_even_across_a_prefill() -> None:
    s = scheduler()
    s.submit(request(0, output=50))
    launch(s)
    assert launch(s).carry_valid
    s.submit(request(1, output=50))
    launch(s)
    s.submit(request(2, output=50))
    assert launch(s).prefill  # 1 was merged by now, but no decode has run
    assert not launch(s).carry_valid
    assert launch(s).carry_valid


def test_a_finished_request_rides_along_once_more_and_yields_nothing() -> None:
    s = scheduler()
    for r in (request(0, output=2), request(1, output=9)):
        s.submit(r)
    pending = launch(s)  # prefill: token 1 of both
    batch = launch(s)
    s.process(pending)
    zombie = launch(s)
    delivered, finished = s.process(batch)  # token 2: request 0 is done, but already launched again
    assert [(r.index, n) for r, n in delivered] == [(0, 1), (1, 1)]
    assert [r.index for r in finished] == [0]
    filtered = launch(s)
    assert filtered.filtered
    assert not filtered.carry_valid
    assert [r.index for r in filtered.requests] == [1]
    delivered, finished = s.process(zombie)
    assert [r.index for r, _ in delivered] == [1]
    assert not finished


def test_a_row_is_free_as_soon_as_the_host_sees_the_finish_and_is_reused_last() -> None:
    s = scheduler(rows=3)
    s.submit(request(0, output=1))
    batch = launch(s)
    assert batch.requests[0].row == 0
    s.process(batch)
    assert s.pool.free == 3
    assert [s.pool.take() for _ in range(3)] == [1, 2, 0]


def test_a_prefill_waits_for_free_rows_while_something_runs_but_not_otherwise() -> None:
    s = scheduler(rows=4, min_free=3)
    s.submit(request(0, output=50))
    s.submit(request(1, output=50))
    assert launch(s).size == 2
    s.submit(request(2))
    assert not launch(s).prefill, "two rows are free, three are wanted"
    assert len(s.waiting) == 1


def test_a_prefill_takes_no_more_prompt_tokens_than_its_budget() -> None:
    s = scheduler(budget=25)
    for i in range(3):
        s.submit(request(i))
    assert launch(s).size == 2
    assert launch(s).size == 1


def test_a_prompt_longer_than_the_budget_runs_alone() -> None:
    s = scheduler(budget=5)
    s.submit(request(0, prompt=100))
    s.submit(request(1, prompt=100))
    assert launch(s).size == 1


def test_output_is_cut_at_the_requested_length() -> None:
    always = PerPositionAcceptance([1.0] * 3, 3)
    s = scheduler()
    r = Request(0, 10, 6, RequestAcceptance(always, RunKey(1, 0), 0))
    s.submit(r)
    assert s.process(launch(s))[0] == [(r, 1)]
    assert s.process(launch(s))[0] == [(r, 4)]
    assert s.process(launch(s))[0] == [(r, 1)]
    assert r.finished
    assert r.seen == 6
    assert s.idle
