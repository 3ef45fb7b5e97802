"""Device costs from timed segments: a value and a slope over the context at each calibrated batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, median, pstdev, variance
from typing import NamedTuple

import numpy as np

from gpu_validation.calibrate.host_costs import undisturbed
from gpu_validation.calibrate.measure import TIMED
from gpu_validation.observe.run_record import RunRecord
from gpu_validation.observe.segments import WHOLE
from sim.config.profile import Cost
from sim.program.step_program import Kind, StepProgram
from sim.units import NS_PER_US

#: of a graph's own time, how much a falling slope and its empty rows may each take off at most: noise makes both of
#: segments of microseconds, and no graph takes less than no time
MOST_OFF = 0.5
#: share of the mean below which a slope over the whole range of contexts is noise
NEGLIGIBLE = 0.001


class Fitted(NamedTuple):
    """One operation at one batch: µs at context 0, µs a context token, relative scatter about the line."""

    value: float
    per_context: float
    sd: float


def event_us(records: Iterable[RunRecord]) -> float:
    """Device time of one timing event: parts timed by n events against wholes timed by one, at equal contexts."""
    found = []
    for record in records:
        wholes = [(record.passes[i].context, record.segments_us[i]) for i in record.steady()]
        x = [context for context, segments in wholes if WHOLE in segments]
        y = [segments[WHOLE] for _, segments in wholes if WHOLE in segments]
        if len(x) < 3:
            continue
        slope, value = np.polyfit(x, y, 1)
        found += [
            (sum(segments.values()) - value - slope * context) / (len(segments) - 1)
            for context, segments in wholes
            if WHOLE not in segments
        ]
    return max(0.0, median(found)) if found else 0.0


#: (context, µs) of an operation by batch
Points = dict[int, list[tuple[float, float]]]


def forward_costs(
    program: StepProgram,
    full: dict[int, list[RunRecord]],
    roomy: dict[int, list[RunRecord]],
    paused: dict[int, list[RunRecord]],
    event: float,
    source: str,
) -> dict[str, Cost]:
    """Costs of the forward stream's operations by batch, a timing event each taken off.

    ``full``: runs in mode "segments". Graphs read the context, so theirs is a line; the others are constants.
    ``roomy``: runs of the batch before in the same graph; they say how much of the slope stays when rows are empty,
    and what those cost. ``paused``: runs of the batch with a device that idles meanwhile.
    """
    graphs = {op.cost for op in program.operations if op.kind is Kind.GRAPH}
    parts, sparse = _parts(full, event), _parts(roomy, event)
    relief = reliefs(program, full, paused, event)
    out = {}
    for name, points in sorted(parts.items()):
        fitted = {batch: _fitted(found, name in graphs) for batch, found in points.items()}
        empty = {}
        if name in graphs:
            for graph, (rows, found) in _by_graph(sparse[name], full).items():
                empty[graph] = _emptied(fitted[graph], _fitted(found, True), graph, rows)
        out[name] = _table(fitted, points, empty, relief if name in graphs else {}, source)
    return out


def reliefs(
    program: StepProgram, full: dict[int, list[RunRecord]], paused: dict[int, list[RunRecord]], event: float
) -> dict[int, tuple[float, float]]:
    """By batch: (share by which graphs are shorter on a device that pauses, share of its time that it idles).

    From the graphs behind the first, which no launch delays, at equal contexts.
    """
    behind = [op.name for op in program.operations if op.kind is Kind.GRAPH][1:]
    out = {}
    for batch, records in paused.items():
        busy, idle = _sums(full[batch], behind, event), _sums(records, behind, event)
        if len(busy) < 3 or len(idle) < 3:
            continue
        contexts, us_busy = np.array(busy).T
        slope, value = np.polyfit(contexts, us_busy, 1)
        gained = 1.0 - median(us / (value + slope * context) for context, us in idle)
        forward = fmean(sum(s.values()) for r in records for s in _whole_parts(r))
        cycle = fmean(ns / NS_PER_US for r in records for ns in r.cycles_ns())
        out[batch] = max(0.0, gained), max(0.0, 1.0 - forward / cycle)
    return out


def between_starts(starts: Sequence[dict[int, list[RunRecord]]]) -> float:
    """Relative standard deviation, between process starts, of the time of a whole forward at equal contexts, pooled
    over batches; 0.0 for one start. ``starts``: runs in mode "segments" by batch, one a process start."""
    deviations = []
    for batch in sorted(set.intersection(*(set(start) for start in starts))):
        means = [
            fmean(sum(parts.values()) for r in start[batch] for parts in _whole_parts(r)) for start in starts
        ]
        if len(means) > 1:
            deviations.append(variance(means) / fmean(means) ** 2)
    return sqrt(fmean(deviations)) if deviations else 0.0


def _whole_parts(record: RunRecord) -> list[dict[str, float]]:
    return [record.segments(i) for i in record.steady() if WHOLE not in record.segments(i)]


def _sums(records: Iterable[RunRecord], names: Sequence[str], event: float) -> list[tuple[float, float]]:
    """(context, µs of the operations ``names``) of every steady pass timed in parts."""
    return [
        (r.passes[i].context, sum(r.segments(i)[name] - event for name in names))
        for r in records
        for i in r.steady()
        if names and set(names) <= set(r.segments(i))
    ]


def _parts(by_batch: dict[int, list[RunRecord]], event: float) -> dict[str, Points]:
    parts: dict[str, Points] = defaultdict(lambda: defaultdict(list))
    for batch, records in by_batch.items():
        for record in records:
            for i in record.steady():
                segments = record.segments_us[i]
                if WHOLE not in segments:
                    for name, us in segments.items():
                        parts[name][batch].append((record.passes[i].context, us - event))
    return parts


def _by_graph(sparse: Points, batches: Iterable[int]) -> dict[int, tuple[int, list[tuple[float, float]]]]:
    """Batch of the graph → (rows that were filled, points)."""
    larger = dict(pairwise(sorted(batches)))
    return {larger[rows]: (rows, points) for rows, points in sparse.items()}


def _emptied(full: Fitted, sparse: Fitted, graph: int, rows: int) -> tuple[float, float]:
    """(floor of the context slope, µs an empty row) of a graph that was timed full and with ``rows`` rows filled."""
    floor = min(1.0, max(0.0, sparse.per_context / full.per_context)) if full.per_context > 0 else 0.0
    return floor, max((sparse.value - full.value) / (graph - rows), -MOST_OFF * max(full.value, 0.0) / graph)


def _fitted(points: Sequence[tuple[float, float]], reads_context: bool) -> Fitted:
    contexts, us = (np.array(column) for column in zip(*points, strict=True))
    kept = us <= max(undisturbed(us.tolist()))
    contexts, us = contexts[kept], us[kept]
    slope, value = np.polyfit(contexts, us, 1) if reads_context and len(us) > 2 else (0.0, us.mean())
    if abs(slope) * np.ptp(contexts) < NEGLIGIBLE * us.mean():
        slope, value = 0.0, us.mean()
    # Beside the events that time it, a segment can be too short to see.
    scatter = float(np.std(us - value - slope * contexts) / us.mean()) if us.mean() > 0 else 0.0
    return Fitted(float(value), float(slope), scatter)


def _table(
    fitted: dict[int, Fitted],
    found: Points,
    empty: dict[int, tuple[float, float]],
    relief: dict[int, tuple[float, float]],
    source: str,
) -> Cost:
    batches = sorted(fitted)
    contexts = [context for points in found.values() for context, _ in points]
    return Cost(
        value=tuple(round(max(fitted[b].value, 0.0), 3) for b in batches),
        batch=tuple(batches),
        per_context=tuple(
            round(max(fitted[b].per_context, -MOST_OFF * max(fitted[b].value, 0.0) / max(contexts)), 6)
            for b in batches
        ),
        context_floor=tuple(round(empty.get(b, (0.0, 0.0))[0], 4) for b in batches) if empty else 0.0,
        per_empty=tuple(round(empty.get(b, (0.0, 0.0))[1], 4) for b in batches) if empty else 0.0,
        relief=tuple(round(relief.get(b, (0.0, 1.0))[0], 4) for b in batches) if relief else 0.0,
        relief_at=tuple(round(relief.get(b, (0.0, 1.0))[1], 4) for b in batches) if relief else 1.0,
        within_sd=round(median(fitted[b].sd for b in batches), 4),
        valid_range={
            "batch": (batches[0], batches[-1]),
            "context": (round(min(contexts)), round(max(contexts))),
        },
        status="measured",
        source=source,
    )


def side_costs(by_batch: dict[int, list[dict[str, list[float]]]], source: str) -> dict[str, Cost]:
    """Costs of the operations beside the forward stream, from what was timed alone: differences of medians."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for batch, timed in by_batch.items():
        for alone in timed:
            for pieces, us in alone.items():
                before, _, name = pieces.rpartition("+")
                if pieces != "nothing":
                    found[name][batch].append(median(us) - median(alone[before or "nothing"]))
    # The same copy and the same kernel write a new request's row.
    found["prefill.copy"], found["prefill.assign"] = found["prepare.copy"], found["prepare.assign"]
    out = {}
    for name, values in sorted(found.items()):
        batches = sorted(values)
        out[name] = Cost(
            value=tuple(round(max(0.0, median(values[b])), 3) for b in batches),
            batch=tuple(batches),
            valid_range={"batch": (batches[0], batches[-1])},
            status="measured",
            source=source,
        )
    return out


