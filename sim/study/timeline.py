"""A few iterations of a traced run, kept operation by operation for a figure."""

from __future__ import annotations

from typing import Any

from sim.device_clock import settled_idle_share
from sim.errors import InputError, Problem
from sim.replication import Replication
from sim.study.plan import TracedCell
from sim.trace.record import FORWARD_LANE, Record
from sim.trace.recorder import Recorder

FIELDS = ("iteration", "name", "phase", "act", "lane", "start", "end", "event", "cause")


def trace(cell: TracedCell) -> dict[str, Any]:
    """Everything that happens while the decode iterations ``first``, ``first + 1``, … are on the forward stream.

    Decodes are counted from 0; the host is then busy with later ones. ``rows`` hold :data:`FIELDS`, times in ns;
    ``window`` reaches from the start of the first of those forwards to the end of the last.
    """
    recorder = Recorder()
    Replication(cell.resolved, 0, recorder=recorder, idle_share=settled_idle_share(cell.resolved)).run()
    records = [r for r in recorder.records if r.act != "event"]
    decodes = sorted({r.iteration for r in records if r.batch and not r.prefill})
    shown = decodes[cell.first : cell.first + cell.iterations]
    forwards = [r for r in records if r.iteration in shown and r.lane == FORWARD_LANE]
    if not forwards:
        found = f"{cell.first}, in a run of {len(decodes)} decode iterations (variant {cell.variant!r})"
        raise InputError(Problem("timeline.first", found, f"at most {len(decodes) - 1}"))
    window = (min(r.start for r in forwards), max(r.end for r in forwards))
    inside = [r for r in records if r.start < window[1] and r.end > window[0]]
    return {"fields": FIELDS, "window": window, "shown": shown, "rows": [_row(r) for r in inside]}


def _row(record: Record) -> list[Any]:
    return [getattr(record, name) for name in FIELDS]
