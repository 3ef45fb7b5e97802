"""Stands in for the rest of an engine's host work: tokeniser, prefix cache, transport.

The suite's own bookkeeping is lean, so that its sections can be timed one by one; a serving engine's host
does several times as much an iteration. This work is real and of fixed size: it hashes a fixed number of KiB
(pure arithmetic in C, insensitive to memory layout), so its cost is calibrated like any other section
instead of being set.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class HostWork:
    """KiB hashed in each iteration: on receiving, on entering the forward, on processing a result, and there
    a row.
    """

    receive_kib: int = 0
    enter_kib: int = 0
    process_kib: int = 0
    per_row_kib: int = 0


NO_WORK = HostWork()

_BLOCK = bytes(range(256)) * 4 * 4096
_VIEW = memoryview(_BLOCK)


def hash_kib(kib: int) -> None:
    """Hash ``kib`` KiB (at most 4096)."""
    if kib:
        hashlib.sha256(_VIEW[: kib * 1024]).digest()
