"""Each kind of hazard: a program that provokes it, and the fence that removes it."""

from __future__ import annotations

import pytest
from hazard_lab import edited, findings, harmful, program, short

from sim.program.step_program import Kind, Operation, Phase, StepProgram, StreamName

RECYCLED = ("req_to_token", "write_after_read", "recycled_row")
REWRITE = ("req_to_token", "write_after_read", "benign", "same_content")


def op(phase: str, name: str, kind: str, **more: object) -> Operation:
    return Operation(phase=Phase(phase), name=name, kind=Kind(kind), **more)  # type: ignore[arg-type]


# -- a recycled row ------------------------------------------------------------------------------------------


def test_unguarded_recycles_a_row_under_the_forward_of_a_finished_request() -> None:
    found = findings(overrides={"barrier": "unguarded"})
    assert RECYCLED in harmful(found)
    worst = next(f for f in found if f["reason"] == "recycled_row" and f["margin_us"] < 0)
    assert worst["second"]["operation"] == "prepare.assign"
    assert worst["first"]["request"] != worst["second"]["request"]
    assert worst["first"]["iteration"] < worst["second"]["iteration"]
    assert worst["realised"] > 0


@pytest.mark.parametrize("barrier", ["coarse", "read_done"])
@pytest.mark.parametrize("placement", ["loop_top", "after_launch"])
def test_a_scheduler_barrier_removes_it(barrier: str, placement: str) -> None:
    assert not harmful(findings(overrides={"barrier": barrier, "barrier_placement": placement}))


@pytest.mark.parametrize("prep", ["schedule", "plan"])
def test_the_workers_own_fence_does_not_because_prefill_is_not_behind_it(prep: str) -> None:
    found = findings(overrides={"engine": "toy-0.5.14", "barrier": "self_fence", "prep_stream": prep})
    assert RECYCLED in harmful(found)


def test_a_pool_larger_than_the_concurrency_removes_it_too() -> None:
    assert not harmful(findings(overrides={"barrier": "unguarded", "serving.max_running_requests": "8"}))


def test_a_new_prompt_that_ends_before_the_old_reads_begin_does_no_harm_to_block_gathers() -> None:
    found = findings(overrides={"barrier": "unguarded", "workload.prompt_tokens": "16"})
    assert "block" not in {f["first"]["operation"] for f in found if f["severity"] == "harmful"}


# -- live rows ------------------------------------------------------------------------------------------------


def test_result_processing_rewrites_live_rows_even_behind_a_barrier_at_the_loop_top() -> None:
    for barrier in ("coarse", "read_done"):
        assert short(findings(overrides={"barrier": barrier})) == {REWRITE}


def test_a_barrier_after_the_launch_removes_that_as_well() -> None:
    for barrier in ("coarse", "read_done"):
        after = {"barrier": barrier, "barrier_placement": "after_launch"}
        assert short(findings(overrides=after)) == set()


def test_decode_preparation_writes_beyond_what_a_live_row_reads() -> None:
    """Semantics 4.3: without any fence a stable batch has no conflict at all."""
    one_each = {"barrier": "unguarded", "workload.requests": "2", "workload.output_tokens": "90"}
    live = [f for f in findings(overrides=one_each) if f["reason"] != "same_content"]
    assert live == []


def test_a_table_build_that_sweeps_further_than_it_uses_is_benign() -> None:
    wide = edited(program(), change={"verify.meta": {"reads": ("req_to_token[0:seq+3B]",)}}, prefill=False)
    found = short(findings(wide, {"barrier": "unguarded", "serving.max_running_requests": "8"}))
    assert ("req_to_token", "write_after_read", "benign", "masked_columns") in found


# -- an event that comes too early --------------------------------------------------------------------------


def reads_inside_the_graph() -> StepProgram:
    """The page table is built inside the captured graph while read_done is recorded before its replay."""
    return edited(program(), change={"verify": {"reads": ("req_to_token[0:seq+B]",)}}, prefill=False)


def test_read_done_recorded_before_a_read_inside_the_graph_is_caught() -> None:
    found = harmful(findings(reads_inside_the_graph(), {"barrier": "read_done"}))
    assert found == {("req_to_token", "write_after_read", "too_early_event")}


def test_the_coarse_barrier_covers_reads_inside_the_graph() -> None:
    assert not harmful(findings(reads_inside_the_graph(), {"barrier": "coarse"}))


def test_an_event_recorded_after_the_last_shared_read_removes_it() -> None:
    record = next(op for op in program().operations if op.name == "read_done")
    late = edited(reads_inside_the_graph(), drop=["read_done"], before={"publish": [record]}, prefill=False)
    assert not harmful(findings(late, {"barrier": "read_done"}))


# -- reads before what they need is written -------------------------------------------------------------------


