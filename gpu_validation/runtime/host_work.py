"""Stands in for the rest of an engine's host work: tokeniser, prefix cache, transport, the layers of a real model
runner.

The suite's own bookkeeping is lean, so that its sections can be timed one by one; a serving engine's host does
several times as much an iteration. This work is the host thread kept busy for a fixed time. A time and not an amount
of work: what is under test is when the host waits and launches, not how fast this machine computes; the sections
around it stay real work. The calibration times it like any other section.

Meanwhile the thread walks through a table larger than a core's own caches, as an engine's host work touches megabytes
between two of its sections: these then start from the same caches after every hold, instead of from whatever the
last wait has left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HostWork:
    """Microseconds the host is busy in each iteration: on receiving, on entering the forward, on processing a
    result, and there a row.
    """

    receive_us: float = 0
    enter_us: float = 0
    process_us: float = 0
    per_row_us: float = 0

    def held_us(self, section: str, rows: int) -> float:
        """How much of a section of the loop, by name, is held work."""
        held = {
            "receive": self.receive_us,
            "enter.isolate": self.enter_us,
            "process": self.process_us + self.per_row_us * rows,
        }
        return held.get(section, 0.0)


NO_WORK = HostWork()

#: entries of the table, about 6 MiB, and of the piece that is walked between two looks at the clock, about 5 µs
_ENTRIES, _PIECE = 24_000, 100


def entries(begin: int, end: int) -> list[dict[str, Any]]:
    """What host code of an engine looks through: small dictionaries, each somewhere in memory."""
    return [{"rows": i, "name": str(i), "share": i / 7} for i in range(begin, end)]


_TABLE = [entries(begin, begin + _PIECE) for begin in range(0, _ENTRIES, _PIECE)]


class Holder:
    """Keeps the calling thread busy."""

    def __init__(self) -> None:
        self._at = 0

    def hold(self, microseconds: float) -> None:
        """For this long."""
        if not microseconds:
            return
        clock = time.perf_counter_ns
        now = clock()
        end = now + round(microseconds * 1e3)
        took = 0
        # A piece that would end too late is not begun; it takes about as long as the one before.
        while now + took < end:
            total = 0.0
            for entry in _TABLE[self._at]:
                total += entry["rows"] * entry["share"]
            self._at = (self._at + 1) % len(_TABLE)
            before, now = now, clock()
            took = now - before
        while clock() < end:
            pass
