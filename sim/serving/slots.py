"""Rows of the request pool. FIFO, as in the engine: a freed row is reused last (semantics 1.3)."""

from __future__ import annotations

from collections import deque


class RowPool:
    def __init__(self, size: int):
        self._free = deque(range(size))
        self.size = size

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        return self._free.popleft()

    def give_back(self, row: int) -> None:
        self._free.append(row)
