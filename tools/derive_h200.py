#!/usr/bin/env python
"""Derives the H200 profile and the step programs of both engine releases from ``data/sglang_h200``.

    python tools/derive_h200.py [--data DIR] [--configs DIR]

Deterministic: the same data give the same bytes. What is measured, what is fitted on cycles and what is assumed
stands beside every figure (``status`` and ``source``). Of the older release only host sections without a wait and
device durations are used, never a cycle: its cycles are what the profile is asked to predict.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import h200_composed  # noqa: E402
from sim.capabilities import (  # noqa: E402
    Capabilities, Carry, HostLengthNeed, LengthSource, PrepStream, ReadEnd, WriteFence,
)
from sim.config.profile import Cost, DeviceProfile, HostState  # noqa: E402
from sim.config.loader import load_resolved  # noqa: E402
from sim.errors import InputError  # noqa: E402
from sim.ingest import assemble, fit  # noqa: E402
from sim.ingest.assemble import BATCHES, Totals  # noqa: E402
from sim.ingest.deflate import EMPTY, Inflation, Known, Stretch, fit_inflation  # noqa: E402
from sim.ingest.files import write_profile, write_program  # noqa: E402
from sim.ingest.host_state import HostStates, state_quantiles  # noqa: E402
from sim.ingest.iterations import fold, split  # noqa: E402
from sim.ingest.kineto import read_trace  # noqa: E402
from sim.ingest.pieces import Pieces, read  # noqa: E402
from sim.ingest.templates import TEMPLATES  # noqa: E402
from sim.ingest.timings import Row, Section, read_timings, states_of  # noqa: E402
from sim.run import simulate  # noqa: E402
from sim.program.step_program import Kind, Mark, Operation, Phase, Speculation, StepProgram, StreamName  # noqa: E402

NEW, OLD = "0.5.15", "0.5.14"
LABEL = {NEW: "v0515", OLD: "v0514"}
#: figures of cycles.csv that contain no wait (README of the data): the old release's default waits in schedule,
#: every other configuration waits for the previous result in process_result
CLEAN = {
    NEW: {
        "publish": Section("host_publish_us", ("default",)),
        "run_batch": Section("host_run_batch_us", ("default",)),
        "schedule": Section("host_schedule_us", ("default",)),
        "resolve": Section("host_resolve_us", ("default",)),
    },
    OLD: {
        "publish": Section("host_publish_us", ("default", "plan_stream")),
        "run_batch": Section("host_run_batch_us", ("default", "plan_stream")),
        "schedule": Section("host_schedule_us", ("plan_stream",)),
        "process": Section("host_process_result_us", ("default",)),
    },
}
TRACES = {
    NEW: ("trace_0.5.15_default_c1.json.gz", "trace_0.5.15_default_c32.json.gz"),
    OLD: ("trace_0.5.14_default_c1.json.gz", "trace_0.5.14_plan_stream_c32.json.gz"),
}
#: decode iteration the trace starts at (README of the data)
FIRST_ITERATION = {
    "trace_0.5.15_default_c1.json.gz": 45, "trace_0.5.15_default_c32.json.gz": 17,
    "trace_0.5.14_default_c1.json.gz": 43, "trace_0.5.14_plan_stream_c32.json.gz": 17,
}
PROMPT = 128.0
GRAPHS = {"graph.target", "graph.target.v0514", "graph.draft.v0515", "graph.draft.v0514"}
BLOCK = 16
#: relative uncertainty of a draft graph: the newer release's is made good by the target graph, which is fitted on
#: the whole; the older one's profiling inflation and interpolation stay in a prediction
GRAPH_SD = {NEW: 0.003, OLD: 0.014}


#: the older release's own arithmetic of a safe upper bound
BOUND = Cost(value=4.0, status="assumed", source="one CPU tensor addition; part of 0.5.14's measured run_batch")


@dataclass(frozen=True)
class Data:
    folder: Path
    rows: list[Row]
    series: dict[str, np.ndarray]
    primitives: dict[str, Any]
    pieces: dict[str, list[Pieces]]
    states: dict[str, HostStates]

    def primitive(self, name: str) -> float:
        given = self.primitives[name]
        return float(given[0] if isinstance(given, list) else given)

    def steady(self, engine: str) -> list[Row]:
        return [r for r in self.rows if r.engine == engine and r.phase == "steady"]


def load(folder: Path) -> Data:
    rows = read_timings(folder / "cycles.csv")
    with np.load(folder / "cycle_series_us.npz") as archive:
        series = {name: archive[name] for name in archive.files}
    pieces = {
        engine: [read(fold(read_trace(folder / name)), TEMPLATES[f"sglang-{engine}"]) for name in names]
        for engine, names in TRACES.items()
    }
    steady = {e: [r for r in rows if r.engine == e and r.phase == "steady"] for e in (NEW, OLD)}
    return Data(
        folder, rows, series, json.loads((folder / "primitives_us.json").read_text()), pieces,
        {e: states_of(steady[e], CLEAN[e]) for e in (NEW, OLD)},
    )


# -- host ---------------------------------------------------------------------------------------------------


def section_at(data: Data, engine: str, section: str) -> np.ndarray:
    return np.array([data.states[engine].at(section, b) for b in BATCHES])


def inflation(data: Data) -> Inflation:
    """One set of amounts for the four traces, from the sections that have unprofiled timings.

    The older release's default has no unprofiled timing of its schedule section: its wait lies inside.
    """
    known = []
    for engine, traced in data.pieces.items():
        for p in traced:
            path, batch = p.traced.trace.path, p.traced.batch
            graphs = 2 * data.primitive("graph_replay_cpu_400")
            known.append(Known(path, run_batch_of(p), data.states[engine].at("run_batch", batch) - graphs))
            if engine == NEW or plan_stream_of(p).time:
                schedule = schedule_of(p) + plan_stream_of(p)
                known.append(Known(path, schedule, data.states[engine].at("schedule", batch)))
    return fit_inflation(known)


def schedule_of(p: Pieces) -> Stretch:
    return sum((p.section(s) for s in assemble.GROUPS["schedule"]), EMPTY)


def plan_stream_of(p: Pieces) -> Stretch:
    """Records, waits and stream switches around a plan stream."""
    return p.policy.get("prepare", EMPTY)


def run_batch_of(p: Pieces) -> Stretch:
    """All traced host time of run_batch, what policies insert included, without graph launch calls."""
    own = sum((p.section(s) for s in assemble.GROUPS["run_batch"]), EMPTY)
    return own + p.policy.get("resolve", EMPTY) + p.policy["publish"]


@dataclass(frozen=True)
class Schedule:
    """Host time of the schedule section at state 1 (µs), and where it divides."""

    #: over the batches, without a plan stream
    value: np.ndarray
    #: batch selection, before decode preparation (and before the older release's wait)
    before: float
    #: what a plan stream adds to it beyond its five event calls
    plan: float


def old_schedule(data: Data, amounts: Inflation) -> Schedule:
    """The older release without a plan stream.

    Its own trace at batch 1 gives the ratio to the same trace's run_batch, which has an unprofiled timing; what the
    plan stream's unprofiled section has beyond that is the plan stream's, at every batch.
    """
    p = data.pieces[OLD][0]
    state = amounts.states[p.traced.trace.path]
    graphs = 2 * data.primitive("graph_replay_cpu_400")
    scale = (data.states[OLD].at("run_batch", p.traced.batch) - graphs) / amounts.deflate(run_batch_of(p), state)
    before = scale * amounts.deflate(p.section("schedule"), state)
    own = before + scale * amounts.deflate(p.section("prepare"), state)
    with_plan = section_at(data, OLD, "schedule")
    added = max(plan_calls(data), float(with_plan[0]) - own)
    return Schedule(with_plan - added, before, added - plan_calls(data))


def plan_calls(data: Data) -> float:
    """Two records and three waits, which the plan-stream policy inserts."""
    return 2 * data.primitive("event_record_cpu") + 3 * data.primitive("event_wait_cpu")


def totals(data: Data, engine: str, old: Schedule) -> dict[str, Totals]:
    """Unprofiled groups of one engine at state 1, without what policies insert."""
    run_batch = section_at(data, engine, "run_batch") - data.primitive("event_record_cpu")  # of publish_ready
    if engine == NEW:
        run_batch -= section_at(data, NEW, "resolve")
        schedule = section_at(data, NEW, "schedule")
        schedule_source = "host_schedule_us of 0.5.15 default"
    else:
        run_batch -= float(BOUND.value)  # type: ignore[arg-type]  # the policy `bound` inserts it
        schedule = old.value
        schedule_source = "host_schedule_us of 0.5.14 plan stream less what the plan stream adds to it"
    fitted = "cycles.csv, medians brought to host state 1, linear in the batch: "
    error = data.states[engine].residual_sd
    return {
        "schedule": Totals(schedule, "measured", fitted + schedule_source, error),
        "run_batch": Totals(
            run_batch, "measured", fitted + f"host_run_batch_us of {engine} less resolve and the publish record"
        ),
        "process": Totals(
            section_at(data, OLD, "process"), "measured" if engine == OLD else "scaled",
            fitted + "host_process_result_us of 0.5.14 default, which never waits there", error,
        ),
    }


def schedule_before_wait(old: Schedule) -> Cost:
    """Batch selection: what 0.5.14's default does before it waits for verify_done, in its trace."""
    return Cost(
        value=round(old.before, 1), status="measured",
        source=f"{TRACES[OLD][0]}: from get_next_batch_to_run to the verify_done wait, deflated",
    )