def prefill_costs(
    by_batch: dict[int, list[tuple[str, float, RunRecord]]], names: Sequence[str], source: str
) -> dict[str, Cost]:
    """Costs of a prefill: host sections ``names`` of the runs without timing events, and what is left for the device
    once it is launched. ``by_batch``: (mode, µs the stream was held, record) of each run.

    A prefill is launched operation by operation while the device already works, so its device cost is the rest after
    the launch: the stream was held for a known time, then busy for as long as the segment says.
    """
    host: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    rest: dict[int, list[float]] = defaultdict(list)
    for batch, runs in by_batch.items():
        for mode, held_us, record in runs:
            first = record.passes[0]
            for name in names if mode not in TIMED else ():
                host[f"host.{name}"][batch].append(first.sections[name] / NS_PER_US)
            if mode == "segments":
                launched = first.sections["prefill"] / NS_PER_US
                rest[batch].append(max(0.0, held_us + record.segments_us[0]["prefill"] - launched))
    out = {}
    for name, values in [*host.items(), ("prefill", rest)]:
        batches = sorted(values)
        out[name] = Cost(
            value=tuple(round(median(values[b]), 2) for b in batches),
            batch=tuple(batches),
            within_sd=0.0,
            boot_sd=round(median(_spread(values[b]) for b in batches), 4),
            valid_range={"batch": (batches[0], batches[-1])},
            status="measured",
            source=source,
        )
    return out


def _spread(values: Sequence[float]) -> float:
    return pstdev(values) / fmean(values) if fmean(values) else 0.0
