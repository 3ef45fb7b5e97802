"""Records as Chrome/Perfetto JSON: the host and one lane a stream, arrows from launches and from events.

The layout follows torch-profiler traces (categories, correlation ids, `stream` arguments, annotations around the
scheduler's sections), so that tools which read those can read these.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sim.trace.record import HOST_LANE, Record

_HOST_PID, _DEVICE_PID = 1, 0
#: lanes in display order with their stream number
LANES = {"forward": 7, "schedule": 17, "copy": 20, "d2h": 21, "plan": 24, "aux": 27}
_CALLS = {
    "kernel": "LaunchKernel",
    "publish": "LaunchKernel",
    "stash": "LaunchKernel",
    "graph": "GraphLaunch",
    "copy": "MemcpyAsync",
    "record": "EventRecord",
    "wait": "StreamWaitEvent",
    "synchronize": "EventSynchronize",
}
#: which section of the scheduler a phase belongs to
_SECTIONS = {
    "receive": "scheduler.recv_requests",
    "schedule": "scheduler.get_next_batch_to_run",
    "prepare": "scheduler.get_next_batch_to_run",
    "resolve": "scheduler.run_batch",
    "enter": "scheduler.run_batch",
    "forward": "scheduler.run_batch",
    "copy": "scheduler.run_batch",
    "queue": "scheduler.run_batch",
    "process": "scheduler.process_batch_result",
}


def _us(ns: int) -> float:
    return ns / 1000


def events(records: Sequence[Record], label: str = "overlapsim") -> Iterator[dict[str, Any]]:
    """Chrome trace events of a run's records."""
    yield _meta("process_name", _HOST_PID, 0, f"{label}: host")
    yield _meta("process_name", _DEVICE_PID, 0, f"{label}: device")
    yield _meta("thread_name", _HOST_PID, 1, "scheduler thread")
    used = {r.lane for r in records}
    for lane, stream in LANES.items():
        if lane not in used:
            continue
        yield _meta("thread_name", _DEVICE_PID, stream, f"stream {stream}: {lane}")
        yield {
            "ph": "M",
            "name": "thread_sort_index",
            "pid": _DEVICE_PID,
            "tid": stream,
            "args": {"sort_index": list(LANES).index(lane)},
        }
    yield from _sections(records)
    ends = _tails(records)
    for r in records:
        if r.lane == HOST_LANE:
            yield _host(r)
        elif r.act != "event":
            yield from _device(r)
        if r.link >= 0 and r.link in ends and r.act != "wait":
            at = (_HOST_PID, 1, r.end) if r.lane == HOST_LANE else (_DEVICE_PID, LANES[r.lane], r.start)
            yield from _event_arrow(records[r.link], r.serial, *at)


def _tails(records: Sequence[Record]) -> set[int]:
    """Serials of the stream records of events that an operation ends at.

    An arrow must start inside a slice; an event that only passes a wait on, or that a stream recorded before it ran
    anything, has none.
    """
    last: dict[str, int] = {}
    found = set()
    for r in records:
        if r.act == "event":
            if last.get(r.lane) == r.start:
                found.add(r.serial)
        elif r.lane != HOST_LANE:
            last[r.lane] = r.end
    return found


def _meta(name: str, pid: int, tid: int, value: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {"name": value}}


def _sections(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """One annotation around each run of host records that belong to one section of one iteration."""
    current: tuple[str, int] | None = None
    start = end = batch = 0
    prefill = False
    for r in [*(r for r in records if r.lane == HOST_LANE), None]:
        key = None if r is None else (_SECTIONS[r.phase], r.iteration)
        if key != current:
            if current is not None:
                yield _annotation(current[0], start, end)
                if current[0] == "scheduler.run_batch":
                    kind = "EXTEND" if prefill else "DECODE"
                    yield _annotation(f"step[{kind} bs={batch}]", start, end)
            if r is not None:
                start, batch, prefill = r.start, r.batch, r.prefill
            current = key
        if r is not None:
            end = r.end


def _annotation(name: str, start: int, end: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": _HOST_PID,
        "tid": 1,
        "ts": _us(start),
        "dur": _us(end - start),
    }


def _host(r: Record) -> dict[str, Any]:
    is_call = r.act != "host"
    call = _CALLS[r.event] if r.act == "launch" else _CALLS.get(r.act, "")
    args: dict[str, Any] = {"operation": r.name, "phase": r.phase, "iteration": r.iteration}
    if is_call:
        # The device record of a launch follows it; so does the stream record of an event.
        args["correlation"] = r.serial + 1
    if r.act in ("record", "wait", "synchronize"):
        args["event"] = r.event
    return {
        "ph": "X",
        "cat": "cuda_runtime" if is_call else "cpu_op",
        "name": call if is_call else r.name,
        "pid": _HOST_PID,
        "tid": 1,
        "ts": _us(r.start),
        "dur": _us(r.end - r.start),
        "args": args,
    }


def _device(r: Record) -> Iterator[dict[str, Any]]:
    stream = LANES[r.lane]
    args: dict[str, Any] = {
        "stream": stream,
        "correlation": r.serial,
        "iteration": r.iteration,
        "kind": r.act,
        "phase": r.phase,
    }
    if r.cause:
        args["idle before, because of"] = r.cause
    yield {
        "ph": "X",
        "cat": "gpu_memcpy" if r.act == "copy" else "kernel",
        "name": r.name,
        "pid": _DEVICE_PID,
        "tid": stream,
        "ts": _us(r.start),
        "dur": _us(r.end - r.start),
        "args": args,
    }
    launch = {"cat": "ac2g", "name": "ac2g", "id": r.serial}
    yield {**launch, "ph": "s", "pid": _HOST_PID, "tid": 1, "ts": _us(r.issued - 1)}
    yield {**launch, "ph": "f", "bp": "e", "pid": _DEVICE_PID, "tid": stream, "ts": _us(r.start)}


def _event_arrow(record: Record, to: int, pid: int, tid: int, ts: int) -> Iterator[dict[str, Any]]:
    """From the end of what was on the recording stream to the operation or call that waited for it."""
    arrow = {"cat": "event", "name": record.event, "id": f"event-{to}"}
    yield {
        **arrow,
        "ph": "s",
        "pid": _DEVICE_PID,
        "tid": LANES[record.lane],
        "ts": _us(max(record.start - 1, 0)),
    }
    yield {**arrow, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": _us(ts)}


def write(path: Path, records: Sequence[Record], label: str = "overlapsim", program: str = "") -> None:
    """Writes the trace, gzipped if the name ends in ``.gz``; complete or not at all.

    ``program``: ``algorithm@engine`` of the step program, by whose names the operations go.
    """
    partial = path.with_name(path.name + ".partial")
    document = {"displayTimeUnit": "ns", "program": program, "traceEvents": list(events(records, label))}
    text = json.dumps(document, separators=(",", ":"))
    try:
        if path.suffix == ".gz":
            partial.write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            partial.write_text(text)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
