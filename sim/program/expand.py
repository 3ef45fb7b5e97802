"""From a step program, the policies and the situation of one iteration to the list of primitives to execute.

This is the one place where declarations and policies meet. Everything after it (the SimPy machine, the max-plus
recurrence, the hazard check) sees only :class:`~sim.program.primitives.Primitive` lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim import barrier, host_lengths, relay
from sim.capabilities import Barrier, Capabilities, LengthSource, ReadEnd
from sim.program.policies import Policies, Situation
from sim.program.primitives import Act, Primitive
from sim.program.runtime import as_executed
from sim.program.step_program import Kind, Mark, Operation, Phase, StepProgram, StreamName
from sim.trace.record import Cause

#: the event that the wait before result processing refers to; the loop binds it to the right iteration
RESULT_READY = "result_ready"
COPY_DONE = "copy_done"

#: host cost of a call, where an operation names none
PRIMITIVE_HOST_COST = {
    Kind.KERNEL: "call.launch",
    Kind.PUBLISH: "call.launch",
    Kind.STASH: "call.launch",
    Kind.GRAPH: "call.graph",
    Kind.COPY: "call.copy",
    Kind.RECORD: "call.record",
    Kind.WAIT: "call.wait",
    Kind.SYNCHRONIZE: "call.synchronize",
}

_LAUNCHES = (Kind.KERNEL, Kind.GRAPH, Kind.COPY, Kind.PUBLISH, Kind.STASH)


@dataclass(frozen=True, slots=True)
class Iteration:
    """The primitives of one iteration, in the three pieces a loop runs separately."""

    receive: tuple[Primitive, ...]
    #: from the barrier to the end of the launch
    launch: tuple[Primitive, ...]
    #: the wait for the result that is due, and its processing
    process: tuple[Primitive, ...]


class Expander:
    """Expands a program under fixed policies; pure, so results may be cached by situation."""

    def __init__(self, program: StepProgram, policies: Policies, page_size: int = 1):
        self.program = program
        self.policies = policies
        self.page_size = page_size
        self.capabilities: Capabilities = program.capabilities
        self._records_read_done = any(
            op.kind is Kind.RECORD and op.event == barrier.READ_DONE for op in program.operations
        )
        self._can_end_reads = self.capabilities.read_end in (ReadEnd.PRE_REPLAY, ReadEnd.IN_REPLAY) and (
            self._records_read_done or any(Mark.LAST_SHARED_READ in op.marks for op in program.operations)
        )
        self._can_fence = any(Mark.SELF_FENCE in op.marks for op in program.operations)

    @property
    def records_read_end(self) -> bool:
        """Whether a decode forward leaves an event for the ``read_done`` barrier."""
        return self._can_end_reads and (self._records_read_done or self.policies.barrier is Barrier.READ_DONE)

    @property
    def records_fence(self) -> bool:
        """Whether a decode forward leaves an event for the worker's own fence."""
        return self._can_fence and self.policies.barrier is Barrier.SELF_FENCE

    def expand(self, situation: Situation) -> Iteration:
        """The primitives of one iteration in ``situation``."""
        operations = self.program.prefill if situation.prefill else self.program.operations
        facts = situation.facts(
            self.policies, self.capabilities.length_source is LengthSource.PUBLISHED, self.page_size
        )
        chosen = [op for op in operations if all(w in facts for w in op.when)]
        by_phase: dict[Phase, list[Operation]] = {phase: [] for phase in Phase}
        for op in chosen:
            by_phase[op.phase].append(op)

        launch: list[Primitive] = []
        if self.policies.overlap:
            launch += barrier.at_loop_top(self.policies, situation.read_end_recorded)
        launch += self._translate(by_phase[Phase.SCHEDULE])
        launch += self._prepare(by_phase[Phase.PREPARE], situation)
        launch.append(Primitive(Act.ENTER, "run_batch", Phase.RESOLVE))
        if not situation.prefill and self.policies.overlap:
            launch += relay.resolve(self.policies, self.capabilities.length_source, situation.gathered)
            launch += host_lengths.enqueue(self.policies, self.capabilities, situation.gathered)
        launch += self._translate(by_phase[Phase.RESOLVE])
        launch += self._translate(by_phase[Phase.ENTER])
        launch += self._forward(by_phase[Phase.FORWARD], situation)
        if not self.policies.overlap and not situation.prefill:
            launch += self._blocking_mirror()
        launch += self._translate(by_phase[Phase.COPY])
        launch += self._translate(by_phase[Phase.QUEUE])
        ends_reads = self.records_read_end and not situation.prefill
        launch += barrier.after_launch(self.policies, ends_reads)

        process = [
            Primitive(
                Act.SYNC,
                "result.synchronize",
                Phase.PROCESS,
                host="call.synchronize",
                event=RESULT_READY,
                cause=Cause.COPY_DONE,
            ),
            *self._translate(by_phase[Phase.PROCESS]),
        ]
        if not self.policies.overlap:
            launch, process = _on_one_stream(launch), _on_one_stream(process)
        launch = as_executed(launch, self.policies.platform)
        return Iteration(tuple(self._translate(by_phase[Phase.RECEIVE])), tuple(launch), tuple(process))

    # -- phases that policies reach into ---------------------------------------------------------------

    def _prepare(self, operations: list[Operation], situation: Situation) -> list[Primitive]:
        """Fence at entry; plan-stream joins around the operations that use the preparation stream."""
        if situation.prefill:
            return self._translate(operations)
        out = barrier.host_fence(self.policies, situation.fence_recorded)
        on_prep = [i for i, op in enumerate(operations) if op.stream is StreamName.PREP]
        for i, op in enumerate(operations):
            if on_prep and i == on_prep[0]:
                out += barrier.plan_stream_entry(self.policies, situation.fence_recorded)
            out += self._translate([op])
            if on_prep and i == on_prep[-1]:
                out += barrier.plan_stream_exit(self.policies)
        return out

    def _forward(self, operations: list[Operation], situation: Situation) -> list[Primitive]:
        """Policy records after their marks, the deferred wait before the first use of host lengths."""
        defer = (
            not situation.prefill
            and self.policies.overlap
            and host_lengths.waits_later(self.policies, self.capabilities)
        )
        used = any(Mark.FIRST_USE_OF_HOST_LENGTHS in op.marks for op in operations)
        out: list[Primitive] = []
        if defer and not used:  # nothing says when the lengths are read: the first operation may
            out += host_lengths.await_mirror(Phase.FORWARD)
            defer = False
        for op in operations:
            if defer and Mark.FIRST_USE_OF_HOST_LENGTHS in op.marks:
                out += host_lengths.await_mirror(Phase.FORWARD)
                defer = False
            out += self._translate([op])
            if Mark.LAST_SHARED_READ in op.marks and self._adds_read_done():
                out.append(_record("read_done.record", barrier.READ_DONE))
            if Mark.SELF_FENCE in op.marks and self.records_fence:
                own_record = op.kind is Kind.RECORD
                out.append(_record("fence.record", barrier.SELF_FENCE, free=own_record))
        return out

    def _adds_read_done(self) -> bool:
        return (
            self.policies.barrier is Barrier.READ_DONE
            and self.policies.overlap
            and self._can_end_reads
            and not self._records_read_done
        )

    def _blocking_mirror(self) -> list[Primitive]:
        """Synchronous loop: a blocking copy of the lengths after the forward, where the worker needs them."""
        if not self.capabilities.needs_cpu_seq_lens:
            return []
        return [
            Primitive(
                Act.LAUNCH,
                "lengths.copy",
                Phase.COPY,
                stream="schedule",
                host="call.copy",
                device="lengths.copy",
                kind=Kind.COPY,
            ),
            Primitive(
                Act.RECORD, "lengths.copied", Phase.COPY, stream="schedule", event=host_lengths.MIRROR_READY
            ),
            *host_lengths.await_mirror(Phase.COPY),
        ]

    # -- one operation ---------------------------------------------------------------------------------

    def _translate(self, operations: list[Operation]) -> list[Primitive]:
        out: list[Primitive] = []
        for op in operations:
            out += self._primitives(op)
        return out

    def _stream(self, stream: StreamName | None) -> str | None:
        if stream is StreamName.PREP:
            return str(self.policies.prep_stream)
        if stream is StreamName.COPY and not self.policies.platform.result_copy_stream:
            return "forward"
        return None if stream is None else str(stream)

    def _primitives(self, op: Operation) -> list[Primitive]:
        stream, on = self._stream(op.stream), self._stream(op.on)
        host, share = self._host_cost(op)
        if op.kind is Kind.HOST:
            return [
                Primitive(
                    Act.HOST,
                    op.name,
                    op.phase,
                    stream=stream,
                    host=op.cost,
                    share=op.share,
                    marks=op.marks,
                    reads=op.reads,
                    writes=op.writes,
                )
            ]
        if op.kind in _LAUNCHES:
            launch = Primitive(
                Act.LAUNCH,
                op.name,
                op.phase,
                stream=stream,
                host=host,
                share=share,
                device=op.cost,
                kind=op.kind,
                marks=op.marks,
                reads=op.reads,
                writes=op.writes,
            )
            if op.kind is Kind.PUBLISH and self.capabilities.length_source is LengthSource.PUBLISHED:
                return [launch, _record("publish.record", relay.PUBLISH_READY, phase=op.phase, stream=stream)]
            if op.phase is Phase.PREPARE and op.direction == "h2d" and not self.policies.pinned:
                # Small pageable copies are staged by the driver: the host pays, the stream does not wait
                # (semantics 1.3).
                return [Primitive(Act.HOST, f"{op.name}.stage", op.phase, host="call.pageable_copy"), launch]
            return [launch]
        if op.kind is Kind.RECORD:
            return [
                Primitive(
                    Act.RECORD,
                    op.name,
                    op.phase,
                    stream=stream,
                    host=host,
                    share=share,
                    event=op.event,
                    marks=op.marks,
                )
            ]
        # WAIT and SYNCHRONIZE: on an event, or on the tail of another stream (a record that costs nothing extra).
        out: list[Primitive] = []
        event = op.event
        if on is not None:
            if op.kind is Kind.WAIT and not self.policies.overlap:
                return []  # one stream: nothing to wait for
            if op.kind is Kind.WAIT and on == stream:
                return [Primitive(Act.HOST, op.name, op.phase, host=host, share=share)]
            event = f"tail.{op.name}"
            out.append(Primitive(Act.RECORD, f"{op.name}.tail", op.phase, stream=on, event=event))
        act = Act.WAIT if op.kind is Kind.WAIT else Act.SYNC
        cause = None if op.kind is Kind.WAIT else Cause.OTHER
        out.append(
            Primitive(
                act,
                op.name,
                op.phase,
                stream=stream,
                host=host,
                share=share,
                event=event,
                cause=cause,
                marks=op.marks,
            )
        )
        return out

    def _host_cost(self, op: Operation) -> tuple[str | None, float]:
        if op.host is not None:
            return op.host, op.share
        return PRIMITIVE_HOST_COST.get(op.kind), 1.0


def _record(
    name: str, event: str, phase: Phase = Phase.FORWARD, stream: str | None = "forward", free: bool = False
) -> Primitive:
    return Primitive(
        Act.RECORD, name, phase, stream=stream, host=None if free else "call.record", event=event
    )


def _on_one_stream(primitives: list[Primitive]) -> list[Primitive]:
    """Overlap off: everything runs on one stream, so waits between streams disappear."""
    return [
        p if p.stream is None else replace(p, stream="forward") for p in primitives if p.act is not Act.WAIT
    ]
