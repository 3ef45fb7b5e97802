"""A second hazard check, slow and plain: every primitive a node, every order an edge, every pair of accesses tried.

It shares with the product only the interface it is called through. Order is reachability in an explicit graph;
cells are sets of (row, column). Its findings must be the product's, and no ordered pair may overlap in time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.program.primitives import Act, Primitive


@dataclass
class Touch:
    """One access that ran: its node, where it was issued, what it touched and when."""

    node: int
    name: str
    buffer: str
    writes: bool
    copies: bool
    iteration: int
    cells: dict[Any, tuple[int, set[int] | None]] | None  # row → (owner, columns or all)
    start: int
    end: int


class Oracle:
    def __init__(self, block_size: int):
        self.block_size = block_size
        self.reach: list[int] = []  # node → bits of the nodes it happens after
        self.host = -1  # last host node
        self.lanes: dict[str, int] = {}  # last node of each stream
        self.waits: dict[str, list[int]] = {}  # event nodes the stream's next node happens after
        self.events: dict[str, int] = {}
        self.results: dict[int, int] = {}
        self.touches: list[Touch] = []
        self.allocated: dict[int, int] = {}
        self.iteration = -1
        self.requests: Sequence[Any] = ()

    def piece(self, primitives: Sequence[Primitive]) -> tuple[Any, frozenset[int]]:
        return primitives, frozenset(i for i, p in enumerate(primitives) if p.reads or p.writes)

    def begin(self, iteration: int, requests: Sequence[Any]) -> None:
        self.iteration, self.requests = iteration, list(requests)

    def finished(self, requests: Sequence[Any]) -> None:
        pass

    def ran(self, primitives: Sequence[Primitive], times: Sequence[tuple[int, int]]) -> None:
        spans = iter(times)
        launching = any(p.act is Act.ENTER for p in primitives)
        if not launching and self.iteration in self.results:
            self.events["result_ready"] = self.results[self.iteration]
        ends: dict[int, int] = {}
        for p in primitives:
            if p.act is Act.SYNC:
                self.host = self._node(self.host, self.events[p.event or ""])
            else:
                self.host = self._node(self.host)
            node = self.host
            if p.act is Act.RECORD:
                after = [self.host, self.lanes.get(p.stream or "", -1), *self.waits.get(p.stream or "", [])]
                self.events[p.event or ""] = self._node(*after)
            elif p.act is Act.WAIT:
                self.waits.setdefault(p.stream or "", []).append(self.events[p.event or ""])
            elif p.stream is not None and p.act in (Act.LAUNCH, Act.HOST):
                node = self._node(self.host, self.lanes.get(p.stream, -1), *self.waits.pop(p.stream, []))
                self.lanes[p.stream] = node
            if p.reads or p.writes:
                start, end = next(spans)
                for writes, texts in ((False, p.reads), (True, p.writes)):
                    for text in texts:
                        cells = self._cells(text)
                        name = text.partition("[")[0]
                        if writes and name == "req_to_token" and p.phase == "prepare" and cells is not None:
                            for row in cells:
                                ends[row] = self._high(text, row)
                        self.touches.append(
                            Touch(
                                node,
                                p.name,
                                name,
                                writes,
                                p.kind == "copy",
                                self.iteration,
                                cells,
                                start,
                                end,
                            )
                        )
        if launching:
            self.allocated.update(ends)
            if "copy_done" in self.events:
                self.results[self.iteration] = self.events["copy_done"]

    def _node(self, *after: int) -> int:
        bits = 0
        for n in after:
            if n >= 0:
                bits |= self.reach[n] | 1 << n
        self.reach.append(bits)
        return len(self.reach) - 1

    def _cells(self, text: str) -> dict[Any, tuple[int, set[int] | None]] | None:
        match = re.fullmatch(r"[^\[]+\[(.*)\]", text)
        if match is None:
            return None
        out: dict[Any, tuple[int, set[int] | None]] = {}
        for request in self.requests:
            if match[1] == "rows":
                out[request.row] = (request.index, None)
                continue
            low, _, high = match[1].partition(":")
            first = self._value(low, request)
            last = self._value(high, request) if high else first + 1
            out[request.row] = (request.index, set(range(first, last)))
        return out

    def _high(self, text: str, row: int) -> int:
        request = next(r for r in self.requests if r.row == row)
        return self._value(text.partition(":")[2].rstrip("]"), request)

    def _value(self, expression: str, request: Any) -> int:
        names = {
            "seq": request.prompt_tokens + request.generated,
            "committed": request.prompt_tokens + request.seen,
            "allocated": self.allocated.get(request.row, 0),
            "prompt": request.prompt_tokens,
            "B": self.block_size,
        }
        python = re.sub(r"(\d)([a-zA-Z])", r"\1*\2", expression)
        return int(eval(python, {}, names))

    # -- what it says ------------------------------------------------------------------------------------------

    def conflicts(self) -> list[tuple[Touch, Touch, int, bool]]:
        """Pairs that touch a common cell and write: (first issued, second, cells in common, ordered)."""
        found = []
        for j, b in enumerate(self.touches):
            for a in self.touches[:j]:
                if a.buffer != b.buffer or not (a.writes or b.writes) or a.node == b.node:
                    continue
                if a.buffer.startswith("batch.") and a.iteration != b.iteration:
                    continue
                if a.cells is None or b.cells is None:
                    common = 1
                else:
                    by_slot = a.buffer.partition(".")[0] in ("kv", "draft_kv", "swa_map")
                    common = sum(
                        bool(
                            columns is None
                            or b.cells[row][1] is None
                            or columns & b.cells[row][1]
                            or (by_slot and owner != b.cells[row][0])  # the new owner's columns are others
                        )
                        for row, (owner, columns) in a.cells.items()
                        if row in b.cells
                    )
                if common:
                    found.append((a, b, common, bool(self.reach[b.node] >> a.node & 1)))
        return found

    def unordered(self) -> Counter[tuple[str, str, str, str]]:
        """(buffer, kind, first operation, second operation) → cells, as the product counts."""
        out: Counter[tuple[str, str, str, str]] = Counter()
        for a, b, common, ordered in self.conflicts():
            if ordered:
                continue
            if a.writes:
                kind = "write_after_write" if b.writes else "read_before_publish"
            else:
                kind = "reuse_before_copy" if a.copies else "write_after_read"
            out[a.buffer, kind, a.name, b.name] += common
        return out

    def overlapping_in_time(self) -> list[tuple[Touch, Touch]]:
        """Ordered pairs whose times say otherwise: there must be none."""
        return [(a, b) for a, b, _, ordered in self.conflicts() if ordered and b.start < a.end]


class Both:
    """Feeds the product's check and the oracle with the same calls."""

    def __init__(self, check: Any, oracle: Oracle):
        self.check, self.oracle = check, oracle

    def piece(self, primitives: Sequence[Primitive]) -> tuple[Any, frozenset[int]]:
        mine = self.check.piece(primitives)
        theirs, timed = self.oracle.piece(primitives)
        extra = frozenset() if mine is None else mine[1]
        return (mine, theirs, sorted(timed | extra)), timed | extra

    def ran(self, piece: Any, times: Sequence[tuple[int, int]]) -> None:
        mine, theirs, indices = piece
        by_index = dict(zip(indices, times, strict=True))
        if mine is not None:
            self.check.ran(mine[0], [by_index[i] for i in sorted(mine[1])])
        self.oracle.ran(theirs, [by_index[i] for i, p in enumerate(theirs) if p.reads or p.writes])

    def begin(self, iteration: int, requests: Sequence[Any]) -> None:
        self.check.begin(iteration, requests)
        self.oracle.begin(iteration, requests)

    def finished(self, requests: Sequence[Any]) -> None:
        self.check.finished(requests)
        self.oracle.finished(requests)