def split_schedule(costs: dict[str, Cost], label: str, before: Cost) -> None:
    """Takes batch selection out of the prepare cost where the traces do not separate the two."""
    prepare = costs[assemble.host_cost("prepare", label)]
    name = assemble.host_cost("schedule", label)
    given = costs.get(name)
    whole = np.array(prepare.value) + (np.array(given.value) if given else 0.0)
    costs[assemble.host_cost("prepare", label)] = prepare.model_copy(
        update={"value": tuple(round(float(v) - float(before.value), 2) for v in whole)}  # type: ignore[arg-type]
    )
    costs[name] = before


# -- device -------------------------------------------------------------------------------------------------


def graph_slope(p: Pieces, index: int, per_step: float) -> float:
    """µs a context token of one graph within a trace (index 0 draft, 1 target)."""
    spans = [i.graphs[index] for i in p.traced.iterations]
    steps = [i.index for i in p.traced.iterations]
    return float(np.polyfit(steps, spans, 1)[0]) / per_step


def accepted(data: Data, batch: int) -> float:
    return next(r["accepted_per_step"] for r in data.steady(NEW) if r.batch == batch)


def trace_context(p: Pieces, per_step: float) -> float:
    """Mean context over the used iterations of a trace."""
    first = FIRST_ITERATION[Path(p.traced.trace.path).name]
    return PROMPT + per_step * (first + float(np.mean([i.index for i in p.traced.iterations])))


