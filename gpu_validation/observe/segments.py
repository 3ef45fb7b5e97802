"""Device segments by timing events between the forward's operations, in a run made for that.

The stream is kept busy for a moment when each forward starts, so that all of it is queued before it runs: a segment
then lasts from the end of the operation before it to its own end, launch gaps of the device included, launch delays
of the host excluded. An event takes device time itself, so every other forward is timed as a whole, by its first and
last event alone; the difference says how much an event takes. The cycle of such a run means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gpu_validation.device.backend import Backend, Stream
from gpu_validation.observe.sections import Lap

#: name of the segment of a forward that is timed as a whole
WHOLE = "forward"


class SegmentLog:
    """Wraps a lap: after a section named in ``names`` an event is recorded on the forward stream.

    ``names`` are in launch order. ``start`` is the section that ends when the forward stream has been entered.
    ``hold_us``: for how long the stream is kept busy there; it must exceed the host's time to launch a forward. 0:
    as the run comes, so that a forward lasts from when it could begin.
    """

    def __init__(
        self, backend: Backend, stream: Stream, lap: Lap, names: Sequence[str], start: str, hold_us: float
    ):
        self._backend, self._stream, self._lap = backend, stream, lap
        self._names, self._last, self._start, self._hold_us = frozenset(names), names[-1], start, hold_us
        self.steps: list[list[tuple[str, Any]]] = []

    def lap(self, name: str) -> None:
        self._lap(name)
        if name == self._start:
            if self._hold_us:
                self._backend.occupy(self._hold_us)
            self.steps.append([])
            self._mark(name)
        elif self.steps and name in self._names:
            # The first forward is a prefill, of which there may be only one: always in parts.
            whole = len(self.steps) % 2 == 0
            if not whole:
                self._mark(name)
            elif name == self._last:
                self._mark(WHOLE)

    def _mark(self, name: str) -> None:
        event = self._backend.event(timing=True)
        event.record(self._stream)
        self.steps[-1].append((name, event))

    def durations_us(self) -> list[dict[str, float]]:
        """Of each step in launch order; call when the device is done."""
        out = []
        for marks in self.steps:
            out.append({name: a.elapsed_time(b) * 1e3 for (_, a), (name, b) in pairwise(marks)})
        return out
