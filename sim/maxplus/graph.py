"""The event graph of one turn: when each thing happens, as a maximum over what it waits for plus a duration.

A *node* is a moment: the host is done with a primitive, a device operation ends, an event is met. An *arc* says
that a node comes no earlier than its source plus the durations named. Sources are nodes of the same turn or
*slots*: what the turn before left behind (the host's clock, the end of a stream, a pending stream wait, an event).
Arcs from slots are the previous-iteration arcs of a timed event graph (Baccelli, Cohen, Olsder, Quadrat,
"Synchronization and Linearity", 1992, ch. 2); a pair (turn, slots) is its max-plus state equation.

One rule is not max-plus linear: a synchronisation costs the call if its event is already met and the wake if it
is not (:attr:`Node.sync`). Given which synchronisations block, the graph is linear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sim.maxplus.turn import Turn
from sim.program.events import never_recorded
from sim.program.expand import COPY_DONE, RESULT_READY
from sim.program.primitives import Act
from sim.trace.record import HOST_LANE, Cause


class Slot(NamedTuple):
    """Something a turn leaves to the next: ``kind`` is host, free (end of a stream's last operation), floor (a
    stream wait that no operation has met yet) or event."""

    kind: str
    name: str


HOST = Slot("host", HOST_LANE)
#: label of a wait that the turn before left pending
EARLIER = "an earlier wait"


class Role(StrEnum):
    """What an arc says."""

    ORDER = "order"  # the same resource does one thing after another
    LAUNCH = "launch"  # an operation starts after the host has launched it
    WAIT = "wait"  # a stream goes on after an event
    SYNC = "sync"  # the host goes on after an event
    MARK = "mark"  # an event is met when the stream it was recorded on has come so far


class Arc(NamedTuple):
    """``source`` is a slot if negative (slot −source − 1), else a node. ``terms`` index the duration vector.

    ``label`` names the event of a wait or synchronisation.
    """

    source: int
    role: Role
    terms: tuple[int, ...]
    label: str = ""
    #: cause of idle time that this arc produces; None: whatever held up its source
    cause: Cause | None = None


@dataclass(slots=True)
class Node:
    """``lane`` is the host or a stream; ``primitive`` the index of the primitive it belongs to, −1 for a floor
    handed on. A synchronisation adds ``sync`` = (call, wake) terms: call if met, wake if blocked."""

    name: str
    lane: str
    primitive: int
    arcs: tuple[Arc, ...]
    #: the host's ends of primitives, ends of device operations, events
    act: str
    sync: tuple[int, int] | None = None


@dataclass(slots=True)
class EventGraph:
    """Nodes in an order in which every source precedes its arcs' targets, and the hand-over to the next turn."""

    turn: Turn
    nodes: list[Node] = field(default_factory=list)
    #: slots read, and what each slot holds at the end of the turn (a node or, negative, a slot read)
    slots: list[Slot] = field(default_factory=list)
    outputs: dict[Slot, int] = field(default_factory=dict)
    #: stream on which each event held at the end was recorded
    streams: dict[str, str] = field(default_factory=dict)
    #: nodes of the host that block when their event is not met
    syncs: list[int] = field(default_factory=list)
    #: where the host enters `run_batch`
    entered: int = -1


class _Stream:
    """The end of a stream's last operation and the waits that its next one must meet."""

    def __init__(self, free: int):
        self.free = free
        self.floors: list[Arc] = []

    def reset(self, free: int) -> None:
        self.free, self.floors = free, []


