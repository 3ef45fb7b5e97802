"""The hazard check of one run: fed by the machine and the loop, read once at the end.

Memory is bounded: the last pieces with their rows and times (at most :data:`~sim.hazards.order.HORIZON`), and one
finding a kind of conflict between two named operations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sim.hazards.order import HORIZON, HazardKind, Operation, Order, Piece, Unordered
from sim.hazards.rows import Request, Rows, Span, shared_cells
from sim.hazards.rules import EXPLANATIONS, Reason, Severity, judge
from sim.program.buffers import Access
from sim.program.primitives import Primitive
from sim.units import NS_PER_US


class Cell(NamedTuple):
    """Where two accesses by row met: for whom each acted, the row and its common columns."""

    first: Request
    second: Request
    row: int
    columns: Span


class Occurrence(NamedTuple):
    """One meeting of a finding's operations, times in ns. ``margin``: from the end of the first to the start of
    the second; below zero they overlapped or came in the wrong order."""

    margin: int
    iterations: tuple[int, int]
    times: tuple[tuple[int, int], tuple[int, int]]
    cell: Cell | None


@dataclass(slots=True)
class Finding:
    """One kind of conflict between two operations of a program, the first of which was issued first."""

    buffer: str
    kind: HazardKind
    severity: Severity
    reason: Reason
    operations: tuple[Operation, Operation]
    #: the meeting with the smallest margin
    worst: Occurrence
    #: how often the two met unordered, and how often their times did not keep the order of issue
    count: int = 0
    realised: int = 0

    def to_json(self) -> dict[str, Any]:
        """The finding as results carry it; ``first`` and ``second`` describe the meeting with the smallest margin."""
        cell = self.worst.cell
        sides = []
        for k, op in enumerate(self.operations):
            start, end = self.worst.times[k]
            sides.append(
                {
                    "operation": op.name,
                    "lane": op.lane,
                    "iteration": self.worst.iterations[k],
                    "request": None if cell is None else (cell.first, cell.second)[k].index,
                    "start_us": round(start / NS_PER_US, 3),
                    "end_us": round(end / NS_PER_US, 3),
                }
            )
        return {
            "buffer": self.buffer,
            "kind": str(self.kind),
            "severity": str(self.severity),
            "count": self.count,
            "realised": self.realised,
            "margin_us": round(self.worst.margin / NS_PER_US, 3),
            "reason": str(self.reason),
            "explanation": EXPLANATIONS[self.reason],
            "first": sides[0],
            "second": sides[1],
            "row": None if cell is None else cell.row,
            "columns": None if cell is None or cell.columns[0] is None else list(cell.columns),
        }


class Ran(NamedTuple):
    """A piece that ran: its operations' times (start, end) in ns, in their order, and its rows."""

    piece: Piece
    iteration: int
    rows: Rows | None
    times: Sequence[tuple[int, int]]