def forward_rest(p: Pieces, costs: dict[str, Cost]) -> np.ndarray:
    """Everything on the forward stream but the two graphs, over the batches (µs)."""
    total = np.zeros(len(BATCHES))
    for piece in p.pieces.values():
        row = piece.row
        if row is None or row.stream is not StreamName.FORWARD or piece.kind in (Kind.WAIT, Kind.RECORD):
            continue
        if row.cost in GRAPHS or row.cost is None:
            continue
        total += table(costs[row.cost])
    return total


def table(cost: Cost) -> np.ndarray:
    if isinstance(cost.value, tuple):
        return np.interp(BATCHES, cost.batch or (), cost.value)
    return np.full(len(BATCHES), float(cost.value))


def cycle_lines(data: Data) -> list[fit.Line]:
    """The newer release's device-bound cycles over the context, for every batch."""
    lines = []
    for b in BATCHES:
        cycles = data.series[f"{NEW}|default|c{b}"]
        lines.append(fit.cycle_line(cycles, fit.contexts(len(cycles), PROMPT, accepted(data, b))))
    return lines


#: products of the rows with large weights: bound by the weights first, by arithmetic later, as all layers are
MATRIX_PRODUCTS = (
    "dflash.head.gemm", "dflash.append.project", "dflash.append.kv_gemm", "dflash.append.project.v0514",
    "dflash.append.kv_gemm.v0514",
)


def matrix_products(data: Data, costs: dict[str, Cost]) -> dict[str, Cost]:
    """Between the two traced batches these grow as the whole cycle does, not in proportion to the batch."""
    whole = np.array([line.intercept for line in cycle_lines(data)])
    found = {}
    for name in MATRIX_PRODUCTS:
        given = costs[name]
        ends = np.array(given.value, dtype=float)
        found[name] = given.model_copy(
            update={
                "value": assemble.rounded(fit.by_shape((ends[0], ends[-1]), whole)), "batch": BATCHES,
                "source": f"{given.source}; between the traced batches in the shape of the whole cycle",
            }
        )
    return found


def graph_costs(data: Data, costs: dict[str, Cost]) -> dict[str, Cost]:
    """Draft graphs from traces; the target graph so that 0.5.15's cycle is the sum of its forward stream."""
    lines = cycle_lines(data)
    whole = np.array([line.intercept for line in lines])
    slope = np.array([line.slope for line in lines])
    ends = data.pieces[NEW]
    per_step = [accepted(data, p.traced.batch) for p in ends]
    # The context slope divides between the graphs as it does inside the traces.
    part = [graph_slope(p, 0, s) for p, s in zip(ends, per_step, strict=True)]
    both = [part[i] + graph_slope(p, 1, s) for i, (p, s) in enumerate(zip(ends, per_step, strict=True))]
    draft_part = float(np.mean([a / b for a, b in zip(part, both, strict=True)]))
    # The spread of boots: the three replicates of each steady cell.
    found: dict[str, Cost] = {}
    limits = {
        "batch": (float(BATCHES[0]), float(BATCHES[-1])),
        # The requests of the series end between 896 and 944 tokens (last block and the zombie step included).
        "context": (PROMPT, 944.0),
    }
    draft_at_zero = {}
    for engine in (NEW, OLD):
        at = []
        for i, p in enumerate(data.pieces[engine]):
            graph_slope_here = slope[0 if i == 0 else -1] * draft_part
            at.append(p.pieces["draft.graph"].device - graph_slope_here * trace_context(p, per_step[i]))
        draft_at_zero[engine] = fit.by_shape((at[0], at[1]), whole)
        found[f"graph.draft.{LABEL[engine]}"] = Cost(
            value=assemble.rounded(draft_at_zero[engine]), batch=BATCHES,
            per_context=tuple(round(float(s), 5) for s in slope * draft_part), valid_range=limits,
            within_sd=0.002, boot_sd=GRAPH_SD[engine], status="measured",
            source=f"traces of {engine} at batch 1 and 32"
            + ("" if engine == NEW else ", head not included (it runs eagerly)")
            + "; between them in the shape of the whole cycle over the batch; context slope as the traces divide it",
        )
    rest = forward_rest(ends[0], costs)
    target = whole - draft_at_zero[NEW] - rest
    found["graph.target"] = Cost(
        value=assemble.rounded(target), batch=BATCHES,
        per_context=tuple(round(float(s), 5) for s in slope * (1 - draft_part)), valid_range=limits,
        within_sd=round(float(np.median([x.within_sd for x in lines])), 4),
        boot_sd=round(float(np.median([x.error for x in lines])), 4), status="fitted",
        source="cycle_series_us.npz, 0.5.15 default, linear in the context, less draft graph and seam kernels: "
        "its forward stream never idles",
    )
    ratio = np.interp(BATCHES, (BATCHES[0], BATCHES[-1]), target_ratios(data))
    new = found["graph.target"]
    found["graph.target.v0514"] = new.model_copy(
        update={
            "value": assemble.rounded(table(new) * ratio),
            "per_context": tuple(round(float(s), 5) for s in np.array(new.per_context) * ratio),
            "source": "graph.target by the ratio of the traced graphs of 0.5.14 and 0.5.15 at equal decode iterations "
            f"({ratio[0]:.4f} at batch 1, {ratio[-1]:.4f} at 32)",
        }
    )
    return found


