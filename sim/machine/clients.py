"""Who sends requests: closed-loop client slots or an open-loop arrival stream, as SimPy processes.

They know nothing of requests but an index; the loop's inbox is a list and an event that fires on arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import simpy


class Inbox:
    """Indices of submitted requests in arrival order, with an event for a host that has nothing else to do."""

    def __init__(self, env: simpy.Environment):
        self._env = env
        self._items: list[tuple[int, int]] = []
        self._arrival = env.event()
        self.open_sources = 0

    def put(self, index: int) -> None:
        self._items.append((index, int(self._env.now)))
        if not self._arrival.triggered:
            self._arrival.succeed()

    def take_all(self) -> list[tuple[int, int]]:
        """(request index, arrival time in ns) of everything that arrived since the last call."""
        items, self._items = self._items, []
        return items

    def arrival(self) -> simpy.Event:
        """An event that fires as soon as something is in the inbox."""
        if self._items:
            return self._env.timeout(0)
        if self._arrival.triggered:
            self._arrival = self._env.event()
        return self._arrival

    def close_source(self) -> None:
        """A source sends nothing more; the last one wakes a host that would otherwise wait for ever."""
        self.open_sources -= 1
        if self.open_sources == 0 and not self._arrival.triggered:
            self._arrival.succeed()

    @property
    def exhausted(self) -> bool:
        return not self._items and self.open_sources == 0


def closed_loop(
    env: simpy.Environment,
    inbox: Inbox,
    indices: Iterator[int],
    completion: Callable[[int], simpy.Event],
    delay_ns: int,
) -> Generator[simpy.Event, None, None]:
    """One client slot: sends a request, waits for its completion, thinks for ``delay_ns``, sends the next."""
    inbox.open_sources += 1
    for index in indices:
        done = completion(index)
        inbox.put(index)
        yield done
        if delay_ns:
            yield env.timeout(delay_ns)
    inbox.close_source()


def open_loop(
    env: simpy.Environment, inbox: Inbox, gaps_ns: Iterator[tuple[int, int]]
) -> Generator[simpy.Event, None, None]:
    """Sends request ``index`` after each gap, whatever the engine does."""
    inbox.open_sources += 1
    for index, gap in gaps_ns:
        yield env.timeout(gap)
        inbox.put(index)
    inbox.close_source()
