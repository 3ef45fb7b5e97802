"""Who waits for what before shared buffers are rewritten, with real events; the twin of :mod:`sim.barrier`.

Every policy is {event, who waits, where}; the table is the same as the model's, and so are the section names.
"""

from __future__ import annotations

from gpu_validation.device.backend import Backend
from gpu_validation.observe.sections import Lap
from gpu_validation.runtime.streams import Streams
from sim.capabilities import Barrier, BarrierPlacement, PrepStream
from sim.program.policies import Policies


class BarrierPolicy:
    """The barrier of one run. Remembers what the forward just launched recorded."""

    def __init__(self, policies: Policies, backend: Backend, streams: Streams, lap: Lap):
        self._policies, self._streams, self._lap = policies, streams, lap
        self._read_done, self._forward_tail = backend.event(), backend.event()
        self._fence, self._plan_in, self._plan_out = backend.event(), backend.event(), backend.event()
        self._set_stream = backend.set_stream
        self._read_end_recorded = self._fence_recorded = False
        self._plans = policies.overlap and policies.prep_stream is PrepStream.PLAN
        guards = policies.overlap and policies.barrier in (Barrier.COARSE, Barrier.READ_DONE)
        self._at_top = guards and policies.placement is BarrierPlacement.LOOP_TOP
        self._after = guards and policies.placement is BarrierPlacement.AFTER_LAUNCH
        self._fences = policies.overlap and policies.barrier is Barrier.SELF_FENCE
        self._records_read_done = policies.overlap and policies.barrier is Barrier.READ_DONE

    def at_loop_top(self) -> None:
        """Before the batch is chosen: this iteration's schedule-stream work waits for the previous
        forward.
        """
        if self._at_top:
            self._schedule_waits()

    def after_launch(self) -> None:
        """Right after the launch, so that result processing is ordered as well."""
        if self._after:
            self._schedule_waits()

    def _schedule_waits(self) -> None:
        self._lap("barrier")
        if self._records_read_done and self._read_end_recorded:
            event = self._read_done
        else:
            event = self._forward_tail
            event.record(self._streams.forward)
            self._lap("barrier.record")
        self._streams.schedule.wait_event(event)
        self._lap("barrier.wait")

    def before_preparation(self) -> None:
        """``self_fence`` on the schedule stream blocks the host until the previous forward is over."""
        if self._fences and not self._plans and self._fence_recorded:
            self._fence.synchronize()
            self._lap("fence.synchronize")

    def enter_preparation(self) -> None:
        """Join in: the plan stream goes on from the schedule stream, and from the worker's fence if that is
        used.
        """
        if not self._plans:
            return
        streams = self._streams
        self._plan_in.record(streams.schedule)
        self._lap("plan.record_schedule")
        streams.plan.wait_event(self._plan_in)
        self._lap("plan.wait_schedule")
        if self._fences and self._fence_recorded:
            streams.plan.wait_event(self._fence)
            self._lap("plan.wait_fence")
        self._set_stream(streams.plan)

    def leave_preparation(self) -> None:
        """Join out: the schedule stream goes on from the plan stream."""
        if not self._plans:
            return
        self._plan_out.record(self._streams.plan)
        self._lap("plan.record")
        self._streams.schedule.wait_event(self._plan_out)
        self._set_stream(self._streams.schedule)
        self._lap("plan.join")

    def launching(self) -> None:
        """A forward is about to be launched: it has recorded nothing yet."""
        self._read_end_recorded = self._fence_recorded = False

    def last_shared_read(self) -> None:
        if self._records_read_done:
            self._read_done.record(self._streams.forward)
            self._read_end_recorded = True
            self._lap("read_done.record")

    def self_fence(self) -> None:
        if self._fences:
            self._fence.record(self._streams.forward)
            self._fence_recorded = True
            self._lap("fence.record")
