"""What a runtime makes of calls: a pass over expanded primitives, where its semantics differ from the plain ones.

Plain: a stream wait costs its call, a graph launch returns at once, a record concerns its own stream. Each
deviation is a row of :class:`~sim.program.policies.PlatformSemantics`; with none the list is returned as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.program.policies import PlatformSemantics
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Kind
from sim.trace.record import Cause

#: streams whose work a record on the schedule stream joins, where the schedule stream is the runtime's null stream
_JOINED = ("forward", "copy", "plan", "aux")


def as_executed(primitives: Sequence[Primitive], semantics: PlatformSemantics) -> list[Primitive]:
    """The primitives with what the runtime adds to waits, graph launches and records."""
    out: list[Primitive] = []
    used = {p.stream for p in primitives if p.act is Act.LAUNCH}
    for p in primitives:
        if p.act is Act.RECORD and p.stream == "schedule" and semantics.record_joins_streams:
            for stream in _JOINED:
                if stream in used:
                    event = f"null.{stream}"
                    out.append(Primitive(Act.RECORD, f"{p.name}.joins", p.phase, stream=stream, event=event))
                    out.append(
                        Primitive(Act.WAIT, f"{p.name}.joins", p.phase, stream="schedule", event=event)
                    )
        out.append(p)
        if p.act is Act.WAIT and semantics.stream_wait_holds_host:
            out.append(_held(p, p.event or "", p.cause))
        if p.act is Act.LAUNCH and p.kind is Kind.GRAPH and semantics.graph_launch_holds_host:
            event = f"held.{p.name}"
            out.append(Primitive(Act.RECORD, f"{p.name}.end", p.phase, stream=p.stream, event=event))
            out.append(_held(p, event, Cause.OTHER))
    return out


def _held(p: Primitive, event: str, cause: Cause | None) -> Primitive:
    """The call returns only when the event is met; where it already is, it costs nothing more."""
    return Primitive(Act.SYNC, f"{p.name}.held", p.phase, event=event, cause=cause or Cause.OTHER)
