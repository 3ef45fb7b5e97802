"""How lengths and tokens of the previous forward reach the next one: what each relay inserts into a step.

``direct_carry`` hands the previous result over by reference while the batch is unchanged and falls back to the
FutureMap for one iteration after a filter or merge (semantics 6); ``unified`` always goes through it. The
difference between the two is therefore a fact of the iteration (`gathered`), and one function serves both.
"""

from __future__ import annotations

from sim.capabilities import LengthSource, Relay
from sim.program.policies import Policies
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Kind, Phase
from sim.trace.record import Cause

PUBLISH_READY = "publish_ready"

DESCRIPTIONS = {
    Relay.DIRECT_CARRY: "by reference while the batch is unchanged; after a filter or merge one gather by row",
    Relay.UNIFIED: "always through the FutureMap: wait for publish_ready, gather lengths by row",
}


def gathers(relay: Relay, carry_valid: bool) -> bool:
    """Whether this iteration gathers by row."""
    return relay is Relay.UNIFIED or not carry_valid


def await_publish(policies: Policies) -> Primitive:
    """The schedule stream, or on some platforms the host (semantics 3), waits for the previous publish."""
    on_stream = policies.platform.publish_wait_on_stream
    return Primitive(
        Act.WAIT if on_stream else Act.SYNC,
        "resolve.wait_publish",
        Phase.RESOLVE,
        stream="schedule",
        host="call.wait" if on_stream else "call.synchronize",
        event=PUBLISH_READY,
        cause=Cause.PUBLISH_SYNC,
    )


def resolve(policies: Policies, source: LengthSource, gathered: bool) -> list[Primitive]:
    """Operations of `resolve` on the schedule stream; empty where nothing is published or lengths are carried."""
    if source is LengthSource.HOST_KNOWN or not gathered:
        return []
    return [
        await_publish(policies),
        Primitive(
            Act.LAUNCH,
            "resolve.gather_lengths",
            Phase.RESOLVE,
            stream="schedule",
            host="host.relay.resolve",
            device="relay.gather_lengths",
            kind=Kind.KERNEL,
            reads=("future_map.new_seq_lens[rows]",),
            writes=("batch.seq_lens",),
        ),
    ]