class _Builder:
    def __init__(self, turn: Turn, before: EventGraph | None):
        self.graph = EventGraph(turn)
        self._n = len(turn.primitives)
        self._wake, self._hop, self._latency, self._own_wakes = (2 * self._n + k for k in range(4))
        self._before: Mapping[Slot, int] = {} if before is None else before.outputs
        self._events: dict[str, int] = {}
        self._streams_of: dict[str, str] = {} if before is None else dict(before.streams)
        self._streams: dict[str, _Stream] = {}
        self._host = self._slot(HOST)
        # The result that is due was copied by the turn before, whatever this turn records meanwhile.
        due = Slot("event", COPY_DONE)
        self._due = self._slot(due) if turn.due and due in self._before else None

    def _slot(self, slot: Slot) -> int:
        if slot not in self.graph.slots:
            self.graph.slots.append(slot)
        return -1 - self.graph.slots.index(slot)

    def _node(self, node: Node) -> int:
        self.graph.nodes.append(node)
        return len(self.graph.nodes) - 1

    def _stream(self, name: str) -> _Stream:
        if name not in self._streams:
            stream = self._streams[name] = _Stream(self._slot(Slot("free", name)))
            floor = Slot("floor", name)
            if floor in self._before:
                stream.floors.append(Arc(self._slot(floor), Role.WAIT, (), EARLIER))
        return self._streams[name]

    def _event(self, name: str, waiter: str) -> int:
        if name == RESULT_READY:
            if self._due is not None:
                return self._due
            name = COPY_DONE
        ref = self._events.get(name)
        if ref is None:
            slot = Slot("event", name)
            if slot not in self._before:
                raise never_recorded(waiter, name)
            ref = self._events[name] = self._slot(slot)
        return ref

    def build(self) -> EventGraph:
        for i, p in enumerate(self.graph.turn.primitives):
            spent = () if self.graph.turn.host[i] is None else (i,)
            before = Arc(self._host, Role.ORDER, spent)
            if p.act is Act.SYNC:
                self._synchronise(i)
                continue
            self._host = self._node(Node(p.name, HOST_LANE, i, (before,), p.act.name.lower()))
            if p.act is Act.LAUNCH:
                self._launch(i)
            elif p.act is Act.RECORD:
                self._record(i)
            elif p.act is Act.WAIT:
                self._wait(i)
            elif p.act is Act.ENTER:
                self.graph.entered = self._host
        self._hand_over()
        return self.graph

    def _synchronise(self, i: int) -> None:
        p = self.graph.turn.primitives[i]
        name = p.event or ""
        event = Arc(self._event(name, f"{p.name} ({p.phase})"), Role.SYNC, (), name, p.cause)
        wake = self._wake if self.graph.turn.wakes[i] is None else self._own_wakes + i
        self._host = self._node(
            Node(p.name, HOST_LANE, i, (Arc(self._host, Role.ORDER, ()), event), "sync", (i, wake))
        )
        self.graph.syncs.append(self._host)

    def _launch(self, i: int) -> None:
        p = self.graph.turn.primitives[i]
        stream = self._stream(p.stream or "")
        runs = () if self.graph.turn.device[i] is None else (self._n + i,)
        arcs = (
            Arc(self._host, Role.LAUNCH, (self._latency, *runs), cause=p.cause),
            Arc(stream.free, Role.ORDER, runs),
            *(arc._replace(terms=arc.terms + runs, cause=p.cause or arc.cause) for arc in stream.floors),
        )
        stream.reset(self._node(Node(p.name, p.stream or "", i, arcs, "device")))

    def _record(self, i: int) -> None:
        p = self.graph.turn.primitives[i]
        stream, name = self._stream(p.stream or ""), p.event or ""
        arcs = (Arc(stream.free, Role.MARK, (), name), *stream.floors)
        self._events[name] = self._node(Node(p.name, p.stream or "", i, arcs, "event"))
        self._streams_of[name] = p.stream or ""

    def _wait(self, i: int) -> None:
        p = self.graph.turn.primitives[i]
        name, stream = p.event or "", self._stream(p.stream or "")
        event = self._event(name, f"{p.name} ({p.phase})")
        hop = () if self._streams_of[name] == p.stream else (self._hop,)
        stream.floors.append(Arc(event, Role.WAIT, hop, name, p.cause))

    def _hand_over(self) -> None:
        """Everything the next turn could ask for; slots that this turn did not touch pass through."""
        graph = self.graph
        kept: dict[Slot, int] = {HOST: self._host}
        for slot in self._before:
            untouched = slot.kind == "event" or slot.name not in self._streams
            if slot != HOST and untouched and not (slot.kind == "event" and slot.name in self._events):
                kept[slot] = self._slot(slot)
        for name, stream in self._streams.items():
            kept[Slot("free", name)] = stream.free
            if stream.floors:
                floor = Node("pending wait", name, -1, tuple(stream.floors), "floor")
                kept[Slot("floor", name)] = self._node(floor)
        for name, ref in self._events.items():
            kept[Slot("event", name)] = ref
        graph.outputs = kept
        graph.streams = self._streams_of


def build(turn: Turn, before: EventGraph | None = None) -> EventGraph:
    """The event graph of ``turn`` after the turn of ``before`` (None: the first turn of a run).

    Raises :class:`WaitError` when a primitive waits for an event that nothing recorded before it.
    """
    return _Builder(turn, before).build()
