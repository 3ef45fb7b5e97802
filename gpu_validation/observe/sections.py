"""Host sections: a clock read at the end of each, always on, so that measured and observed runs are the same
run.

A section is named like the operation of the step program it belongs to; its duration is the time since the
end of the section before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: ends the section of this name
Lap = Callable[[str], None]

#: name of the mark at the start of a launch; cycles are measured between these
RUN_BATCH = "run_batch"


class SectionLog:
    """(name, end in nanoseconds) of every section of a run, in order."""

    def __init__(self) -> None:
        self.laps: list[tuple[str, int]] = []

    def lap(self) -> Lap:
        """A function that appends to the log; made once, so that calling it is all it costs."""
        append, clock = self.laps.append, time.perf_counter_ns

        def lap(name: str) -> None:
            append((name, clock()))

        return lap