def target_ratios(data: Data) -> list[float]:
    """Traced target graphs of the older release over the newer's, at decode iterations both traces have."""
    ratios = []
    for old, new in zip(data.pieces[OLD], data.pieces[NEW], strict=True):
        spans = []
        for p in (old, new):
            first = FIRST_ITERATION[Path(p.traced.trace.path).name]
            spans.append({first + i.index: i.graphs[1] for i in split(p.traced.trace)})
        common = sorted(spans[0].keys() & spans[1].keys())
        ratios.append(float(np.mean([spans[0][k] / spans[1][k] for k in common])))
    return ratios


# -- what policies insert, and machine constants --------------------------------------------------------------


def policy_costs(data: Data, amounts: Inflation) -> dict[str, Cost]:
    def primitive(key: str, what: str = "") -> Cost:
        given = data.primitives[key]
        value = float(given[0])
        spread = (float(given[2]) - float(given[1])) / 2 / 1.2816 / value  # half of p10..p90 in sd of a normal
        return Cost(value=value, within_sd=round(spread, 3), status="measured",
                    source=f"primitives_us.json: {key}{what}")

    new = data.pieces[NEW]
    resolve = section_at(data, NEW, "resolve") - data.primitive("event_wait_cpu")
    gather = {p.traced.batch: p.policy_device["resolve"] for p in new}
    tokens = {p.traced.batch: p.pieces["enter.tokens"].device for p in new}
    batches = tuple(sorted(gather))
    names = ", ".join(Path(p.traced.trace.path).name for p in new)

    def traced(values: dict[int, float], note: str) -> Cost:
        return Cost(value=tuple(round(values[b], 2) for b in batches), batch=batches, status="measured",
                    source=f"{names}: {note}")

    result_copy = median(p.pieces["copy.accepted"].device for p in new)
    hop = plan_hop(data)
    launch_lag = median(
        e.lag
        for e in data.pieces[OLD][0].traced.entries
        if e.kind == "launch" and e.idle_before > 10.0 and e.lag > 0
    )
    barrier = median(
        amounts.deflate(p.policy["receive"], amounts.states[p.traced.trace.path]) for p in new
    )
    copy_call = data.primitive("d2h_pinned_nb_cpu(4096 i64)")
    return {
        "call.launch": primitive("kernel_launch_cpu(add_)", ", through PyTorch"),
        "call.graph": primitive("graph_replay_cpu_400"),
        "call.copy": primitive("d2h_pinned_nb_cpu(4096 i64)"),
        "call.record": primitive("event_record_cpu"),
        "call.wait": primitive("event_wait_cpu"),
        "call.synchronize": primitive("event_sync_done"),
        "call.wake": Cost(
            value=round(
                data.primitive("kernel+sync roundtrip") - data.primitive("kernel_launch_cpu(add_)") - launch_lag
                - 1.0, 2,
            ),
            status="measured",
            source="primitives_us.json: kernel+sync roundtrip less its launch, hop.launch and a kernel of 1 us; "
            "the wait spins",
        ),
        "call.pageable_copy": Cost(
            value=round(data.primitive(".cpu() 32 i64") - data.primitive("d2h+sync roundtrip(32 i64)"), 2),
            status="scaled",
            source="primitives_us.json: .cpu() (pageable) less the pinned round trip of the same size",
        ),
        "host.barrier": Cost(
            value=round(max(0.0, barrier - data.primitive("event_wait_cpu")), 2), status="measured",
            source=f"{names}: the loop's barrier call deflated, less call.wait",
        ),
        "host.relay.resolve": Cost(
            value=assemble.rounded(resolve), batch=BATCHES, status="measured",
            valid_range={"batch": (BATCHES[0], BATCHES[-1])},
            source="cycles.csv: host_resolve_us of 0.5.15 default at host state 1, less call.wait",
        ),
        "host.lengths.resolve": Cost(
            value=2 * data.primitive("wait_stream_cpu"), status="assumed",
            source="entering and leaving the private stream, priced as two stream calls of primitives_us.json "
            "(wait_stream_cpu); no trace of the data set runs it",
        ),
        "host.lengths.mirror": Cost(
            value=20.0, per_batch=0.1, status="assumed",
            source="five small CPU tensor operations at about 4 us each: index and sum of the mirror, and the bound "
            "with its sum that metadata builds from it (semantics 2.2 and 7.3); no trace of the data set runs it",
        ),
        "host.lengths.bound": BOUND,
        "hop.cross_stream": hop,
        "hop.launch": Cost(
            value=round(launch_lag, 2), status="measured",
            source=f"{TRACES[OLD][0]}: end of a launch call to the kernel's start on an idle stream, median",
        ),
        "relay.gather_lengths": traced(gather, "lengths gather on the schedule stream, beside the draft append"),
        "relay.gather_tokens": traced(tokens, "token gather that opens the forward"),
        "lengths.copy": Cost(
            value=round(result_copy, 2), status="scaled",
            source=f"{names}: as the smaller result copy to pinned memory (the pool buffer has about 70 rows)",
        ),
    }


