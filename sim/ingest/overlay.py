"""One Perfetto file with simulated lanes beside the real ones, aligned at the start of a target forward."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from sim.errors import InputError, Problem
from sim.files import write_atomically
from sim.ingest.iterations import Iteration, split, transients
from sim.ingest.kineto import read_trace

#: processes of the simulated lanes, away from any real process or device
HOST_PID, DEVICE_PID = 900_001, 900_000


def overlay(real: Path, simulated: Path, out: Path, iteration: int | None = None) -> float:
    """Writes ``out`` with the real trace unchanged and the simulated one shifted onto it.

    Args:
        real: a Kineto trace. simulated: what ``run --trace`` wrote.
        iteration: which complete decode iteration of the real trace to align at; by default the first steady one.

    Returns:
        The shift of the simulated lanes, µs.

    Raises:
        InputError: unreadable traces, or an iteration that is not there.
    """
    traced, simulation = read_trace(real), read_trace(simulated)
    if not simulation.named:
        raise InputError(Problem(str(simulated), "a trace of an engine", "a trace that `run --trace` wrote"))
    iterations = split(traced)
    at = transients(iterations) if iteration is None else iteration
    if not 0 <= at < len(iterations):
        raise InputError(
            Problem("iteration", str(at), f"0 to {len(iterations) - 1}, the decode iterations of {real.name}")
        )
    ours = _counterpart(split(simulation))
    shift = (traced.origin + iterations[at].target_start) - (simulation.origin + ours.target_start)
    document = _document(real)
    document["traceEvents"] = [*document["traceEvents"], *_moved(_document(simulated)["traceEvents"], shift)]
    write_atomically(out, json.dumps(document, separators=(",", ":")))
    return shift


def _counterpart(iterations: list[Iteration]) -> Iteration:
    """A decode iteration of the simulation past its own start."""
    return iterations[min(5, len(iterations) - 1)]


def _document(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    assert isinstance(document, dict)  # read_trace has read it before
    return document


def _moved(events: list[dict[str, Any]], shift: float) -> list[dict[str, Any]]:
    moved = []
    for event in events:
        copy = dict(event)
        copy["pid"] = DEVICE_PID if event.get("pid") == 0 else HOST_PID
        if "ts" in event:
            copy["ts"] = round(event["ts"] + shift, 3)
        if "id" in event:
            copy["id"] = f"simulated-{event['id']}"
        moved.append(copy)
    return moved