def gathers_lengths(wait: bool, join: bool = False) -> StepProgram:
    """A second gather of the relayed lengths, on a stream of its own, with or without waiting for publish; ``join``:
    the forward waits for it."""
    gather = op(
        "resolve",
        "early.gather",
        "kernel",
        stream=StreamName.AUX,
        cost="kernel.small",
        reads=("future_map.new_seq_lens[rows]",),
    )
    waits = [op("resolve", "early.wait", "wait", stream=StreamName.AUX, event="publish_ready")]
    joins = [op("enter", "early.join", "wait", stream=StreamName.FORWARD, on=StreamName.AUX)]
    before = {"enter": [*(waits if wait else []), gather], "enter.join": joins if join else []}
    return edited(program(), before=before, prefill=False)


def test_lengths_gathered_without_waiting_for_publish_are_caught() -> None:
    found = findings(gathers_lengths(wait=False))
    assert ("future_map.new_seq_lens", "read_before_publish", "unpublished") in harmful(found)


def test_waiting_for_publish_orders_the_gather() -> None:
    found = findings(gathers_lengths(wait=True))
    assert not any(f["kind"] == "read_before_publish" for f in found)


def test_the_next_publish_overtakes_a_gather_that_no_forward_waits_for() -> None:
    overtaken = {("future_map.new_seq_lens", "write_after_read", "overwritten")}
    assert harmful(findings(gathers_lengths(wait=True))) == overtaken
    assert not harmful(findings(gathers_lengths(wait=True, join=True)))


def plan_window() -> StepProgram:
    """Decode preparation on the plan stream with neither join: nothing orders it against anything."""
    on_plan = {"stream": StreamName.PLAN}
    return edited(program(), change={"prepare.h2d": on_plan, "prepare.assign": on_plan}, prefill=False)


def test_the_plan_stream_without_its_joins_is_caught() -> None:
    found = harmful(findings(plan_window(), {"acceptance.mean_accepted_drafts": "15"}))
    assert ("req_to_token", "read_before_publish", "unpublished") in found, "new columns, read before written"
    assert ("allocator", "write_after_write", "overwritten") in found, "two streams change the free list"


def test_the_joins_of_the_plan_stream_order_it() -> None:
    joined = {"prep_stream": "plan", "acceptance.mean_accepted_drafts": "15"}
    assert not harmful(findings(overrides=joined))


def verify_prepared_on_plan(join: bool) -> StepProgram:
    """EAGLE's plan stream (semantics 1.6): reads lengths made on the schedule stream, fills the graph's inputs."""
    waits = op("forward", "verify.plan_in", "wait", stream=StreamName.PLAN, on=StreamName.FORWARD)
    fill = op(
        "forward",
        "verify.plan",
        "kernel",
        stream=StreamName.PLAN,
        cost="kernel.small",
        reads=("batch.seq_lens",),
        writes=("graph_inputs",),
    )
    back = op("forward", "verify.plan_out", "wait", stream=StreamName.FORWARD, on=StreamName.PLAN)
    return edited(
        program("eagle"),
        change={"verify": {"reads": ("graph_inputs",)}},
        before={"verify": [*([waits] if join else []), fill, back]},
        prefill=False,
    )


CHAIN = {"algorithm": "eagle", "block_size": "4"}


def test_the_window_of_a_verify_prepared_on_the_plan_stream_is_caught() -> None:
    found = harmful(findings(verify_prepared_on_plan(join=False), {**CHAIN, "host_lengths": "none"}))
    assert ("batch.seq_lens", "read_before_publish", "unpublished") in found
    assert ("graph_inputs", "write_after_read", "overwritten") in found


def test_joining_the_plan_stream_in_closes_it() -> None:
    assert not harmful(findings(verify_prepared_on_plan(join=True), {**CHAIN, "host_lengths": "none"}))


def test_a_host_that_waits_for_publish_hides_most_of_the_window() -> None:
    """Why it went unseen: with exact lengths the host had waited until the previous verify was over."""
    found = harmful(findings(verify_prepared_on_plan(join=False), {**CHAIN, "host_lengths": "exact"}))
    assert found == {("batch.seq_lens", "read_before_publish", "unpublished")}, (
        "the gather alone is not waited for"
    )


def test_lengths_read_on_the_host_without_waiting_for_their_copy_are_caught() -> None:
    peek = op("forward", "peek", "host", cost="host.enter", reads=("pinned_mirror",))
    peeking = edited(program(), before={"block": [peek]}, prefill=False)
    deferred = {"host_lengths": "exact_deferred"}
    assert ("pinned_mirror", "read_before_publish", "unpublished") in harmful(findings(peeking, deferred))
    assert not harmful(findings(peeking, {"host_lengths": "exact"}))


# -- staging memory filled again before its copy ----------------------------------------------------------------


def staged(buffer: str, wait: bool = False) -> StepProgram:
    """The host fills pinned memory and queues a copy from it, behind whatever the schedule stream waits for."""
    waits = [op("prepare", "staging.wait", "synchronize", event="staged")] if wait else []
    recorded = op("prepare", "staging.record", "record", stream=StreamName.SCHEDULE, event="staged")
    return edited(
        program(),
        change={"prepare": {"writes": (buffer,)}, "prepare.h2d": {"reads": (buffer,)}},
        before={"prepare": waits, "enter": [recorded], "prepare.assign": []},
    )


