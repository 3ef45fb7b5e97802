"""One folded trace read through its template: operations with their traced host time and device duration."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.ingest.deflate import EMPTY, Stretch, call_of, gap_of
from sim.ingest.iterations import Entry, TracedProgram
from sim.ingest.kineto import CallKind
from sim.ingest.template import Row, Template, align
from sim.program.step_program import Kind, Phase, StreamName

#: a launch whose kernel starts at least this long (µs) after it was queued behind other work
QUEUED = 20.0
#: gap (µs) between back-to-back kernels of one stream, for those that were not queued (median of the queued ones)
KERNEL_GAP = 1.3
#: a longer gap (µs) to the next kernel is idle time, not pitch
LONGEST_GAP = 10.0


@dataclass
class Piece:
    """One operation of one trace. ``host``: traced time and counts; ``device``: µs of its stream."""

    name: str
    phase: Phase
    section: str
    kind: Kind
    row: Row | None
    host: Stretch = EMPTY
    device: float = 0.0
    #: graph launch calls, whose unprofiled cost is a primitive, and their traced time (µs)
    graph_calls: int = 0
    graph_time: float = 0.0
    nodes: int = 0
    activity: str = ""
    stream: tuple[int, int] = (-1, -1)


@dataclass
class Pieces:
    traced: TracedProgram
    template: Template
    pieces: dict[str, Piece] = field(default_factory=dict)
    #: time and counts of what policies insert, by section
    policy: dict[str, Stretch] = field(default_factory=dict)
    policy_device: dict[str, float] = field(default_factory=dict)
    #: sections with a host wait that a policy inserts
    waits: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    #: waits whose stream a `cuda_sync` event states: operation → whether the program says the same
    confirmed: dict[str, bool] = field(default_factory=dict)
    #: the template row of each entry
    rows: list[Row | None] = field(default_factory=list)

    def span(self, name: str) -> float:
        """Device span of an operation without the gap after it (µs)."""
        row = self.pieces[name].row
        return next(e.span for e, r in zip(self.traced.entries, self.rows, strict=True) if r is row)

    def section(self, name: str) -> Stretch:
        """Traced host time of the program's operations of a section."""
        return sum((p.host for p in self.pieces.values() if p.section == name), EMPTY)


def device_time(entry: Entry, named: bool) -> float:
    """Duration on its stream with the gap to a kernel queued behind it folded in (µs); named traces have no gaps."""
    if named:
        return entry.span
    gap = entry.pitch - entry.span
    return entry.pitch if entry.lag > QUEUED and -5.0 < gap < LONGEST_GAP else entry.span + KERNEL_GAP


def read(traced: TracedProgram, template: Template) -> Pieces:
    """Assigns every entry to an operation, to a policy, or folds it into the operation that follows."""
    rows = align(template, [(e.kind, e.label) for e in traced.entries])
    out = Pieces(traced, template, rows=rows)
    named = traced.trace.named
    carried, carried_device = EMPTY, 0.0
    for entry, row in zip(traced.entries, rows, strict=True):
        gap, call = gap_of(entry), call_of(entry)
        if row is None and named and entry.kind not in ("open", "close"):
            # Operations that the program does not list are those that policies insert.
            out.policy[entry.label] = out.policy.get(entry.label, EMPTY) + gap + call
            if entry.nodes:
                out.policy_device[entry.label] = device_time(entry, named)
            continue
        if row is None or row.role == "fold":
            carried += gap + call
            if entry.nodes:
                carried_device += device_time(entry, named)
                out.folded.append(entry.label)
            continue
        if row.before:
            before = _piece(
                out, row.before, row.before_phase or row.phase, row.before_section, Kind.HOST, None
            )
            before.host += carried + gap
            carried, gap = EMPTY, EMPTY
        if row.role == "policy":
            # Its gap is the policy's own host work (a stream switch, the Python of the call).
            out.policy[row.section] = out.policy.get(row.section, EMPTY) + gap + call
            if entry.kind == CallKind.SYNCHRONIZE:
                out.waits.append(row.section)
            if entry.nodes:
                out.policy_device[row.section] = device_time(entry, named)
            continue
        piece = _piece(out, row.name, row.phase, row.section, row.operation, row)
        piece.host += carried + gap + call
        piece.device += carried_device + (device_time(entry, named) if entry.nodes else 0.0)
        piece.nodes, piece.activity, piece.stream = entry.nodes, entry.activity, entry.stream
        if entry.kind is CallKind.GRAPH:
            back_to_back = not named and entry.pitch - entry.span < LONGEST_GAP
            piece.device = carried_device + (entry.pitch if back_to_back else entry.span)
            piece.graph_calls += 1
            piece.graph_time += entry.call
        carried, carried_device = EMPTY, 0.0
    out.confirmed = _confirmed(out)
    return out


def _confirmed(out: Pieces) -> dict[str, bool]:
    """Compares what the trace says of waits with what the program says, for streams that carry work."""
    lanes: dict[StreamName, int] = {}
    planned = any(r is not None and r.on is StreamName.PLAN for r in out.rows)
    for entry, row in zip(out.traced.entries, out.rows, strict=True):
        if entry.nodes and row is not None and row.stream is not None:
            role = StreamName.SCHEDULE if row.stream is StreamName.PREP and not planned else row.stream
            lanes.setdefault(role, entry.stream[1])
    return {
        row.name: lanes[row.on] == entry.waits_on
        for entry, row in zip(out.traced.entries, out.rows, strict=True)
        if entry.waits_on >= 0 and row is not None and row.on in lanes and row.name
    }


def _piece(out: Pieces, name: str, phase: Phase, section: str, kind: Kind, row: Row | None) -> Piece:
    return out.pieces.setdefault(name, Piece(name, phase, section, kind, row))
