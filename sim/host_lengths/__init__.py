"""What the host learns of the lengths: the private copy behind `publish`, and where the host waits for it.

``none`` and ``bound`` never wait; ``bound`` costs its arithmetic where a program consumes lengths. ``exact``
copies on the private D2H stream, gated on ``publish_ready`` alone, and waits inside resolve; ``exact_deferred``
enqueues the same copy and waits right before the first operation that consumes the lengths.
"""

from __future__ import annotations

from sim.capabilities import Capabilities, HostLengths, LengthSource
from sim.program.policies import Policies
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Kind, Phase
from sim.relay import PUBLISH_READY, await_publish
from sim.trace.record import Cause

MIRROR_READY = "lengths_on_host"


def enqueue(policies: Policies, capabilities: Capabilities, gathered: bool) -> list[Primitive]:
    """Operations of `resolve` that start the copy (exact, exact_deferred) or compute the bound.

    ``gathered``: the relay has already made the schedule stream wait for `publish_ready`.
    """
    if capabilities.length_source is LengthSource.HOST_KNOWN:
        return []
    if policies.host_lengths is HostLengths.BOUND and capabilities.consumes_host_lengths:
        return [Primitive(Act.HOST, "lengths.bound", Phase.RESOLVE, host="host.lengths.bound")]
    if policies.host_lengths not in (HostLengths.EXACT, HostLengths.EXACT_DEFERRED):
        return []
    private = policies.platform.private_d2h_stream
    stream = "d2h" if private else "schedule"
    ops = [Primitive(Act.HOST, "lengths.enqueue", Phase.RESOLVE, host="host.lengths.resolve")]
    if private:
        ops.append(
            Primitive(
                Act.WAIT,
                "lengths.wait_publish",
                Phase.RESOLVE,
                stream=stream,
                host="call.wait",
                event=PUBLISH_READY,
                cause=Cause.PUBLISH_SYNC,
            )
        )
    elif not gathered:
        ops.append(await_publish(policies))
    if not policies.pinned:
        ops.append(Primitive(Act.HOST, "lengths.stage", Phase.RESOLVE, host="call.pageable_copy"))
    ops.append(
        Primitive(
            Act.LAUNCH,
            "lengths.copy",
            Phase.RESOLVE,
            stream=stream,
            host="call.copy",
            device="lengths.copy",
            kind=Kind.COPY,
            reads=("future_map.new_seq_lens[rows]",),
            writes=("pinned_mirror",),
        )
    )
    ops.append(Primitive(Act.RECORD, "lengths.copied", Phase.RESOLVE, stream=stream, event=MIRROR_READY))
    # A copy into pageable memory returns only when it is done: there is nothing left to defer.
    if policies.host_lengths is HostLengths.EXACT or not policies.pinned:
        ops += await_mirror(Phase.RESOLVE)
    return ops


def waits_later(policies: Policies, capabilities: Capabilities) -> bool:
    """Whether the host still has to wait at the first use of the lengths."""
    return (
        policies.host_lengths is HostLengths.EXACT_DEFERRED
        and policies.pinned
        and capabilities.length_source is LengthSource.PUBLISHED
    )


def await_mirror(phase: Phase) -> list[Primitive]:
    """The host waits for the copy, then indexes and sums the mirror."""
    return [
        Primitive(
            Act.SYNC,
            "lengths.synchronize",
            phase,
            host="call.synchronize",
            event=MIRROR_READY,
            cause=Cause.PUBLISH_SYNC,
        ),
        Primitive(Act.HOST, "lengths.mirror", phase, host="host.lengths.mirror", reads=("pinned_mirror",)),
    ]
