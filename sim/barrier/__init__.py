"""Who waits for what before shared buffers are rewritten: one table and three insertions.

Every policy reduces to {event, who waits, where}. ``coarse`` and ``read_done`` make the schedule stream wait,
at the top of the loop or right after the launch; ``self_fence`` orders decode preparation alone, by a host wait
(preparation on the schedule stream) or a plan-stream wait.
"""

from __future__ import annotations

from sim.capabilities import Barrier, BarrierPlacement, PrepStream
from sim.program.policies import Policies
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Phase
from sim.trace.record import Cause

READ_DONE = "read_done"
SELF_FENCE = "self_fence"
FORWARD_TAIL = "forward_tail"

DESCRIPTIONS = {
    Barrier.UNGUARDED: "nothing waits; recycled rows may be overwritten under a running forward",
    Barrier.COARSE: "the schedule stream waits for the whole previous forward",
    Barrier.READ_DONE: "the schedule stream waits for the previous forward's last shared read; "
    "coarse where none is recorded",
    Barrier.SELF_FENCE: "the worker fences its own decode preparation, by a host wait or on the plan stream",
}


def falls_back(policies: Policies, read_end_recorded: bool) -> bool:
    """Whether ``read_done`` has no event to wait for in this iteration."""
    return policies.barrier is Barrier.READ_DONE and not read_end_recorded


def _schedule_waits(policies: Policies, phase: Phase, read_end_recorded: bool) -> list[Primitive]:
    if policies.barrier is Barrier.READ_DONE and read_end_recorded:
        event = READ_DONE
        ops = []
    else:
        event = FORWARD_TAIL
        ops = [
            Primitive(
                Act.RECORD, "barrier.record", phase, stream="forward", host="call.record", event=FORWARD_TAIL
            )
        ]
    return [
        *ops,
        Primitive(
            Act.WAIT,
            "barrier.wait",
            phase,
            stream="schedule",
            host="call.wait",
            event=event,
            cause=Cause.BARRIER,
        ),
    ]


def _guards(policies: Policies, placement: BarrierPlacement) -> bool:
    return (
        policies.overlap
        and policies.placement is placement
        and policies.barrier in (Barrier.COARSE, Barrier.READ_DONE)
    )


def at_loop_top(policies: Policies, read_end_recorded: bool) -> list[Primitive]:
    """Before the batch is chosen: order this iteration's schedule-stream work after the previous forward."""
    if not _guards(policies, BarrierPlacement.LOOP_TOP):
        return []
    return [
        Primitive(Act.HOST, "barrier", Phase.SCHEDULE, host="host.barrier"),
        *_schedule_waits(policies, Phase.SCHEDULE, read_end_recorded),
    ]


def after_launch(policies: Policies, read_end_recorded: bool) -> list[Primitive]:
    """Right after the launch: the same wait on *this* forward, so that result processing is ordered as well.

    ``read_end_recorded`` here means: by the forward just launched.
    """
    if not _guards(policies, BarrierPlacement.AFTER_LAUNCH):
        return []
    return [
        Primitive(Act.HOST, "barrier", Phase.QUEUE, host="host.barrier"),
        *_schedule_waits(policies, Phase.QUEUE, read_end_recorded),
    ]


def host_fence(policies: Policies, fence_recorded: bool) -> list[Primitive]:
    """Entry of decode preparation: ``self_fence`` on the schedule stream blocks the host."""
    if not (policies.overlap and policies.barrier is Barrier.SELF_FENCE and fence_recorded):
        return []
    if policies.prep_stream is PrepStream.PLAN:
        return []
    return [
        Primitive(
            Act.SYNC,
            "fence.synchronize",
            Phase.PREPARE,
            host="call.synchronize",
            event=SELF_FENCE,
            cause=Cause.FENCE,
        )
    ]


def plan_stream_entry(policies: Policies, fence_recorded: bool) -> list[Primitive]:
    """Join-in of the plan stream: after the schedule stream, and after the worker's fence if that is the policy."""
    if policies.prep_stream is not PrepStream.PLAN:
        return []
    ops = [
        Primitive(
            Act.RECORD,
            "plan.record_schedule",
            Phase.PREPARE,
            stream="schedule",
            host="call.record",
            event="plan_in",
        ),
        Primitive(
            Act.WAIT, "plan.wait_schedule", Phase.PREPARE, stream="plan", host="call.wait", event="plan_in"
        ),
    ]
    if policies.barrier is Barrier.SELF_FENCE and fence_recorded:
        ops.append(
            Primitive(
                Act.WAIT,
                "plan.wait_fence",
                Phase.PREPARE,
                stream="plan",
                host="call.wait",
                event=SELF_FENCE,
                cause=Cause.FENCE,
            )
        )
    return ops


def plan_stream_exit(policies: Policies) -> list[Primitive]:
    """Join-out: the schedule stream waits for the plan stream."""
    if policies.prep_stream is not PrepStream.PLAN:
        return []
    return [
        Primitive(
            Act.RECORD, "plan.record", Phase.PREPARE, stream="plan", host="call.record", event="plan_out"
        ),
        Primitive(
            Act.WAIT, "plan.join", Phase.PREPARE, stream="schedule", host="call.wait", event="plan_out"
        ),
    ]
