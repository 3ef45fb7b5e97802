"""What the suite asks of a device: streams, events, graphs, pinned memory and ordered launches.

Streams and events are duck-typed after ``torch.cuda.Stream`` and ``torch.cuda.Event``, so that on a real
device the loops talk to torch's own objects and pay no wrapper. Everything a forward does goes through
:meth:`Backend.launch` or a :class:`Graph`; nothing outside this folder touches ``torch.cuda``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Event(Protocol):
    """A point on a stream. Recording again moves it; a wait refers to the latest record made before the
    wait.
    """

    def record(self, stream: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, later: Any) -> float:
        """Milliseconds from this event to ``later``; both recorded with timing."""
        ...


class Stream(Protocol):
    """An in-order queue of device work."""

    def wait_event(self, event: Any) -> None: ...

    def wait_stream(self, other: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool: ...


class Graph(Protocol):
    """Captured device work; replayed on the current stream as one host call."""

    def replay(self) -> None: ...


class Backend(ABC):
    """A device and its runtime."""

    #: short name shown to people: "cpu" or the device's own
    name: str
    device: torch.device
    #: True if results are computed where a real device's would be (decides which kernels are used)
    real: bool

    @abstractmethod
    def stream(self, name: str) -> Stream: ...

    @abstractmethod
    def event(self, timing: bool = False) -> Event: ...

    @abstractmethod
    def set_stream(self, stream: Stream) -> None:
        """Make ``stream`` the one that launches and replays go to."""

    @abstractmethod
    def launch(self, function: Callable[..., object], *args: object) -> None:
        """Enqueue ``function(*args)`` on the current stream. It must write into given tensors only."""

    @abstractmethod
    def copy(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        """Enqueue an asynchronous copy on the current stream; host memory should be pinned."""

    @abstractmethod
    def capture(self, function: Callable[[], object], stream: Stream) -> Graph:
        """Run ``function`` a few times to warm up, then record it as a graph. Device work only, no allocation
        that outlives it."""

    @abstractmethod
    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
        """Zeroed host memory, page-locked if ``pinned`` and the runtime can."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for everything enqueued so far."""

    @abstractmethod
    def occupy(self, microseconds: float) -> None:
        """Keep the current stream busy for about this long, so that later launches queue up behind it."""

    @abstractmethod
    def release(self) -> None:
        """Give freed memory back, so that the next model fits."""
