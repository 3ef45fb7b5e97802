"""Ctrl-C and SIGTERM during a study: let the runs in flight end, start no more."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
#: exit status of a program ended by Ctrl-C
INTERRUPTED = 130


class Stop:
    """Whether someone asked to stop; :meth:`until` ends an iteration then."""

    def __init__(self) -> None:
        self.requested = False

    def until(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if self.requested:
                return
            yield item


@contextmanager
def stopping() -> Iterator[Stop]:
    """The first signal asks to stop, a second ends the process at once; stored results are safe either way."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            os._exit(INTERRUPTED)
        stop.requested = True
        print("stopping when the runs in flight have ended; once more to drop them", file=sys.stderr)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Ctrl-C is ignored within, and for ever by the processes started within, though it reaches their whole group.

    A signal mask would not do: starting a process pool sets it anew.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may set, and hears, signals
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
