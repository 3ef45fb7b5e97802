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


def hold(microseconds: float) -> None:
    """Keep the calling thread busy for this long."""
    if microseconds:
        clock = time.perf_counter_ns
        end = clock() + round(microseconds * 1e3)
        while clock() < end:
            pass
