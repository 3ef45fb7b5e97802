"""Why a stream idled, from event times alone: the last thing to arrive before each operation, and its cause.

An operation that starts at once after the one before it inherits that one's cause; a stream wait gives its own
cause or hands on what held up the event; a launch that comes late blames the synchronisation that last blocked the
host for as much idle time as the host was blocked, and launching itself for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.maxplus.graph import HOST, Arc, EventGraph, Role, Slot
from sim.maxplus.recurrence import Weighted
from sim.program.step_program import Mark
from sim.trace.record import FORWARD_LANE, HOST_LANE, Cause


@dataclass(slots=True)
class Idle:
    """What one turn of the forward stream looked like, ns."""

    by_cause: dict[Cause, int] = field(default_factory=dict)
    #: of it, ended by a launch
    exposed: int = 0
    busy: int = 0
    #: start on the device minus end of the launch, of the operation that defines the launch lead
    lead: int = 0
    #: whether that operation was launched before the stream had finished what it had
    ahead: bool = False
    #: time the host spent blocked
    blocked: int = 0


class Attribution:
    """Follows a run turn by turn; causes outlive a turn as times do."""

    def __init__(self) -> None:
        self._causes: dict[Slot, Cause] = {}
        self._host = Cause.OTHER
        #: delay of the last block that no idle time has been given to yet, ns
        self._owed = 0
        self._started = False

    def turn(self, weighted: Weighted, values: Sequence[int]) -> tuple[dict[int, tuple[int, Cause]], Idle]:
        """Start and cause of every device operation by node, and the forward stream's idle time.

        ``values`` are those of ``weighted`` for this turn (see :class:`Weighted`).
        """
        graph = weighted.graph
        causes: dict[int, Cause] = {
            -1 - i: self._causes.get(slot, Cause.LAUNCH_LAG) for i, slot in enumerate(graph.slots)
        }
        found: dict[int, tuple[int, Cause]] = {}
        idle = Idle()
        marked = marked_launch(graph)
        for j, node in enumerate(graph.nodes):
            if node.lane == HOST_LANE:
                if node.sync is not None:
                    self._synchronised(weighted, values, j, causes, idle)
                continue
            arc = _binding(weighted, values, j)
            causes[j] = self._cause(arc, causes)
            if node.act != "device":
                continue
            runs = sum(weighted.durations[t] for t in node.arcs[1].terms)
            start, before = weighted.time(values, j) - runs, weighted.time(values, node.arcs[1].source)
            found[j] = (start, causes[j])
            if node.lane == FORWARD_LANE:
                self._count(idle, arc, start - before, runs, causes[j])
            if j == marked:
                issued = weighted.time(values, node.arcs[0].source)
                idle.lead, idle.ahead = start - issued, issued < before
        self._causes = {
            slot: causes[ref] for slot, ref in graph.outputs.items() if slot != HOST and ref in causes
        }
        return found, idle

    def _synchronised(
        self, weighted: Weighted, values: Sequence[int], j: int, causes: dict[int, Cause], idle: Idle
    ) -> None:
        """A host that had to wait passes on why."""
        arrived, event = weighted.graph.nodes[j].arcs
        late = weighted.time(values, event.source) - weighted.time(values, arrived.source)
        if late > 0:
            idle.blocked += late
            self._host = event.cause or causes[event.source]
            self._owed = weighted.time(values, j) - weighted.time(values, arrived.source)

    def _cause(self, arc: Arc, causes: dict[int, Cause]) -> Cause:
        if arc.role is Role.LAUNCH:
            return arc.cause or (self._host if self._owed else Cause.LAUNCH_LAG)
        if arc.role is Role.WAIT:
            return arc.cause or causes[arc.source]
        return causes[arc.source]

    def _count(self, idle: Idle, arc: Arc, gap: int, runs: int, cause: Cause) -> None:
        idle.busy += runs
        if gap > 0 and self._started:
            if arc.role is Role.LAUNCH:
                idle.exposed += gap
                if arc.cause is None and self._owed:
                    owed = min(gap, self._owed)
                    self._owed -= owed
                    idle.by_cause[cause] = idle.by_cause.get(cause, 0) + owed
                    gap, cause = gap - owed, Cause.LAUNCH_LAG
            if gap:
                idle.by_cause[cause] = idle.by_cause.get(cause, 0) + gap
        self._started = True


def _binding(weighted: Weighted, values: Sequence[int], j: int) -> Arc:
    """The arc that arrives last. Of equal ones the stream's own order counts first, then the launch, then waits in
    their order."""
    arcs = weighted.graph.nodes[j].arcs
    times = [weighted.time(values, a.source) + sum(weighted.durations[t] for t in a.terms) for a in arcs]
    last = [arc for arc, t in zip(arcs, times, strict=True) if t == max(times)]
    return next((arc for arc in last if arc.role in (Role.ORDER, Role.MARK)), last[0])


def marked_launch(graph: EventGraph) -> int:
    """The node whose lead is the launch lead: the draft, else the target, else the first forward operation."""
    launches = [j for j, node in enumerate(graph.nodes) if node.act == "device"]
    for wanted in (Mark.DRAFT, Mark.TARGET):
        for j in launches:
            if wanted in graph.turn.primitives[graph.nodes[j].primitive].marks:
                return j
    return next((j for j in launches if graph.nodes[j].lane == FORWARD_LANE), -1)