def plan_hop(data: Data) -> Cost:
    """Three hops lie between the fence and the next forward: fence to plan stream, plan to schedule to forward."""
    p = data.pieces[OLD][1]
    activities = p.traced.trace.activities
    fences = [a.end for a in activities if "set_kv_buffer" in a.name]
    uploads = [a for a in activities if "HtoD" in a.name]
    tables = [a for a in activities if "assign_req_to_token" in a.name]
    into = [min(u.start - f for f in fences if f <= u.start) for u in uploads[::2] if fences[0] <= u.start]
    blocks = [a.start for a in activities if "prepare_dflash_draft_block" in a.name]
    out = [min(b - t.end for b in blocks if b >= t.end) for t in tables if blocks[-1] >= t.end]
    whole = median(g for g in into if g < 100) + median(g for g in out if g < 100)
    return Cost(
        value=round(whole / 3, 2), status="measured",
        source=f"{TRACES[OLD][1]}: last append to first upload on the plan stream (one hop) and table write to "
        "first forward kernel (two), medians, a third of the sum",
    )


# -- profile and programs -----------------------------------------------------------------------------------


def host_state(data: Data) -> HostState:
    every = np.concatenate([s.states for s in data.states.values()])
    at = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
    spread = []
    for traced in data.pieces.values():
        for p in traced:
            host = np.array([i.host for i in p.traced.iterations])
            spread.append(1.4826 * float(np.median(np.abs(host / np.median(host) - 1))))
    return HostState(
        quantiles=state_quantiles(every, at),
        within_sd=round(float(np.median(spread)), 3),
        source=f"cycles.csv, {len(every)} steady rows of both engines: one factor a row over all sections, "
        " level 1 the median of each engine, no trend over the batch; lognormal with a spread on each side of the median; within a run: median absolute "
        "deviation of the traced host time of an iteration",
    )


def boot_spread(data: Data) -> float:
    """Relative standard deviation of 0.5.15 default's cycle means between boots, pooled over concurrencies."""
    variances = []
    for b in BATCHES:
        means = np.array([r["cycle_mean_us"] for r in data.steady(NEW) if r.batch == b])
        variances.append(float(np.var(means, ddof=1)) / float(np.mean(means)) ** 2)
    return round(float(np.sqrt(np.mean(variances))), 5)


DFLASH = {
    NEW: Capabilities(
        length_source=LengthSource.PUBLISHED, host_length_need=HostLengthNeed.NONE, relay_schema=("verified_id",),
        carry=Carry.BY_ROW, read_end=ReadEnd.PRE_REPLAY, write_fence=WriteFence.SCHEDULER,
        decode_prep=PrepStream.SCHEDULE, consumes_host_lengths=False,
    ),
    OLD: Capabilities(
        length_source=LengthSource.PUBLISHED, host_length_need=HostLengthNeed.BOUND, relay_schema=("verified_id",),
        carry=Carry.BY_REF_IF_UNCHANGED, read_end=ReadEnd.PRE_REPLAY, write_fence=WriteFence.SELF,
        decode_prep=PrepStream.SCHEDULE, consumes_host_lengths=True,
    ),
}
BLOCK_SPECULATION = Speculation(kind="block", block_size=BLOCK, min_block_size=2, max_block_size=32)


