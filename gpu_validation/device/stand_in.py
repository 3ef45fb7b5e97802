"""The device when there is none: streams and events as ordered stand-ins on the CPU.

Work is queued per stream and executed when somebody has to wait, in an order that the streams and events
allow and a :data:`Chooser` picks. Without a chooser everything runs as soon as it is enqueued, which is
always one of the allowed orders. Other choosers run streams as far ahead or behind as the events permit, so
that a missing wait shows as a wrong result instead of staying hidden behind lucky timing.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gpu_validation.device.backend import Backend
from sim.errors import WaitError

#: picks one of the streams whose next item may run
Chooser = Callable[[Sequence["StandInStream"]], "StandInStream"]


@dataclass(slots=True, eq=False)
class _Point:
    """One record of an event."""

    event: str
    stream: str
    done: bool = False
    at_ns: int = 0


@dataclass(slots=True, eq=False)
class _Work:
    function: Callable[..., object]
    args: tuple[object, ...]


@dataclass(slots=True, eq=False)
class _Wait:
    point: _Point


@dataclass(frozen=True, slots=True)
class Call:
    """One host call as the stand-in saw it, for comparing the suite's order with a step program's."""

    act: str
    stream: str
    event: str


def random_order(seed: int) -> Chooser:
    """Any stream that may run, drawn anew for each item."""
    generator = random.Random(seed)
    return lambda ready: generator.choice(ready)


def prefer(*names: str) -> Chooser:
    """The first of ``names`` that may run, else any: lets those streams run as far ahead as events permit."""
    rank = {name: i for i, name in enumerate(names)}
    return lambda ready: min(ready, key=lambda s: rank.get(s.name, len(rank)))


class StandInStream:
    def __init__(self, device: StandIn, name: str):
        self.name = name
        self._device = device
        self.queue: deque[_Work | _Wait | _Point] = deque()

    def wait_event(self, event: StandInEvent) -> None:
        self._device.note("wait", self.name, event.name)
        if event.point is not None:
            self._put(_Wait(event.point))

    def wait_stream(self, other: StandInStream) -> None:
        self._device.note("wait", self.name, f"tail:{other.name}")
        if other is not self:
            point = _Point("tail", other.name)
            other._put(point)
            self._put(_Wait(point))

    def synchronize(self) -> None:
        point = _Point("tail", self.name)
        self._put(point)
        self._device.run_until(point)

    def query(self) -> bool:
        return not self.queue

    def _put(self, item: _Work | _Wait | _Point) -> None:
        self.queue.append(item)
        self._device.enqueued()

    def ready(self) -> bool:
        if not self.queue:
            return False
        head = self.queue[0]
        return not isinstance(head, _Wait) or head.point.done

    def step(self) -> None:
        """Execute the head of the queue."""
        item = self.queue.popleft()
        if isinstance(item, _Work):
            item.function(*item.args)
        elif isinstance(item, _Point):
            item.done = True
            item.at_ns = time.perf_counter_ns()


class StandInEvent:
    def __init__(self, device: StandIn, name: str):
        self._device = device
        self.name = name
        self.point: _Point | None = None

    def record(self, stream: StandInStream) -> None:
        self._device.note("record", stream.name, self.name)
        self.point = _Point(self.name, stream.name)
        stream._put(self.point)

    def synchronize(self) -> None:
        self._device.note("synchronize", "", self.name)
        if self.point is not None:
            self._device.run_until(self.point)

    def query(self) -> bool:
        """The device goes on by itself: each look finds it one item further."""
        if self.point is None or self.point.done:
            return True
        self._device.go_on()
        return False

    def elapsed_time(self, later: StandInEvent) -> float:
        if self.point is None or later.point is None or not (self.point.done and later.point.done):
            raise WaitError(f"elapsed time between {self.name} and {later.name} before both were reached")
        return (later.point.at_ns - self.point.at_ns) / 1e6


class _Replay:
    def __init__(self, device: StandIn, function: Callable[[], object]):
        self._device, self._function = device, function

    def replay(self) -> None:
        self._device.note("graph", self._device.current.name, "")
        self._device.current._put(_Work(self._function, ()))


class StandIn(Backend):
    """``chooser`` None: program order. ``log`` collects :class:`Call` in host order when it is a list."""

    name = "cpu"
    device = torch.device("cpu")
    real = False

    def __init__(self, chooser: Chooser | None = None, log: list[Call] | None = None):
        self._chooser = chooser
        self.log = log
        self._streams: list[StandInStream] = []
        self._events = 0
        self.current = self.stream("default")

    def note(self, act: str, stream: str, event: str) -> None:
        if self.log is not None:
            self.log.append(Call(act, stream, event))

    def enqueued(self) -> None:
        """Program order runs at once; otherwise work waits until somebody needs it."""
        if self._chooser is None:
            self._run(lambda: False)

    def go_on(self) -> bool:
        """Execute one allowed item; False if there is none."""
        ready = [s for s in self._streams if s.ready()]
        if ready:
            (self._chooser(ready) if self._chooser is not None else ready[0]).step()
        return bool(ready)

    def run_until(self, point: _Point) -> None:
        """Execute allowed work until ``point`` is reached. Raises WaitError if it never can be."""
        self._run(lambda: point.done)
        if not point.done:
            raise WaitError(
                f"event {point.event} of stream {point.stream} can never be reached: "
                + "; ".join(f"{s.name} has {len(s.queue)} queued" for s in self._streams if s.queue)
            )

    def _run(self, done: Callable[[], bool]) -> None:
        while not done() and self.go_on():
            pass

    def stream(self, name: str) -> StandInStream:
        stream = StandInStream(self, name)
        self._streams.append(stream)
        return stream

    def event(self, timing: bool = False) -> StandInEvent:
        self._events += 1
        return StandInEvent(self, f"event {self._events}")

    def set_stream(self, stream: StandInStream) -> None:  # type: ignore[override]
        self.current = stream

    def launch(self, function: Callable[..., object], *args: object) -> None:
        self.note("launch", self.current.name, "")
        self.current._put(_Work(function, args))

    def copy(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        self.note("copy", self.current.name, "")
        self.current._put(_Work(destination.copy_, (source,)))

    def capture(self, function: Callable[[], object], stream: StandInStream) -> _Replay:  # type: ignore[override]
        return _Replay(self, function)

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    def synchronize(self) -> None:
        self._run(lambda: False)

    def occupy(self, microseconds: float) -> None:
        return

    def release(self) -> None:
        return
