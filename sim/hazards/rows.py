"""The rows of one launched batch: who owns each, and its column quantities at launch."""

from __future__ import annotations

from collections.abc import Sequence
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


#: columns of a request: first, end (exclusive); None, None means all of them
Span = tuple[int | None, int | None]


class Rows:
    """Rows of a batch as they were when its piece ran; requests change afterwards, so numbers are copied.

    ``groups`` name the KV slots of each request: slots are recycled in groups of one request's.
    """

    __slots__ = ("_columns", "_index", "_quantities", "allocated", "groups", "requests", "rows")

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
        self._index: dict[bool, dict[int, int]] = {}

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

    def index(self, by_slot: bool) -> dict[int, int]:
        """Row (or slot group) → position in the batch."""
        known = self._index.get(by_slot)
        if known is None:
            keys = self.groups if by_slot else self.rows
            known = self._index[by_slot] = {key: k for k, key in enumerate(keys)}
        return known


def shared_cells(a: Rows, first: Access, b: Rows, second: Access) -> list[tuple[int, int, Span]]:
    """Where two accesses by row meet: (position in a, position in b, common columns).

    Columns of a buffer addressed by slot are the request's own: between two requests that were given the same
    slots any column may meet any other.
    """
    low_first, high_first, low_second, high_second = first.low, first.high, second.low, second.high
    if a.requests is b.requests:
        if low_first is None or high_first is None or low_second is None or high_second is None:
            return [(k, k, (None, None)) for k in range(len(a.rows))]
        high_a, low_b = a.columns(high_first), b.columns(low_second)
        if not any(map(lt, low_b, high_a)):  # the usual answer: new columns lie beyond everything read
            return []
        lows = map(max, a.columns(low_first), low_b)
        highs = map(min, high_a, b.columns(high_second))
        return [
            (k, k, (low, high)) for k, (low, high) in enumerate(zip(lows, highs, strict=True)) if low < high
        ]
    out: list[tuple[int, int, Span]] = []
    index = a.index(first.by_slot)
    for key, j in b.index(first.by_slot).items():
        k = index.get(key)
        if k is None:
            continue
        same_columns = a.requests[k] is b.requests[j] or not first.by_slot
        if (
            not same_columns
            or low_first is None
            or high_first is None
            or low_second is None
            or high_second is None
        ):
            out.append((k, j, (None, None)))
            continue
        low = max(a.columns(low_first)[k], b.columns(low_second)[j])
        high = min(a.columns(high_first)[k], b.columns(high_second)[j])
        if low < high:
            out.append((k, j, (low, high)))
    return out
