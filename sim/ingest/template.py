"""What an engine's decode iteration looks like in a trace, entry by entry, and what each entry means.

A trace shows calls and kernels; names of operations, their phases, what they read, and which record a wait refers
to come from here. A template is matched to the trace as a longest common subsequence: entries it does not know
are folded into the operation that follows, rows that the trace lacks are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sim.capabilities import Capabilities
from sim.config.profile import Cost
from sim.program.step_program import Kind, Mark, Operation, Phase, Speculation, StreamName

Role = Literal["keep", "policy", "fold"]


@dataclass(frozen=True)
class Row:
    """One expected entry.

    ``kind`` and ``pattern`` select it (kind of the call or open/close; pattern searched in the kernel's or the
    annotation's name). ``role``: keep it as an operation, drop it because a policy inserts it, or fold its time
    into the operation that follows. ``before`` names a host operation for the gap in front of the entry, of
    phase ``before_phase``; without it the gap belongs to the entry's own operation.
    """

    kind: str
    pattern: str
    role: Role
    name: str = ""
    phase: Phase = Phase.FORWARD
    section: str = ""
    operation: Kind = Kind.KERNEL
    stream: StreamName | None = None
    cost: str | None = None
    event: str | None = None
    on: StreamName | None = None
    when: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    direction: Literal["h2d", "d2h", "d2d"] | None = None
    before: str = ""
    before_phase: Phase | None = None
    before_section: str = ""

    def matches(self, kind: str, label: str) -> bool:
        return self.kind == kind and re.search(self.pattern, label) is not None


@dataclass(frozen=True)
class Template:
    """An engine's decode iteration as its traces show it, and what traces do not show of its program."""

    algorithm: str
    engine: str
    #: names this release's own costs
    label: str
    description: str
    #: rows in trace order
    rows: tuple[Row, ...]
    capabilities: Capabilities
    speculation: Speculation
    admission_min_free: Literal["refill_batching"] | int
    #: operations of iterations in which the batch changes; they follow batch selection
    changed: tuple[Operation, ...]
    #: operations only some configurations have: name of the operation they precede → operation
    optional: dict[str, Operation]
    prefill: tuple[Operation, ...]
    #: host µs of the bound on lengths that this release computes itself and the policy `bound` inserts; 0 if none
    bound_us: float
    #: costs of operations that no trace of decode iterations shows
    assumed: dict[str, Cost]

    @property
    def target(self) -> str:
        """Name of the target graph's cost."""
        row = self.marked(Mark.TARGET)
        assert row is not None
        assert row.cost is not None
        return row.cost

    def marked(self, mark: Mark) -> Row | None:
        """The row with ``mark``."""
        return next((r for r in self.rows if mark in r.marks), None)


#: how telling an entry is: many records look alike (freed memory records events too), few launches do
_WEIGHT = {"record": 1, "wait": 2}
_TELLING = 4


def align(template: Template, entries: list[tuple[str, str]]) -> list[Row | None]:
    """The row each (kind, label) entry stands for, or None: the heaviest common subsequence."""
    rows = template.rows
    n, m = len(entries), len(rows)
    weight = [_WEIGHT.get(kind, _TELLING) for kind, _ in entries]
    best = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            skip = max(best[i + 1][j], best[i][j + 1])
            hit = weight[i] + best[i + 1][j + 1] if rows[j].matches(*entries[i]) else 0
            best[i][j] = max(skip, hit)
    found: list[Row | None] = []
    i = j = 0
    while i < n:
        if j < m and rows[j].matches(*entries[i]) and best[i][j] == weight[i] + best[i + 1][j + 1]:
            found.append(rows[j])
            i, j = i + 1, j + 1
        elif j < m and best[i][j + 1] >= best[i + 1][j]:
            j += 1
        else:
            found.append(None)
            i += 1
    return found


def coverage(template: Template, entries: list[tuple[str, str]]) -> float:
    """Share of the entries with device work that the template knows; picks the template of a trace."""
    busy = [kind in ("launch", "graph", "copy") for kind, _ in entries]
    known = [row is not None for row in align(template, entries)]
    return sum(k for b, k in zip(busy, known, strict=True) if b) / max(1, sum(busy))


def recall(template: Template, entries: list[tuple[str, str]]) -> float:
    """Share of the template's rows that the entries have; for traces whose entries are named."""
    return sum(row is not None for row in align(template, entries)) / max(1, len(template.rows))