def changed(engine: str) -> list[Operation]:
    """Filter and merge of the batch, once in a while (semantics 1.7 rows 2 and 2')."""
    schedule = StreamName.SCHEDULE
    ops = [
        Operation(phase=Phase.SCHEDULE, name="filter", kind=Kind.HOST, cost="host.filter", when=("filtered",)),
        Operation(phase=Phase.SCHEDULE, name="filter.rows", kind=Kind.KERNEL, stream=schedule,
                  cost="batch.rows", when=("filtered",)),
    ]
    if engine == OLD:
        ops.append(
            Operation(phase=Phase.SCHEDULE, name="filter.allocated", kind=Kind.SYNCHRONIZE, on=schedule,
                      when=("filtered",))
        )
    ops += [
        Operation(phase=Phase.SCHEDULE, name="merge", kind=Kind.HOST, cost="host.merge", when=("merged",)),
        Operation(phase=Phase.SCHEDULE, name="merge.rows", kind=Kind.KERNEL, stream=schedule, cost="batch.rows",
                  when=("merged",)),
    ]
    return ops


CHANGED_COSTS = {
    "host.filter": Cost(
        value=100.0, per_batch=1.0, status="assumed",
        source="about ten index kernels and their Python at call.launch each; semantics 2.2 expects 100-200 us",
    ),
    "host.merge": Cost(
        value=100.0, per_batch=1.0, status="assumed",
        source="CPU concatenations and one device concatenation; semantics 2.2 expects 100-200 us",
    ),
    "batch.rows": Cost(
        value=20.0, status="assumed", source="about ten index kernels of 2 us on the schedule stream",
    ),
}


def prefill(engine: str) -> list[Operation]:
    """Prefill of DFLASH (semantics 1.10, 2.7): the host builds device tensors from lists after the target forward
    was enqueued, which waits for it."""
    label = LABEL[engine]
    own = "" if engine == NEW else f".{label}"
    f, s = StreamName.FORWARD, StreamName.SCHEDULE
    copies = StreamName.COPY if engine == NEW else f

    def op(phase: Phase, name: str, kind: Kind, **more: Any) -> Operation:
        return Operation(phase=phase, name=name, kind=kind, **more)

    ops = [
        op(Phase.RECEIVE, "receive", Kind.HOST, cost=f"host.{label}.receive"),
        op(Phase.SCHEDULE, "schedule", Kind.HOST, cost=f"host.{label}.schedule"),
        op(Phase.PREPARE, "prefill.prepare", Kind.HOST, cost="host.prefill.prepare"),
        op(Phase.PREPARE, "prefill.write_rows", Kind.KERNEL, stream=s, cost="prefill.write_rows",
           writes=("req_to_token[0:prompt]", "allocator")),
        op(Phase.ENTER, "enter.join", Kind.WAIT, stream=f, on=s),
        op(Phase.ENTER, "prefill.enter", Kind.HOST, cost="host.prefill.enter"),
        op(Phase.FORWARD, "prefill.input_ids", Kind.COPY, stream=f, cost="prefill.input_ids", direction="h2d"),
        op(Phase.FORWARD, "prefill.target", Kind.KERNEL, stream=f, cost="prefill.target", host="host.prefill.target",
           marks=(Mark.TARGET,), reads=("req_to_token[0:prompt]",), writes=("kv[0:prompt]",)),
        op(Phase.FORWARD, "publish", Kind.PUBLISH, stream=f, cost=f"dflash.publish{own}",
           writes=("future_map.new_seq_lens[rows]",)),
        op(Phase.FORWARD, "prefill.lists_to_device", Kind.SYNCHRONIZE, on=f),
        op(Phase.FORWARD, "prefill.append", Kind.KERNEL, stream=f, cost="prefill.append",
           host=f"host.{label}.tail", share=0.9, writes=("draft_kv[0:prompt]",)),
        op(Phase.FORWARD, "stash", Kind.STASH, stream=f, cost=f"dflash.stash{own}", host=f"host.{label}.tail", share=0.1,
           writes=("future_map.verified_id[rows]",)),
    ]
    if engine == NEW:
        ops.append(op(Phase.COPY, "copy.join", Kind.WAIT, stream=copies, on=f))
    ops += [
        op(Phase.COPY, "copy.tokens", Kind.COPY, stream=copies, cost="dflash.copy.tokens", direction="d2h"),
        op(Phase.COPY, "copy_done", Kind.RECORD, stream=copies, event="copy_done"),
        op(Phase.COPY, "copy.finish", Kind.HOST, cost=f"host.{label}.copy", share=0.5),
        op(Phase.QUEUE, "queue", Kind.HOST, cost=f"host.{label}.queue"),
        op(Phase.PROCESS, "process", Kind.HOST, cost=f"host.{label}.process", stream=s,
           writes=("req_to_token[0:prompt]", "allocator")),
    ]
    return ops


PREFILL_COSTS = {
    "host.prefill.prepare": Cost(
        value=250.0, per_batch=15.0, status="assumed",
        source="batch building and allocation of a prefill; priced as decode preparation of the same rows",
    ),
    "host.prefill.enter": Cost(value=150.0, status="assumed", source="as a decode's forward entry"),
    "prefill.write_rows": Cost(value=5.0, status="assumed", source="one small kernel and two pinned copies"),
    "prefill.input_ids": Cost(value=2.0, status="assumed", source="one pinned copy of the prompt's tokens"),
    "prefill.append": Cost(
        value=100.0, per_token=0.35, status="scaled",
        source="decode append per token (512 tokens at batch 32), traces of 0.5.15",
    ),
}


