"""What a run leaves behind when it is traced: one record an operation, the same from model and machine."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

HOST_LANE = "host"
FORWARD_LANE = "forward"


class Cause(StrEnum):
    """Why the forward stream was idle; `idle_us_per_step` has these keys."""

    PUBLISH_SYNC = "publish_sync"  # lengths of the previous forward: host wait, or stream wait, on publish
    COPY_DONE = "copy_done"  # the host waited for the previous result
    BARRIER = "barrier"  # schedule-stream work held back by the WAR barrier
    LAUNCH_LAG = "launch_lag"  # the launch came late and nothing but host work explains it
    FENCE = "fence"  # the worker's own fence before decode preparation
    PREFILL = "prefill"  # any idle inside a prefill iteration
    OTHER = "other"  # no work to do, device drains that belong to a program, copies


CAUSES = tuple(Cause)


class Record(NamedTuple):
    """One operation on one lane; all times in integer nanoseconds of the run.

    ``issued`` is the end of the host call that launched or made it (host records: their end). ``link`` is the
    serial of the record of the event that this wait refers to, −1 if none; ``cause`` why the lane was idle before
    it, "" if it was not.
    """

    serial: int
    iteration: int
    name: str
    phase: str
    act: str
    lane: str
    start: int
    end: int
    issued: int
    event: str
    link: int
    cause: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    #: batch size and mean context of the iteration, prefill or not
    batch: int
    prefill: bool
