"""How fast this machine's host runs right now, and which of its cores to run on.

The cores of a shared machine are not alike and change within seconds: a neighbour on the same physical core makes
interpreted code cost up to twice as much. A short fixed piece of such code tells; it knows nothing of the loops.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from gpu_validation.runtime.host_work import entries

Result = TypeVar("Result")

#: dictionaries the piece of work looks through, about 1 MiB: code that fits the nearest cache would not notice a
#: neighbour
_TABLE = 4000
#: timings of the piece of work on one core
_REPEATS = 7
#: how much slower than the best ever seen here a core may be before another one is looked for, and how often a run is
#: repeated because the host was slower than that at its end
LIMIT, REPEATS = 1.15, 1


class HostState:
    """Keeps the calling thread on a quiet core. ``best_us``: the lowest time of the piece of work so far."""

    def __init__(self) -> None:
        self._table = entries(0, _TABLE)
        self.cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.best_us = float("inf")
        self._chosen = False

    def now_us(self) -> float:
        """The time of the piece of work on the current core, microseconds: the median of a few."""
        clock, times = time.perf_counter_ns, []
        for _ in range(_REPEATS):
            began = clock()
            total = 0.0
            for entry in self._table:
                total += entry["rows"] * entry["share"]
            times.append(clock() - began)
        us = sorted(times)[_REPEATS // 2] / 1e3
        self.best_us = min(self.best_us, us)
        return us

    def settle(self) -> float:
        """Move to the quietest core unless this one is quiet; the time of the piece of work afterwards."""
        us = self.now_us()
        if len(self.cores) < 2 or (self._chosen and us <= LIMIT * self.best_us):
            return us
        self._chosen = True
        found = {}
        for core in self.cores:
            os.sched_setaffinity(0, {core})
            found[core] = self.now_us()
        os.sched_setaffinity(0, {min(self.cores, key=lambda core: found[core])})
        return self.now_us()

    def steadily(self, run: Callable[[], Result]) -> tuple[Result, list[float], int]:
        """``run`` on a quiet core, again if the host was slow at its end; what it returned last, the host's times
        before and after, and the number of repetitions.

        The decision looks at nothing that ``run`` measures.
        """
        repeated = 0
        while True:
            before = self.settle()
            result = run()
            after = self.now_us()
            if after <= LIMIT * self.best_us or repeated == REPEATS:
                return result, [round(before, 2), round(after, 2)], repeated
            repeated += 1