def prefill_target(costs: dict[str, Cost]) -> Cost:
    """Eager target prefill on the device: the target graph at as many tokens, on from its two largest batches."""
    target = table(costs["graph.target"])
    tokens = BLOCK * np.array(BATCHES, dtype=float)
    slope = (target[-1] - target[-2]) / (tokens[-1] - tokens[-2])
    small = float(np.interp(PROMPT, tokens, target))
    return Cost(
        value=round(small - slope * PROMPT, 1), per_token=round(slope, 3), status="scaled",
        source="graph.target at 128 tokens, on with its slope from 256 to 512 tokens (bound by arithmetic)",
    )


def with_fitted_prefill(data: Data, profile: DeviceProfile) -> DeviceProfile:
    """The host's time for an eager prefill, so that churn runs of 0.5.15 default take as long as measured.

    Wall time is linear in it where it is exposed; the median over the replicates stands for each concurrency.
    """
    measured_walls = {
        c: median(r["wall_s"] for r in data.rows if (r.engine, r.configuration, r.phase, r.batch) == (NEW, "default", "churn", c))
        for c in (8, 32)
    }
    name = "host.prefill.target"
    guesses = (8000.0, 12000.0)
    with tempfile.TemporaryDirectory() as folder:
        walls = []
        for guess in guesses:
            path = Path(folder) / "candidate.toml"
            write_profile(path, with_cost(profile, name, Cost(value=guess)))
            walls.append([churn_wall(data, path, c) for c in measured_walls])
    slope = (np.array(walls[1]) - walls[0]) / (guesses[1] - guesses[0])
    goal = np.array(list(measured_walls.values()))
    weight = slope / goal**2
    fitted = guesses[0] + float(weight @ (goal - walls[0])) / float(weight @ slope)
    return with_cost(
        profile, name,
        Cost(
            value=round(fitted, -1), boot_sd=0.1, status="fitted",
            source="cycles.csv, churn rows of 0.5.15 default: median wall time at concurrency 8 and 32",
        ),
    )


def with_cost(profile: DeviceProfile, name: str, cost: Cost) -> DeviceProfile:
    return profile.model_copy(update={"costs": profile.costs | {name: cost}})


def churn_wall(data: Data, profile: Path, concurrency: int) -> float:
    """Seconds a simulated churn run takes."""
    row = next(r for r in data.rows if r.engine == NEW and r.phase == "churn" and r.batch == concurrency)
    requests, output = 4 * concurrency, 256
    resolved = load_resolved(
        "h200_dflash",
        {
            "device": str(profile), "workload.concurrency": concurrency, "workload.requests": requests,
            "workload.output_tokens": output, "acceptance.mean_accepted_drafts": row["accepted_per_step"] - 1,
            "run.replications": 3,
        },
    )
    throughput = simulate(resolved).throughput_tok_s.mean
    assert throughput is not None
    return requests * output / throughput


def program(data: Data, engine: str, amounts: Inflation) -> StepProgram:
    operations = assemble.operations(data.pieces[engine], amounts, LABEL[engine])
    listed = []
    for op in operations:
        if op.phase is Phase.SCHEDULE or (engine == NEW and op.phase is Phase.PREPARE and not any(
            x.phase is Phase.SCHEDULE for x in listed
        )):
            if engine == NEW:
                listed.append(Operation(phase=Phase.SCHEDULE, name="schedule", kind=Kind.HOST,
                                        cost=f"host.{LABEL[engine]}.schedule"))
                listed += changed(engine)
                listed.append(op)
            else:
                listed.append(op)
                listed += changed(engine)
            continue
        listed.append(op)
    if engine == OLD:
        at = next(i for i, op in enumerate(listed) if op.name == "prepare.lengths")
        listed.insert(at, Operation(phase=Phase.PREPARE, name="prepare.plan_switch", kind=Kind.HOST,
                                    cost=f"host.{LABEL[OLD]}.plan_switch", when=("plan_stream",)))
    measured = ", ".join(TRACES[engine])
    return StepProgram(
        algorithm="dflash", engine=f"sglang-{engine}",
        description="block drafting with a five-layer drafter; "
        + ("unified relay through the FutureMap, head folded into the draft graph, results on a copy stream"
           if engine == NEW else "direct carry, eager head, own fence verify_done, results on the forward stream"),
        status="measured",
        source=f"{measured}; order of calls and kernels as traced, meaning of events from the engine's source",
        capabilities=DFLASH[engine], speculation=BLOCK_SPECULATION, admission_min_free="refill_batching",
        operations=tuple(listed), prefill=tuple(prefill(engine)),
    )


