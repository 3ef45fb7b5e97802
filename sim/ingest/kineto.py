"""Reads one torch-profiler (Kineto) trace and keeps what timing needs: host calls, device activities, annotations.

Nothing here knows a vendor: a runtime call is understood by its name without the vendor's prefix
(``GraphLaunch``, ``EventRecord``, ``StreamWaitEvent``, ...) and by the device activities that carry its
correlation id, so traces of other runtimes read the same. Times are microseconds from the first event kept.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import InputError, Problem
from sim.files import unreadable

HOW_TO_RECORD = (
    "record with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) around "
    "at least 6 consecutive decode iterations of the scheduler process"
)

#: the vendor's prefix: the lower-case letters before the first capital of a runtime call's name
_PREFIX = re.compile(r"^[a-z]+(?=[A-Z])")


class CallKind(StrEnum):
    HOST = "host"  # named host work: only traces that state their operations have it
    LAUNCH = "launch"  # one kernel or memset
    GRAPH = "graph"
    COPY = "copy"
    RECORD = "record"
    WAIT = "wait"
    SYNCHRONIZE = "synchronize"
    MINOR = "minor"  # queries and the like: host time of the gap they lie in


class ActivityKind(StrEnum):
    KERNEL = "kernel"
    COPY = "copy"
    MEMSET = "memset"


class Activity(NamedTuple):
    """One device activity; ``stream`` is the trace's lane (process, thread) of it."""

    start: float
    end: float
    stream: tuple[int, int]
    correlation: int
    kind: ActivityKind
    name: str


class Call(NamedTuple):
    """One runtime call of the scheduler's thread with the device activities it caused, in start order."""

    start: float
    end: float
    kind: CallKind
    name: str
    activities: tuple[Activity, ...]
    #: the operation it belongs to, where the trace says so
    operation: str = ""
    #: stream whose record a wait waits for, where a `cuda_sync` event says so; −1 elsewhere
    waits_on: int = -1


class Span(NamedTuple):
    """One annotation of the scheduler's thread."""

    start: float
    end: float
    name: str


@dataclass(frozen=True)
class Trace:
    """One scheduler thread's trace, sorted by time (microseconds from the first event)."""

    path: str
    #: time stamp of the first event in the file (µs), which all times here count from
    origin: float
    calls: list[Call]
    spans: list[Span]
    #: start of each recorded operator of the thread
    operators: list[float]
    activities: list[Activity]
    #: device and versions, as the file states them
    device: str = ""
    #: things handled on the way that the user should know
    notes: list[str] = field(default_factory=list)
    #: recorded pairs of waits and records (`cuda_sync` events)
    sync_records: int = 0
    #: calls name their operations: written by this package, with no profiler's slowdown in it
    named: bool = False
    #: the step program of a named trace, as ``algorithm@engine``
    program: str = ""


def read_trace(path: Path) -> Trace:
    """The scheduler thread's trace in ``path`` (JSON, plain or gzip).

    Raises:
        InputError: not readable, not Kineto, or without what timing needs (see :data:`HOW_TO_RECORD`).
    """
    document = _parse(path, _bytes(path))
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise _refuse(path, "JSON without a traceEvents list", "a Kineto trace")
    usable = [e for e in events if isinstance(e, _Event)]
    return _assemble(path, document, usable, sum(e is _UNUSABLE for e in events))


def _refuse(path: Path, found: str, expected: str, remedy: str = HOW_TO_RECORD) -> InputError:
    return InputError(Problem(str(path), found, expected, remedy))


