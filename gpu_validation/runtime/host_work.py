"""Stands in for the rest of an engine's host work: tokeniser, prefix cache, transport.

The suite's own bookkeeping is lean, so that its sections can be timed one by one; a serving engine's host does
several times as much an iteration. This work is the host thread kept busy for a fixed time. A time and not an amount
of work: what is under test is when the host waits and launches, not how fast this machine computes; the sections
around it stay real work. The calibration times it like any other section.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


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

#: what :class:`Pace` looks through, about half a MiB: code that fits the nearest cache would not notice a neighbour
_TABLE = [{"rows": i, "name": str(i), "share": i / 7} for i in range(2000)]
#: held work shorter than this leaves the pace alone
PACED_US = 500.0


def hold(microseconds: float) -> int:
    """Keep the calling thread busy for this long; nanoseconds that a fixed piece of interpreted code took meanwhile.

    The piece takes 80 µs on a quiet core and up to twice as long beside a busy neighbour, in either case less than
    what is held: it tells how fast the host is at this moment without making an iteration longer. 0 in short holds.
    """
    if not microseconds:
        return 0
    clock = time.perf_counter_ns
    began = clock()
    end = began + round(microseconds * 1e3)
    pace = 0
    if microseconds >= PACED_US:
        total = 0.0
        for entry in _TABLE:
            total += entry["rows"] * entry["share"]  # type: ignore[operator]
        pace = clock() - began
    while clock() < end:
        pass
    return pace
