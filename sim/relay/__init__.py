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


def resolve(policies: Policies, source: LengthSource, gathered: bool) -> list[Primitive]:
    """Operations of `resolve` on the schedule stream; empty where nothing is published or lengths are carried.

    The wait is on the stream, or on the host where the platform says so (semantics 3).
    """
    if source is LengthSource.HOST_KNOWN or not gathered:
        return []
    wait = Act.WAIT if policies.platform.publish_wait_on_stream else Act.SYNC
    call = "call.wait" if wait is Act.WAIT else "call.synchronize"
    return [
        Primitive(
            wait,
            "resolve.wait_publish",
            Phase.RESOLVE,
            stream="schedule",
            host=call,
            event=PUBLISH_READY,
            cause=Cause.PUBLISH_SYNC,
        ),
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
