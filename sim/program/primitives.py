"""What a solver executes: five acts, in host program order.

A :class:`Primitive` is one thing the host thread does. Events are identified by name, and a wait captures the
latest record made before it in host order; this is all the semantics a solver needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sim.program.step_program import Kind, Mark, Phase
from sim.trace.record import Cause


class Act(IntEnum):
    """HOST and LAUNCH take host time; LAUNCH also occupies a stream; SYNC may block the host."""

    HOST = 0  # host time only
    LAUNCH = 1  # host time, then one operation on `stream`
    RECORD = 2  # `event` becomes the tail of `stream`
    WAIT = 3  # `stream` goes on no earlier than `event`
    SYNC = 4  # the host goes on no earlier than `event`
    ENTER = 5  # no time: the host enters `run_batch` (cycles are measured between these)


#: host cost of waking up after a blocking synchronisation; see :attr:`Primitive.own_wake`
WAKE = "call.wake"
#: host cost that a profile may have: what the first kernel launch after a host section costs more than one behind
#: another launch, whose code the caches still hold
FIRST_LAUNCH = "call.first_launch"
_KERNELS = (Kind.KERNEL, Kind.PUBLISH, Kind.STASH)
#: costs of what host-length policies insert: microseconds of bookkeeping that leave the caches as they are
_BOOKKEEPING = "host.lengths."


@dataclass(frozen=True, slots=True)
class Primitive:
    act: Act
    name: str
    phase: Phase
    stream: str | None = None
    #: host cost name (None: free) and the share of it spent here
    host: str | None = None
    share: float = 1.0
    #: device cost name of a LAUNCH
    device: str | None = None
    #: a graph runs at the padded batch
    kind: Kind = Kind.HOST
    event: str | None = None
    #: cause given to idle time that this wait or synchronisation produces; None: the event's own
    cause: Cause | None = None
    marks: tuple[Mark, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def own_wake(self) -> str:
        """Cost that a profile may have for waking up from this very SYNC, in place of :data:`WAKE`: with it, what
        the host work that follows costs more than it does when the host was not asleep."""
        return f"{WAKE}.{self.name}"


def first_launches(primitives: Sequence[Primitive]) -> frozenset[int]:
    """Indices of the kernel launches in a piece of the loop that are the first after a host section, or after the
    piece's beginning."""
    found, first = [], True
    for i, p in enumerate(primitives):
        if p.act is Act.HOST:
            first = first or not (p.host or "").startswith(_BOOKKEEPING)
        elif first and p.act is Act.LAUNCH and p.kind in _KERNELS:
            found.append(i)
            first = False
    return frozenset(found)
