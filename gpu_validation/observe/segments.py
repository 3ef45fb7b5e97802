"""Device segments by timing events between the forward's operations, in a run made for that.

The stream is kept busy for a moment when each forward starts, so that all of it is queued before it runs: a segment
then lasts from the end of the operation before it to its own end, launch gaps of the device included, launch delays
of the host excluded. The cycle of such a run means nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from gpu_validation.device.backend import Backend, Stream
from gpu_validation.observe.sections import Lap


class SegmentLog:
    """Wraps a lap: after a section named in ``names`` an event is recorded on the forward stream.

    ``start`` is the section that ends when the forward stream has been entered. ``hold_us``: for how long the stream
    is kept busy there; it must exceed the host's time to launch a forward.
    """

    def __init__(
        self, backend: Backend, stream: Stream, lap: Lap, names: frozenset[str], start: str, hold_us: float
    ):
        self._backend, self._stream, self._lap = backend, stream, lap
        self._names, self._start, self._hold_us = names, start, hold_us
        self.steps: list[list[tuple[str, Any]]] = []

    def lap(self, name: str) -> None:
        self._lap(name)
        if name == self._start:
            self._backend.occupy(self._hold_us)
            self.steps.append([])
            self._mark(name)
        elif name in self._names and self.steps:
            self._mark(name)

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
