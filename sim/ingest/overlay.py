"""One Perfetto file with simulated lanes beside the real ones, aligned at the start of a target forward."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import InputError, Problem
from sim.files import write_atomically
from sim.ingest.iterations import split, transients
from sim.ingest.kineto import LATEST, Trace, read_trace

#: processes of the simulated lanes, away from any real process or device
HOST_PID, DEVICE_PID = 900_001, 900_000
#: a decode iteration of the simulation past its own start
COUNTERPART = 5


@dataclass(frozen=True)
class Alignment:
    """Which decode iterations start together (from 0 in each file); how far the simulated lanes moved (µs)."""

    real: int
    simulated: int
    shift: float


def overlay(
    real: Path | Trace,
    simulated: Path,
    out: Path,
    iteration: int | None = None,
    counterpart: int = COUNTERPART,
) -> Alignment:
    """Writes ``out`` with the real trace unchanged and the simulated one shifted onto it, cut to its length.

    Args:
        real: a Kineto trace, or one that was read before. simulated: what ``run --trace`` wrote.
        iteration: which complete decode iteration of the real trace to align at; by default the first steady one.
        counterpart: which one of the simulation.

    Raises:
        InputError: unreadable traces, or an iteration that is not there.
    """
    traced = real if isinstance(real, Trace) else read_trace(real)
    real, simulation = Path(traced.path), read_trace(simulated)
    if not simulation.named:
        raise InputError(Problem(str(simulated), "a trace of an engine", "a trace that `run --trace` wrote"))
    iterations, ours = split(traced), split(simulation)
    at = transients(iterations) if iteration is None else iteration
    problems = [
        Problem(where, str(n), f"0 to {len(known) - 1}, the complete decode iterations of {name}")
        for where, n, known, name in (
            ("--iteration", at, iterations, real.name),
            ("--simulated-iteration", counterpart, ours, "the simulation"),
        )
        if not 0 <= n < len(known)
    ]
    if problems:
        raise InputError(problems)
    shift = (traced.origin + iterations[at].target_start) - (
        simulation.origin + ours[counterpart].target_start
    )
    document = _document(real)
    events = [event for event in document["traceEvents"] if isinstance(event, dict)]
    times = [e["ts"] for e in events if e.get("ph") == "X" and isinstance(e.get("ts"), int | float)]
    times = [t for t in times if abs(t) <= LATEST]
    moved = _moved(_document(simulated)["traceEvents"], shift, min(times), max(times))
    document["traceEvents"] = [*events, *moved]
    try:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError:
        found = "numbers that are not finite, which JSON does not have"
        raise InputError(
            Problem(str(real), found, "what a profiler writes", "export the trace again")
        ) from None
    write_atomically(out, text)
    return Alignment(at, counterpart, shift)


def _document(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    assert isinstance(document, dict)  # read_trace has read it before
    return document


def _moved(events: list[dict[str, Any]], shift: float, first: float, last: float) -> list[dict[str, Any]]:
    """Simulated events on the real clock, in lanes of their own, if they lie between ``first`` and ``last``."""
    moved = []
    for event in events:
        copy = dict(event)
        copy["pid"] = DEVICE_PID if event.get("pid") == 0 else HOST_PID
        if "ts" in event:
            copy["ts"] = round(event["ts"] + shift, 3)
            if not first <= copy["ts"] <= last:
                continue
        if "id" in event:
            copy["id"] = f"simulated-{event['id']}"
        moved.append(copy)
    return moved
