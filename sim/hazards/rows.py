"""The rows of one launched batch: who owns each, and its column quantities at launch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from operator import lt
from typing import Protocol

from sim.program.buffers import Access, Column


class Request(Protocol):
    """What the check reads of a request."""

    index: int
    row: int
    prompt_tokens: int
    generated: int
    seen: int


_SERIALS = count()
#: columns of a request: first, end (exclusive); None, None means all of them
Span = tuple[int | None, int | None]


class Rows:
    """Rows of a batch as they were when its piece ran; requests change afterwards, so numbers are copied.

    ``groups`` name the KV slots of each request: slots are recycled in groups of one request's.
    """

    __slots__ = ("_columns", "_common", "_quantities", "allocated", "groups", "requests", "rows", "serial")

    def __init__(
        self,
        requests: Sequence[Request],
        rows: list[int],
        groups: list[int],
        allocated: list[int],
        block_size: int,
    ):
        self.requests = requests
        self.rows = rows
        self.groups = groups
        self.allocated = allocated
        seq = [r.prompt_tokens + r.generated for r in requests]
        committed = [r.prompt_tokens + r.seen for r in requests]
        self._quantities: dict[str, list[int] | int] = {
            "seq": seq,
            "committed": committed,
            "allocated": allocated,
            "B": block_size,
        }
        self._columns: dict[Column, list[int]] = {}
        self.serial = next(_SERIALS)
        #: by slot or by row: the serial of the rows last compared with (not the rows: they must be free to go),
        #: and where they meet these
        self._common: dict[bool, tuple[int, list[tuple[int, int]]]] = {}

    def columns(self, column: Column) -> list[int]:
        """The value of ``column`` for each row."""
        known = self._columns.get(column)
        if known is not None:
            return known
        total = column.constant
        vectors: list[tuple[list[int], int]] = []
        for name, factor in column.terms:
            quantity = self._quantity(name)
            if isinstance(quantity, int):
                total += quantity * factor
            else:
                vectors.append((quantity, factor))
        if not vectors:
            values = [total] * len(self.rows)
        elif len(vectors) == 1 and vectors[0][1] == 1:
            values = [v + total for v in vectors[0][0]] if total else vectors[0][0]
        else:
            values = [total + sum(v[k] * f for v, f in vectors) for k in range(len(self.rows))]
        self._columns[column] = values
        return values

    def _quantity(self, name: str) -> list[int] | int:
        if name == "prompt" and "prompt" not in self._quantities:
            self._quantities["prompt"] = [r.prompt_tokens for r in self.requests]
        return self._quantities[name]

    def common(self, other: Rows, by_slot: bool) -> list[tuple[int, int]]:
        """(position in ``other``, position here) of every row, or slot group, that both have."""
        known = self._common.get(by_slot)
        if known is None or known[0] != other.serial:
            mine, theirs = (self.groups, other.groups) if by_slot else (self.rows, other.rows)
            at = {key: k for k, key in enumerate(theirs)}
            known = other.serial, [(at[key], j) for j, key in enumerate(mine) if key in at]
            self._common[by_slot] = known
        return known[1]


def shared_cells(a: Rows, first: Access, b: Rows, second: Access) -> list[tuple[int, int, Span]]:
    """Where two accesses by row meet: (position in a, position in b, common columns).

    Columns of a buffer addressed by slot are the request's own: between two requests that were given the same
    slots any column may meet any other.
    """
    aligned = a.requests is b.requests
    if first.low is None or first.high is None or second.low is None or second.high is None:
        pairs = [(k, k) for k in range(len(a.rows))] if aligned else b.common(a, first.by_slot)
        return [(k, j, (None, None)) for k, j in pairs]
    high_a, low_b = a.columns(first.high), b.columns(second.low)
    if aligned:
        if not any(map(lt, low_b, high_a)):  # the usual answer: new columns lie beyond all that is read
            return []
        pairs = [(k, k) for k in range(len(a.rows))]
    else:
        pairs = b.common(a, first.by_slot)
    low_a, high_b = a.columns(first.low), b.columns(second.high)
    out: list[tuple[int, int, Span]] = []
    if first.by_slot and not aligned:
        others = [(k, j) for k, j in pairs if a.requests[k] is not b.requests[j]]
        out += [(k, j, (None, None)) for k, j in others]
        pairs = [(k, j) for k, j in pairs if a.requests[k] is b.requests[j]]
    for k, j in pairs:
        if low_b[j] < high_a[k] and low_a[k] < high_b[j]:
            low, high = max(low_a[k], low_b[j]), min(high_a[k], high_b[j])
            if low < high:
                out.append((k, j, (low, high)))
    return out