class HazardCheck:
    """Watches one run. ``waits_for_read_done``: the barrier relies on the program's ``read_done``.

    ``rows``, ``page_size``: of the request pool and the KV allocator. The allocator hands slots out in the order
    they were freed, or, paged, the last freed first (semantics 1.3); the check recycles them a request at a time
    and has as many groups as rows, the least an engine can have.
    """

    def __init__(self, block_size: int, rows: int, page_size: int, waits_for_read_done: bool):
        self.findings: dict[tuple[Any, ...], Finding] = {}
        #: told of every meeting, for those who want more than the worst of each finding
        self.on_meeting: Callable[[Finding, Occurrence], None] | None = None
        self._block_size = block_size
        self._waits_for_read_done = waits_for_read_done
        self._order = Order()
        self._state = 0
        self._recent: deque[Ran] = deque(maxlen=HORIZON + 2)
        self._allocated = [0] * rows
        self._slots = Slots(rows) if page_size > 1 else None
        self._requests: Sequence[Request] = ()
        self._iteration = -1
        #: of the last launch: its rows, and where its preparation's writes end
        self._last: Rows | None = None
        self._last_ends: list[int] | None = None

    # -- fed by the machine and the loop ---------------------------------------------------------------------

    def piece(self, primitives: Sequence[Primitive]) -> tuple[Piece, frozenset[int]] | None:
        """See :meth:`Order.piece`; asked once a compiled step."""
        return self._order.piece(primitives)

    def begin(self, iteration: int, requests: Sequence[Request]) -> None:
        """The next piece belongs to this iteration and batch."""
        self._iteration = iteration
        self._requests = requests

    def ran(self, piece: Piece, times: Sequence[tuple[int, int]]) -> None:
        """A piece ran; before the loop looks at what it did to the requests."""
        state, unordered, late = self._order.step(self._state, piece)
        self._state = state
        ran = Ran(piece, self._iteration, self._snapshot(piece) if piece.by_row else None, times)
        self._recent.append(ran)
        for pair in unordered:
            self._meet(pair, self._recent[-1 - pair.age], ran)
        for k in late:
            self._delayed(ran, k)

    def finished(self, requests: Iterable[Request]) -> None:
        """The host saw these requests finish: their rows and slots are free."""
        if self._slots is not None:
            for request in requests:
                self._slots.free(request)

    # -- evaluation --------------------------------------------------------------------------------------------

    def _snapshot(self, piece: Piece) -> Rows:
        requests, last = self._requests, self._last
        if last is not None and last.requests is requests:
            rows, groups = last.rows, last.groups
            allocated = self._last_ends or last.allocated
        else:
            if last is not None and self._last_ends is not None:
                for row, end in zip(last.rows, self._last_ends, strict=True):
                    self._allocated[row] = end
            rows = [r.row for r in requests]
            groups = rows if self._slots is None else [self._slots.group(r) for r in requests]
            allocated = [self._allocated[row] for row in rows]
        snapshot = Rows(requests, rows, groups, allocated, self._block_size)
        if piece.launches:
            self._last = snapshot
            self._last_ends = None if piece.allocates_to is None else snapshot.columns(piece.allocates_to)
        return snapshot

    def _meet(self, pair: Unordered, earlier: Ran, later: Ran) -> None:
        """Books every cell where the accesses of two unordered operations meet."""
        for a, b, kind in pair.conflicts:
            if a.fresh and earlier.iteration != later.iteration:
                continue
            mine, other = earlier.rows, later.rows
            if not (a.by_row and b.by_row and mine is not None and other is not None):
                self._add(kind, pair, earlier, later, a, None)
                continue
            for i, j, columns in shared_cells(mine, a, other, b):
                cell = Cell(mine.requests[i], other.requests[j], other.rows[j], columns)
                self._add(kind, pair, earlier, later, a, cell)

    def _delayed(self, ran: Ran, k: int) -> None:
        op, (reached, resumed) = ran.piece.operations[k], ran.times[k]
        place = Occurrence(
            reached - resumed, (ran.iteration, ran.iteration), (ran.times[k], ran.times[k]), None
        )
        self._count(HazardKind.LATE_EVENT, op.event, (op, op), Severity.BENIGN, Reason.DELAYED_ONLY, place)

    def _add(
        self, kind: HazardKind, pair: Unordered, earlier: Ran, later: Ran, access: Access, cell: Cell | None
    ) -> None:
        first, second = earlier.piece.operations[pair.first], later.piece.operations[pair.second]
        same_owner = cell is None or cell.first is cell.second
        severity, reason = judge(kind, first, second, access, same_owner, self._waits_for_read_done)
        times = earlier.times[pair.first], later.times[pair.second]
        place = Occurrence(times[1][0] - times[0][1], (earlier.iteration, later.iteration), times, cell)
        self._count(kind, access.buffer, (first, second), severity, reason, place)

    def _count(
        self,
        kind: HazardKind,
        buffer: str,
        operations: tuple[Operation, Operation],
        severity: Severity,
        reason: Reason,
        place: Occurrence,
    ) -> None:
        key = (kind, buffer, operations[0].number, operations[1].number, reason)
        finding = self.findings.get(key)
        if finding is None:
            finding = self.findings[key] = Finding(buffer, kind, severity, reason, operations, place)
        finding.count += 1
        finding.realised += place.margin < 0
        if place.margin < finding.worst.margin:
            finding.worst = place
        if self.on_meeting is not None:
            self.on_meeting(finding, place)


class Slots:
    """KV slots in groups of one request each, the last freed group first."""

    def __init__(self, groups: int):
        self._free = list(range(groups))[::-1]
        self._of: dict[int, int] = {}
        self._owner: dict[int, int] = {}

    def group(self, request: Request) -> int:
        group = self._of.get(request.index)
        if group is None:
            group = self._of[request.index] = self._free.pop()
            former = self._owner.get(group)
            if former is not None:
                del self._of[former]
            self._owner[group] = request.index
        return group

    def free(self, request: Request) -> None:
        self._free.append(self._of[request.index])


def merged(checks: Iterable[HazardCheck]) -> list[dict[str, Any]]:
    """The findings of several runs of one program as the result lists them: harmful first, then by count.

    Operations of one name and lane are one here, as when a decode and a prefill end with the same.
    """
    total: dict[tuple[Any, ...], Finding] = {}
    for check in checks:
        for finding in check.findings.values():
            names = tuple((op.name, op.lane) for op in finding.operations)
            key = (finding.kind, finding.buffer, names, finding.reason)
            known = total.get(key)
            if known is None:
                total[key] = replace(finding)
                continue
            known.count += finding.count
            known.realised += finding.realised
            known.worst = min(known.worst, finding.worst, key=lambda w: w.margin)
    listed = [finding.to_json() for finding in total.values()]
    return sorted(
        listed,
        key=lambda f: (
            f["severity"] != Severity.HARMFUL,
            -f["count"],
            f["buffer"],
            f["first"]["operation"],
            f["second"]["operation"],
            f["reason"],
        ),
    )
