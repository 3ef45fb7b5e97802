"""Sections of the scheduler's loop where a trace has no annotations: found by the pattern of calls.

The loop's order is known (receive, schedule, prepare, run_batch, queue, wait for the previous result, process), and
so is what each part calls: preparation uploads and then writes its table; the forward runs on the stream of the
graphs; results are downloaded last, then the host waits. What happens between two calls cannot be divided: result
processing, receiving and batch selection fall into one stretch.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

from sim.ingest.kineto import Call, CallKind, Span, Trace

#: the annotation that opens an iteration, newest spelling first
ITERATION_STARTS = ("scheduler.recv_requests", "scheduler.get_next_batch_to_run", "scheduler.run_batch")
NOTE = (
    "no scheduler annotations: sections were found by the pattern of calls, so receiving, batch selection and result "
    "processing are one"
)
_RECEIVE, _SCHEDULE, _RUN = ITERATION_STARTS
_PROCESS = "scheduler.process_batch_result"


def with_sections(trace: Trace) -> Trace:
    """``trace`` with annotations of the loop's sections, its own where it has them."""
    names = {s.name for s in trace.spans}
    if trace.named or names & set(ITERATION_STARTS):
        return trace
    cuts = _result_waits(trace)
    starts = [c.start for c in trace.calls]
    spans = list(trace.spans)
    for before, wait in pairwise(cuts):
        calls = trace.calls[bisect_left(starts, before.end) : bisect_left(starts, wait.start)]
        spans += _spans(before.end, wait, [c for c in calls if c.kind is not CallKind.MINOR])
    if cuts:  # opens the iteration after the last complete one
        spans.append(Span(cuts[-1].end, cuts[-1].end, _RECEIVE))
    return replace(trace, spans=sorted(spans, key=lambda s: (s.start, -s.end)), notes=[*trace.notes, NOTE])


def _is_target(call: Call, nodes: int) -> bool:
    return call.kind is CallKind.GRAPH and 2 * len(call.activities) > nodes


def _result_waits(trace: Trace) -> list[Call]:
    """For every target forward the wait for the result before: the first one after the forward's downloads."""
    nodes = max((len(c.activities) for c in trace.calls if c.kind is CallKind.GRAPH), default=0)
    waits = []
    launched = downloaded = False
    for call in trace.calls:
        if nodes and _is_target(call, nodes):
            launched, downloaded = True, False
        elif launched and call.kind is CallKind.COPY and "DtoH" in call.activities[0].name:
            downloaded = True
        elif downloaded and call.kind is CallKind.SYNCHRONIZE:
            waits.append(call)
            launched = downloaded = False
    return waits


def _spans(begin: float, wait: Call, calls: list[Call]) -> list[Span]:
    """The sections of one iteration, which ends with the wait for a result."""
    uploads = [i for i, c in enumerate(calls) if c.kind is CallKind.COPY and "HtoD" in c.activities[0].name]
    graphs = [i for i, c in enumerate(calls) if c.kind is CallKind.GRAPH]
    prepared = begin
    if uploads and graphs and uploads[0] < graphs[0]:
        last = max(i for i in uploads if i < graphs[0])
        table = next((i for i in range(last, graphs[0]) if calls[i].kind is CallKind.LAUNCH), last)
        after = [c.kind for c in calls[table + 1 : table + 5]]
        # Two record-wait pairs after the table: the first leaves the plan stream.
        joins = after == [CallKind.RECORD, CallKind.WAIT, CallKind.RECORD, CallKind.WAIT]
        prepared = calls[table + 2 if joins else table].end
    # One wait before the uploads is the loop's barrier, which batch selection follows; more belong to a plan stream.
    waits = [c for c in calls[: uploads[0]] if c.kind is CallKind.WAIT] if uploads else []
    scheduling = waits[0].end if len(waits) == 1 else begin
    done = max((c.end for c in calls), default=begin)
    return [
        Span(begin, scheduling, _RECEIVE),
        Span(scheduling, max(prepared, scheduling), _SCHEDULE),
        Span(max(prepared, scheduling), max(done, prepared, scheduling), _RUN),
        Span(wait.start, wait.end, _PROCESS),
    ]
