"""How fast the language and the library are alone: what no model written on them can exceed."""

from __future__ import annotations

from collections.abc import Generator

import simpy


def bare_simpy(events: int) -> int:
    """A SimPy process that does nothing but sleep ``events`` times."""
    environment = simpy.Environment()

    def sleeper() -> Generator[simpy.Event, None, None]:
        for _ in range(events):
            yield environment.timeout(1)

    environment.process(sleeper())
    environment.run()
    return events


def bare_python(operations: int, times: int) -> int:
    """A loop that unpacks, adds and compares once an operation; ``times`` over a list of ``operations``."""
    code = [(i % 7, i % 3) for i in range(operations)]
    now = free = 0
    for _ in range(times):
        for launch, run in code:
            now += launch
            free = (now if now > free else free) + run
    return operations * times
