"""Host sections of an engine at state 1: what unprofiled timings say of them, and what they calibrate in traces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.ingest.assemble import BATCHES, GROUPS, Totals
from sim.ingest.deflate import EMPTY, KINDS, Inflation, Known, Stretch
from sim.ingest.host_state import HostStates
from sim.ingest.kineto import CallKind
from sim.ingest.pieces import Pieces
from sim.ingest.primitives import Primitives
from sim.ingest.timings import Section

#: a plan stream needs at least these event calls in a schedule section; records of freed memory are fewer
PLAN_EVENTS = 4
#: columns of a timings table that cover a group of sections
COLUMNS = {
    "schedule": "host_schedule_us",
    "run_batch": "host_run_batch_us",
    "resolve": "host_resolve_us",
    "publish": "host_publish_us",
}


def schedule_of(p: Pieces) -> Stretch:
    return sum((p.section(s) for s in GROUPS["schedule"]), EMPTY)


def plan_stream_of(p: Pieces) -> Stretch:
    """Records, waits and stream switches around a plan stream; empty without one (it takes five event calls)."""
    found = p.policy.get("prepare", EMPTY)
    return found if found.counts[KINDS.index("event")] >= PLAN_EVENTS else EMPTY


def run_batch_of(p: Pieces) -> Stretch:
    """All traced host time of run_batch, what policies insert included, without graph launch calls."""
    own = sum((p.section(s) for s in GROUPS["run_batch"]), EMPTY)
    return own + p.policy.get("resolve", EMPTY) + p.policy.get("publish", EMPTY)


def waits_in_schedule(p: Pieces) -> bool:
    """Whether the host waits inside the schedule section: then its unprofiled timing says nothing of work."""
    inside = False
    for e in p.traced.entries:
        if e.label.endswith("get_next_batch_to_run"):
            inside = e.kind == "open"
        elif inside and e.kind == CallKind.SYNCHRONIZE:
            return True
    return False


def clean_sections(by_configuration: dict[str, Pieces]) -> dict[str, Section]:
    """Columns free of waits, by the configurations whose traces show no wait inside."""
    every = tuple(sorted(by_configuration))
    quiet = tuple(c for c in every if not waits_in_schedule(by_configuration[c]))
    sections = {name: Section(COLUMNS[name], every) for name in ("publish", "run_batch")}
    if quiet:
        sections["schedule"] = Section(COLUMNS["schedule"], quiet)
    gathering = tuple(c for c in every if "resolve" in by_configuration[c].policy)
    if gathering:
        sections["resolve"] = Section(COLUMNS["resolve"], gathering)
    return sections


def at_batches(states: HostStates, section: str) -> NDArray[np.float64]:
    return np.array([states.at(section, b) for b in BATCHES])


def known_sections(p: Pieces, states: HostStates, primitives: Primitives) -> list[Known]:
    """A trace's sections that have an unprofiled timing, for the fit of what profiling adds."""
    path, batch = p.traced.trace.path, p.traced.batch
    graphs = sum(piece.graph_calls for piece in p.pieces.values()) * primitives["graph_replay_cpu_400"]
    known = [Known(path, run_batch_of(p), states.at("run_batch", batch) - graphs)]
    if "schedule" in states.sections and not waits_in_schedule(p):
        known.append(Known(path, schedule_of(p) + plan_stream_of(p), states.at("schedule", batch)))
    return known


@dataclass(frozen=True)
class Schedule:
    """Host time of the schedule section at state 1 (µs) without a plan stream, and where it divides."""

    value: NDArray[np.float64]
    #: batch selection, before decode preparation
    before: float
    #: what a plan stream adds to it beyond its event calls
    plan: float


def fenced_schedule(p: Pieces, states: HostStates, amounts: Inflation, primitives: Primitives) -> Schedule:
    """The schedule section of a worker that fences itself with a host wait inside it.

    The trace ``p`` of that configuration gives the ratio of its work to the same trace's run_batch, which has an
    unprofiled timing; what the unprofiled section of the plan-stream configuration has beyond that is the plan
    stream's, at every batch.
    """
    state = amounts.states[p.traced.trace.path]
    graphs = sum(piece.graph_calls for piece in p.pieces.values()) * primitives["graph_replay_cpu_400"]
    scale = (states.at("run_batch", p.traced.batch) - graphs) / amounts.deflate(run_batch_of(p), state)
    before = scale * amounts.deflate(p.section("schedule"), state)
    own = before + scale * amounts.deflate(p.section("prepare"), state)
    with_plan = at_batches(states, "schedule")
    calls = plan_calls(primitives)
    added = max(calls, float(np.interp(p.traced.batch, BATCHES, with_plan)) - own)
    return Schedule(with_plan - added, before, added - calls)


def plan_calls(primitives: Primitives) -> float:
    """Two records and three waits, which the plan-stream policy inserts."""
    return 2 * primitives["event_record_cpu"] + 3 * primitives["event_wait_cpu"]


def run_batch_total(states: HostStates, bound_us: float, primitives: Primitives, engine: str) -> Totals:
    """run_batch without what policies insert: resolve, the record of publish_ready, the bound on lengths."""
    value = at_batches(states, "run_batch") - primitives["event_record_cpu"] - bound_us
    if "resolve" in states.sections:
        value -= at_batches(states, "resolve")
    return Totals(
        value,
        "measured",
        f"{FITTED}host_run_batch_us of {engine} less resolve and the publish record",
        states.residual_sd,
    )


def schedule_total(value: NDArray[np.float64], states: HostStates, source: str) -> Totals:
    return Totals(value, "measured", f"{FITTED}host_schedule_us of {source}", states.residual_sd)


FITTED = "unprofiled medians brought to host state 1, linear in the batch: "