SLOW_FORWARD = {"barrier": "coarse", "workload.requests": "2"}


def test_a_staging_buffer_filled_again_before_its_copy_ran_is_caught() -> None:
    """The copy waits behind the barrier while the host, which waits for nothing, runs ahead."""
    reuse = ("staging", "reuse_before_copy", "staging_reused")
    assert reuse in harmful(findings(staged("staging"), SLOW_FORWARD))


def test_fresh_staging_every_iteration_removes_it() -> None:
    assert not harmful(findings(staged("batch.staging"), SLOW_FORWARD))


def test_waiting_for_the_copy_removes_it() -> None:
    first_in_prefill = edited(staged("staging", wait=True), drop=["staging.wait"], decode=False)
    assert not harmful(findings(first_in_prefill, SLOW_FORWARD))


# -- memory of others ------------------------------------------------------------------------------------------


def loads_kv(wait: bool) -> StepProgram:
    """A prefill whose prefix is loaded into its KV slots by a copy on a stream of its own."""
    load = op("forward", "load", "copy", stream=StreamName.AUX, cost="copy.small", writes=("kv[0:prompt]",))
    waits = op("forward", "load.wait", "wait", stream=StreamName.AUX, on=StreamName.FORWARD)
    back = op("forward", "load.join", "wait", stream=StreamName.FORWARD, on=StreamName.AUX)
    return edited(program(), before={"target": [*([waits] if wait else []), load, back]}, decode=False)


PAGED = {"serving.page_size": "16", "serving.max_running_requests": "8"}
FOREIGN = ("kv", "write_after_write", "foreign_slots")


def test_kv_loaded_off_stream_into_slots_a_zombie_still_writes_is_caught() -> None:
    """Freed pages are handed out first, so this needs no small pool; the scheduler's barrier does not cover it."""
    assert FOREIGN in harmful(findings(loads_kv(wait=False), {**PAGED, "barrier": "read_done"}))


def test_slots_handed_out_in_turn_are_not_reused_so_soon() -> None:
    in_turn = {**PAGED, "serving.page_size": "1", "barrier": "read_done"}
    assert FOREIGN not in harmful(findings(loads_kv(wait=False), in_turn))


def test_loading_after_the_forward_that_frees_the_slots_removes_it() -> None:
    assert not harmful(findings(loads_kv(wait=True), {**PAGED, "barrier": "read_done"}))


def recovers_swa() -> StepProgram:
    """Result processing rewrites the sliding-window mapping of rows the next forward translates with."""
    recovery = {"writes": ("req_to_token[0:prompt]", "allocator", "swa_map[0:prompt]")}
    translated = {"reads": ("req_to_token[0:seq+B]", "swa_map[0:seq+B]")}
    return edited(
        edited(program(), change={"process": recovery}, decode=False), change={"verify.meta": translated}
    )


def test_a_sliding_window_mapping_rewritten_by_result_processing_is_caught_at_the_loop_top() -> None:
    for barrier in ("coarse", "read_done"):
        found = harmful(findings(recovers_swa(), {"barrier": barrier}))
        assert ("swa_map", "write_after_read", "swa_mapping") in found


def test_the_barrier_after_the_launch_orders_the_mapping() -> None:
    after = {"barrier": "read_done", "barrier_placement": "after_launch"}
    assert not harmful(findings(recovers_swa(), after))


def test_a_window_eviction_that_keeps_its_margin_is_no_conflict() -> None:
    evicts = edited(
        program(),
        change={
            "prepare.assign": {"writes": ("req_to_token[allocated:committed+2B]", "swa_map[0:committed-4]")},
            "verify.meta": {"reads": ("req_to_token[0:seq+B]", "swa_map[seq:seq+B]")},
        },
        prefill=False,
    )
    found = findings(evicts, {"barrier": "unguarded", "serving.max_running_requests": "8"})
    assert not any(f["buffer"] == "swa_map" for f in found)


# -- an event that serves two iterations --------------------------------------------------------------------


def waits_for_copy_done_itself() -> StepProgram:
    """Result processing waits for the one `copy_done` event, which the next launch has recorded again."""
    again = op("process", "again", "synchronize", event="copy_done")
    return edited(program(), before={"process": [again]}, prefill=False)


def test_a_reused_event_that_delays_its_waiter_by_a_step_is_caught() -> None:
    found = findings(waits_for_copy_done_itself())
    late = next(f for f in found if f["kind"] == "late_event")
    assert late["buffer"] == "copy_done"
    assert late["severity"] == "benign", "nothing is corrupted; the overlap is lost"
    assert late["margin_us"] < -100, "the host was held for most of a forward"


def test_an_event_of_its_own_for_every_result_removes_the_delay() -> None:
    assert not any(f["kind"] == "late_event" for f in findings())
