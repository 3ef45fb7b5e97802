"""Stands in for the rest of an engine's host work: tokeniser, prefix cache, transport, the layers of a real model
runner.

The suite's own bookkeeping is lean, so that its sections can be timed one by one; a serving engine's host does
several times as much an iteration. This work is the host thread kept busy for a fixed time. A time and not an amount
of work: what is under test is when the host waits and launches, not how fast this machine computes; the sections
around it stay real work. The calibration times it like any other section.

What it does meanwhile is a fixed piece of interpreted code over and over, and how long the pieces take says how
fast the host is at this moment: its *pace*. A neighbour on the same physical core doubles it, for interpreted code
here and in the sections around alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class HostWork:
    """Microseconds the host is busy in each iteration: on receiving, on entering the forward, on processing a
    result, and there a row.
    """

    receive_us: float = 0
    enter_us: float = 0
    process_us: float = 0
    per_row_us: float = 0


NO_WORK = HostWork()


class Held(NamedTuple):
    """Pieces of work done, and the nanoseconds they took."""

    pieces: int
    busy_ns: int


#: what the pieces look through, about half a MiB: code that fits the nearest cache would not notice a neighbour
_ENTRIES, _PIECES = 2000, 20
_TABLE = [
    [{"rows": i, "name": str(i), "share": i / 7} for i in range(begin, begin + _ENTRIES // _PIECES)]
    for begin in range(0, _ENTRIES, _ENTRIES // _PIECES)
]


def pace_ns(*held: Held) -> int:
    """Nanoseconds a walk through the whole table takes at the pace of what was held; 0 where nothing was.

    80 to 100 µs on a quiet core of the machines this was written on.
    """
    pieces = sum(h.pieces for h in held)
    return round(sum(h.busy_ns for h in held) / pieces * _PIECES) if pieces else 0


class Holder:
    """Keeps the calling thread busy, and remembers what that said about its pace."""

    def __init__(self) -> None:
        self._at = 0
        self._pieces = self._busy_ns = 0

    def hold(self, microseconds: float) -> None:
        """Keep the calling thread busy for this long."""
        if not microseconds:
            return
        clock = time.perf_counter_ns
        began = now = clock()
        end = began + round(microseconds * 1e3)
        took = pieces = 0
        # A piece that would end too late is not begun; it takes about as long as the one before.
        while now + took < end:
            total = 0.0
            for entry in _TABLE[self._at]:
                total += entry["rows"] * entry["share"]  # type: ignore[operator]
            self._at = (self._at + 1) % _PIECES
            before, now = now, clock()
            took = now - before
            pieces += 1
        self._pieces += pieces
        self._busy_ns += now - began
        while clock() < end:
            pass

    def taken(self) -> Held:
        """What was held since the last call."""
        found = Held(self._pieces, self._busy_ns)
        self._pieces = self._busy_ns = 0
        return found