def derive(data_folder: Path, configs: Path) -> list[Path]:
    data = load(data_folder)
    amounts = inflation(data)
    graph_call = data.primitive("graph_replay_cpu_400")
    costs: dict[str, Cost] = {}
    old = old_schedule(data, amounts)
    before = schedule_before_wait(old)
    for engine in (OLD, NEW):  # the newer release's seam kernels were queued, so theirs prevail
        label = LABEL[engine]
        hosts = assemble.host_costs(data.pieces[engine], amounts, totals(data, engine, old), label, graph_call)
        split_schedule(hosts, label, before)
        costs |= hosts
        costs |= assemble.device_costs(data.pieces[engine], GRAPHS)
    costs |= matrix_products(data, costs)
    costs |= preparation(data)
    costs[f"host.{LABEL[OLD]}.plan_switch"] = Cost(
        value=round(old.plan, 1), status="measured",
        source="cycles.csv and traces of 0.5.14: schedule section with the plan stream less without, less five calls",
    )
    costs |= policy_costs(data, amounts)
    costs |= graph_costs(data, costs)
    costs |= CHANGED_COSTS | PREFILL_COSTS
    costs["prefill.target"] = prefill_target(costs)
    costs |= h200_composed.costs(measured(data, costs))
    profile = DeviceProfile(
        name="h200_sglang",
        description="One NVIDIA H200, SGLang 0.5.14 and 0.5.15, Qwen3-8B shapes with a DFLASH drafter, TP 1",
        status="measured", platform="cuda", engine=f"sglang-{NEW}",
        provenance={
            "device": "NVIDIA H200, driver 580.159", "software": "torch 2.11.0+cu130, Triton 3.6",
            "engine": "SGLang 0.5.14 and 0.5.15 as released", "host": "16 CPU cores (Xeon)", "date": "2026-12-01",
            "command": "python tools/derive_h200.py", "data": "data/sglang_h200",
        },
        host_state=host_state(data), device_boot_sd=boot_spread(data), costs=costs,
    )
    comment = "Written by tools/derive_h200.py from data/sglang_h200; edit the script, not this file."
    written = []
    for engine in (NEW, OLD):
        path = configs / "algorithms" / f"dflash@sglang-{engine}.toml"
        write_program(path, program(data, engine, amounts), comment)
        written.append(path)
        copies = StreamName.COPY if engine == NEW else StreamName.FORWARD
        for composed in h200_composed.programs(engine, LABEL[engine], copies, changed(engine)):
            path = configs / "algorithms" / f"{composed.algorithm}@{composed.engine}.toml"
            write_program(path, composed, comment)
            written.append(path)
    path = configs / "devices" / f"{profile.name}.toml"
    write_profile(path, with_fitted_prefill(data, profile), comment)
    return [path, *written]


def measured(data: Data, costs: dict[str, Cost]) -> h200_composed.Measured:
    """What composed programs are made of."""
    seam = [n for n, piece in data.pieces[NEW][0].pieces.items() if n.startswith("verify.") and piece.kind is Kind.KERNEL]
    argmax = table(costs["dflash.accept.argmax"])
    rows = np.array(BATCHES, dtype=float)
    slope = (argmax[-1] - argmax[0]) / (BLOCK * (rows[-1] - rows[0]))
    return h200_composed.Measured(
        target=table(costs["graph.target"]),
        target_context=np.array(costs["graph.target"].per_context),
        draft=table(costs["graph.draft.v0514"]),
        head=table(costs["dflash.head.gemm"]) + table(costs["dflash.head.argmax"]),
        metadata=sum((table(costs[f"dflash.{n}"]) for n in seam), np.zeros(len(BATCHES))),
        argmax=argmax[0] + slope * (rows - rows[0]),
        launch=data.primitive("kernel_launch_cpu(add_)"),
    )


def preparation(data: Data) -> dict[str, Cost]:
    """Preparation copies and the table write with nothing beside them: the older release's.

    Its batch-1 trace launches them one by one, so the gap between them is that of the batch-32 trace, where the
    plan stream queues them.
    """
    single, queued = data.pieces[OLD]
    found = {}
    for name in ("lengths", "allocated", "assign"):
        by_batch = {}
        gap = queued.pieces[f"prepare.{name}"].device - span(queued, name)
        for p in (single, queued):
            by_batch[p.traced.batch] = round(span(p, name) + gap, 2)
        batches = tuple(sorted(by_batch))
        found[f"dflash.prepare.{name}"] = Cost(
            value=tuple(by_batch[b] for b in batches), batch=batches, status="measured",
            valid_range={"batch": (batches[0], batches[-1])},
            source=", ".join(TRACES[OLD]) + ": with nothing beside it on the device, gaps as when queued",
        )
    return found


def span(p: Pieces, name: str) -> float:
    """Device span of a preparation operation in a trace."""
    row = p.pieces[f"prepare.{name}"].row
    assert row is not None
    found = [e for e, r in zip(p.traced.entries, p.rows, strict=True) if r is row]
    return found[0].span


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "sglang_h200")
    parser.add_argument("--configs", type=Path, default=ROOT / "configs")
    options = parser.parse_args()
    try:
        for path in derive(options.data, options.configs):
            print(path)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