def _bytes(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _refuse(path, unreadable(error), "a readable file", "Check the path.") from error
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise _refuse(
            path, f"a damaged gzip file ({error})", "a complete gzip file", "copy or export the trace again"
        ) from error


class _Event(NamedTuple):
    category: str
    name: str
    start: float
    duration: float
    lane: tuple[Any, Any]
    correlation: int
    operation: str
    waits_on: int


#: in place of an event that would count if its time, duration, name and lane were what they must be
_UNUSABLE = object()
#: µs; later and longer is no time of this machine
LATEST = 1e18
#: categories of complete events worth keeping
_KEPT = {"cpu_op", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"}


def _slim(entry: dict[str, Any]) -> Any:
    """Called by the JSON parser for every object: turns an event into a tuple, drops what is never read.

    Keeping the parser's own dictionaries would cost about ten times the file's size in memory.
    """
    if "ph" not in entry:
        return entry
    category = entry.get("cat")
    if entry["ph"] != "X" or not isinstance(category, str):
        return None
    if category not in _KEPT and not category.endswith(("runtime", "driver")):
        return None
    args = entry.get("args")
    args = args if isinstance(args, dict) else {}
    correlation, operation, waits_on = (
        args.get("correlation"),
        args.get("operation"),
        args.get("wait_on_stream"),
    )
    start, duration, name = entry.get("ts"), entry.get("dur", 0), entry.get("name")
    if (
        not isinstance(start, int | float)
        or not isinstance(duration, int | float)
        or not isinstance(name, str)
    ):
        return _UNUSABLE
    lane = (entry.get("pid"), entry.get("tid"))
    if not all(isinstance(part, int | str) for part in lane):
        return _UNUSABLE
    if not (abs(start) <= LATEST and 0 <= duration <= LATEST):  # nor is it NaN
        return _UNUSABLE
    return _Event(
        category,
        name,
        float(start),
        float(duration),
        lane,
        correlation if isinstance(correlation, int) else 0,
        operation if isinstance(operation, str) else "",
        waits_on if isinstance(waits_on, int) else -1,
    )


def _parse(path: Path, raw: bytes) -> Any:
    try:
        return json.loads(raw, object_hook=_slim)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        where = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise _refuse(
            path,
            f"text that is no JSON{where} ({len(raw)} bytes)",
            "a complete JSON document",
            "the export was probably cut short: export the trace again and wait until it is written",
        ) from error
    except (ValueError, RecursionError) as error:
        found = "JSON too deep to read" if isinstance(error, RecursionError) else "a number too long to read"
        raise _refuse(path, found, "what a profiler writes", "export the trace again") from error


def call_kind(name: str, activities: tuple[Activity, ...]) -> CallKind:
    """What a runtime call does, from its device activities and its name without the vendor's prefix."""
    bare = _PREFIX.sub("", name)
    if "graphlaunch" in bare.lower() or len(activities) > 1:
        return CallKind.GRAPH
    if activities:
        return CallKind.COPY if activities[0].kind is ActivityKind.COPY else CallKind.LAUNCH
    if bare.startswith("EventRecord"):
        return CallKind.RECORD
    if bare.startswith("StreamWaitEvent"):
        return CallKind.WAIT
    if bare.startswith(("EventSynchronize", "StreamSynchronize", "DeviceSynchronize")):
        return CallKind.SYNCHRONIZE
    return CallKind.MINOR


_DEVICE = {"kernel": ActivityKind.KERNEL, "gpu_memcpy": ActivityKind.COPY, "gpu_memset": ActivityKind.MEMSET}


def _in_time(activity: Activity) -> tuple[Any, ...]:
    """Sorts by time, then by lane, whose parts may be numbers or names."""
    lane = tuple((isinstance(part, str), part) for part in activity.stream)
    return (activity.start, activity.end, lane, activity.correlation, activity.kind, activity.name)


def _assemble(path: Path, document: dict[str, Any], events: list[_Event], unusable: int) -> Trace:
    odd = f"{unusable} events without a usable time, duration, name or lane" if unusable else ""
    device_events = [e for e in events if e.category in _DEVICE]
    runtime = [e for e in events if e.category.endswith(("runtime", "driver"))]
    if not device_events:
        raise _refuse(
            path,
            f"{len(runtime)} runtime calls but no device activity{f' beside {odd}' if odd else ''}",
            "kernels and copies of a device",
            f"a CPU-only run, or the profiler ran without the device activity: {HOW_TO_RECORD}",
        )
    if not runtime:
        raise _refuse(path, "device activities but no runtime call", "the host side of the same run")
    by_correlation: dict[int, list[Activity]] = defaultdict(list)
    origin = min(e.start for e in events)
    activities = []
    for e in device_events:
        activity = Activity(
            e.start - origin,
            e.start - origin + e.duration,
            e.lane,
            e.correlation,
            _DEVICE[e.category],
            e.name,
        )
        activities.append(activity)
        if e.correlation:
            by_correlation[e.correlation].append(activity)
    for group in by_correlation.values():
        group.sort(key=_in_time)
    lane, notes = _scheduler_lane(path, events, runtime, by_correlation)
    if odd:
        notes.append(f"left out: {odd}")
    named = any(e.operation for e in runtime if e.lane == lane)
    waited = {e.correlation: e.waits_on for e in events if e.category == "cuda_sync" and e.waits_on >= 0}
    calls = []
    for e in runtime:
        if e.lane == lane:
            caused = tuple(by_correlation.get(e.correlation, ()))
            start = e.start - origin
            kind = call_kind(e.name, caused)
            on = waited.get(e.correlation, -1)
            calls.append(Call(start, start + e.duration, kind, e.name, caused, e.operation, on))
    for e in events:
        if named and e.operation and e.category == "cpu_op" and e.lane == lane:
            start = e.start - origin
            calls.append(Call(start, start + e.duration, CallKind.HOST, e.name, (), e.operation))
    calls.sort(key=lambda c: (c.start, c.end))
    early = [c for c in calls if c.activities and c.activities[0].start < c.start]
    if early:
        worst = max(c.start - c.activities[0].start for c in early)
        notes.append(
            f"clock skew: {len(early)} device activities start before their launch (by up to {worst:.1f} us); "
            "device times are used for durations and pitches only, host times for gaps only"
        )
    spans = [
        Span(e.start - origin, e.start - origin + e.duration, e.name)
        for e in events
        if e.category == "user_annotation" and e.lane == lane
    ]
    properties = document.get("deviceProperties")
    first = properties[0] if isinstance(properties, list) and properties else {}
    return Trace(
        path=str(path),
        origin=origin,
        calls=calls,
        spans=sorted(spans, key=lambda s: (s.start, -s.end)),
        operators=[]
        if named
        else sorted(e.start - origin for e in events if e.category == "cpu_op" and e.lane == lane),
        activities=sorted(activities, key=_in_time),
        device=str(first.get("name", "")) if isinstance(first, dict) else "",
        notes=notes,
        sync_records=sum(e.category == "cuda_sync" for e in events),
        named=named,
        program=program if named and isinstance(program := document.get("program"), str) else "",
    )


def _scheduler_lane(
    path: Path, events: list[_Event], runtime: list[_Event], by_correlation: dict[int, list[Activity]]
) -> tuple[tuple[Any, Any], list[str]]:
    """The thread that launches the work; among several, the one that carries scheduler annotations."""
    launches: Counter[tuple[Any, Any]] = Counter(e.lane for e in runtime if e.correlation in by_correlation)
    if not launches:
        raise _refuse(
            path,
            "no runtime call shares a correlation id with a device activity",
            "launches and their kernels in one trace",
            f"two unrelated files were merged? {HOW_TO_RECORD}",
        )
    annotated = Counter(
        e.lane for e in events if e.category == "user_annotation" and "scheduler" in e.name.lower()
    )
    busiest = launches.most_common(1)[0][1]
    # A second rank launches as much as the first; helper threads launch a few kernels at most.
    rivals = sorted((lane for lane, n in launches.items() if 2 * n >= busiest), key=str)
    processes = {lane[0] for lane in rivals}
    if len(processes) > 1:
        raise _refuse(
            path,
            f"{len(processes)} processes that launch work ({', '.join(map(str, sorted(processes, key=str)))})",
            "one rank a file",
            "export one trace for each rank and pass one of them",
        )
    marked = [lane for lane in rivals if annotated[lane]]
    lane = (marked or rivals)[0]
    notes = []
    if len(rivals) > 1:
        notes.append(f"{len(rivals)} threads launch work; the scheduler was taken to be thread {lane[1]}")
    return lane, notes
