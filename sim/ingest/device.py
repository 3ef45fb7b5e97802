"""Device costs: seam kernels from traces, graphs from traces and, where the device is the bottleneck, from cycles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.config.profile import Cost
from sim.ingest.assemble import BATCHES, file_names, rounded
from sim.ingest.pieces import Pieces
from sim.ingest.template import Template
from sim.program.step_program import Kind, Mark, StreamName

#: a series leaves out the first five intervals: entry k runs from the start of `run_batch` k + 5 to the next
DROPPED = 5
#: that interval ends when the host has seen the result before: where the device is the bottleneck it shows the
#: forward one iteration back
LAG = 1
#: relative uncertainty of a device duration read off a trace (the profiler adds up to half a microsecond to the gap
#: between kernels); what all iterations of an engine share is made good by a graph fitted on whole cycles
TRACED_SD = 0.01
#: a product of the rows with weights this long at batch 1 (µs) grows with the batch as whole layers do
LONG_PRODUCT = 20.0
_PRODUCTS = ("gemm", "nvjet", "cutlass", "Cijk")


@dataclass(frozen=True)
class Line:
    """``cycle = intercept + slope·context`` of one batch (µs, µs a token), with what the fit leaves."""

    intercept: float
    slope: float
    #: relative spread of single iterations around the line
    within_sd: float
    #: relative standard error of the level
    error: float


def contexts(count: int, prompt: float, accepted_per_step: float) -> NDArray[np.float64]:
    """Mean tokens a request held in the forward that each entry of a device-bound series shows."""
    return prompt + accepted_per_step * (np.arange(count, dtype=np.float64) + DROPPED - LAG)


def cycle_line(cycles: NDArray[np.float64], context: NDArray[np.float64]) -> Line:
    """Least squares; single iterations unlike their neighbours (beyond 6 MAD) do not move the slope."""
    keep = np.ones(len(cycles), bool)
    slope = 0.0
    for _ in range(3):
        slope, intercept = np.polyfit(context[keep], cycles[keep], 1)
        residual = cycles - (intercept + slope * context)
        mad = float(np.median(np.abs(residual - np.median(residual))))
        keep = np.abs(residual) < 6 * max(mad, 1e-9)
    # The slope is that of usual iterations; the level is that of all of them, as a run's mean contains them all.
    intercept = float(np.mean(cycles) - slope * np.mean(context))
    residual = cycles[keep] - (intercept + slope * context[keep])
    level = float(np.mean(cycles))
    sd = float(np.std(residual, ddof=2))
    return Line(intercept, float(slope), sd / level, sd / level / float(np.sqrt(keep.sum())))


def by_shape(at: dict[int, float], whole: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """A part known at some batches, over :data:`BATCHES`, in the shape of the whole between and beyond them.

    Layers of one shape grow alike with the batch, so ``part(b) = p0 + (p1 − p0)·s(b)`` with the normalised growth
    ``s`` of the whole between the first and last known batch. Known at one batch only, the part is proportional to
    the whole; without a whole it is linear.
    """
    batches = sorted(at)
    first, last = batches[0], batches[-1]
    if whole is None:
        return np.interp(BATCHES, batches, [at[b] for b in batches])
    w0, w1 = (float(np.interp(b, BATCHES, whole)) for b in (first, last))
    if w1 == w0:
        return at[first] * whole / w0
    return at[first] + (at[last] - at[first]) * (whole - w0) / (w1 - w0)


def table(cost: Cost) -> NDArray[np.float64]:
    """A cost over :data:`BATCHES`, without its context part."""
    if isinstance(cost.value, tuple):
        return np.interp(BATCHES, cost.batch or (), cost.value)
    return np.full(len(BATCHES), float(cost.value))


def graph_names(template: Template) -> set[str]:
    return {r.cost for r in template.rows if r.operation is Kind.GRAPH and r.cost}


def seam_costs(engine: list[Pieces], whole: NDArray[np.float64] | None = None) -> dict[str, Cost]:
    """Seam kernels and copies: duration with the gap to the next queued kernel, over the batches traced.

    Long products with weights follow the shape of ``whole`` between the traced batches, the rest is linear.
    """
    skip = graph_names(engine[0].template)
    found: dict[str, dict[int, list[float]]] = {}
    products = set()
    for p in engine:
        for piece in p.pieces.values():
            if piece.row is None or not piece.row.cost or piece.row.cost in skip:
                continue
            found.setdefault(piece.row.cost, {}).setdefault(p.traced.batch, []).append(piece.device)
            if any(word in piece.activity for word in _PRODUCTS):
                products.add(piece.row.cost)
    source = f"{file_names(engine)}: median over iterations, gap to the next kernel of the stream included"
    costs = {}
    for name, by_batch in found.items():
        at = {b: round(float(np.mean(by_batch[b])), 3) for b in sorted(by_batch)}
        first, last = min(at), max(at)
        shaped = name in products and whole is not None and at[first] > LONG_PRODUCT and len(at) > 1
        values = rounded(by_shape(at, whole)) if shaped else tuple(at.values())
        batches = BATCHES if shaped else tuple(at)
        costs[name] = Cost(
            value=values if len(batches) > 1 else values[0],
            batch=batches if len(batches) > 1 else None,
            valid_range={"batch": (first, last)},
            boot_sd=TRACED_SD,
            status="measured",
            source=source
            + ("; between the traced batches in the shape of the whole cycle" if shaped else ""),
        )
    return costs


def forward_seams(p: Pieces, costs: dict[str, Cost]) -> NDArray[np.float64]:
    """Everything on the forward stream but the graphs, over :data:`BATCHES` (µs)."""
    graphs = graph_names(p.template)
    total = np.zeros(len(BATCHES))
    for piece in p.pieces.values():
        row = piece.row
        busy = (
            row is not None
            and row.stream is StreamName.FORWARD
            and piece.kind not in (Kind.WAIT, Kind.RECORD)
        )
        if busy and row is not None and row.cost and row.cost not in graphs:
            total += table(costs[row.cost])
    return total


def idle_share(p: Pieces) -> float:
    """Share of the traced cycle in which the forward stream waits for launches or events."""
    forward = {piece.stream for piece in p.pieces.values() if piece.kind is Kind.GRAPH}
    idle = sum(max(0.0, e.idle_before - 1.5) for e in p.traced.entries if e.nodes and e.stream in forward)
    return idle / p.traced.cycle


def context_slope(p: Pieces, graph: int, per_step: float) -> float:
    """µs a context token of one graph within a trace, graphs counted in launch order."""
    spans = [i.graphs[graph] for i in p.traced.iterations]
    return float(np.polyfit([i.index for i in p.traced.iterations], spans, 1)[0]) / per_step


def draft_share(engine: list[Pieces], per_step: list[float]) -> float:
    """The drafts' part of the context slope, as the traces divide it."""
    shares = []
    for p, step in zip(engine, per_step, strict=True):
        slopes = [context_slope(p, g, step) for g in range(len(p.traced.iterations[0].graphs))]
        shares.append(sum(slopes[:-1]) / sum(slopes))
    return float(np.mean(shares))


@dataclass(frozen=True)
class Context:
    """Mean tokens a request held over the used iterations of each trace, and tokens committed a step."""

    at: list[float]
    per_step: list[float]


def draft_costs(
    engine: list[Pieces], lines: list[Line], context: Context, part: float, boot_sd: float, note: str = ""
) -> dict[str, Cost]:
    """The draft graph of an engine: traced at its batches, in the shape of the whole cycle between them."""
    template = engine[0].template
    row = template.marked(Mark.DRAFT)
    assert row is not None
    assert row.cost is not None
    whole = np.array([line.intercept for line in lines])
    slope = np.array([line.slope for line in lines]) * part
    at = {}
    for p, tokens in zip(engine, context.at, strict=True):
        at[p.traced.batch] = (
            p.pieces[row.name].device - float(np.interp(p.traced.batch, BATCHES, slope)) * tokens
        )
    return {
        row.cost: Cost(
            value=rounded(by_shape(at, whole)),
            batch=BATCHES,
            per_context=tuple(round(float(s), 5) for s in slope),
            valid_range={"batch": (BATCHES[0], BATCHES[-1])},
            within_sd=0.002,
            boot_sd=boot_sd,
            status="measured",
            source=f"{file_names(engine)}{note}; between the traced batches in the shape of the whole cycle; context "
            "slope as the traces divide it",
        )
    }


def target_cost(
    name: str, engine: list[Pieces], lines: list[Line], costs: dict[str, Cost], part: float, source: str
) -> dict[str, Cost]:
    """The target graph, so that the cycle of an engine whose forward stream never idles is the sum of its parts."""
    draft = engine[0].template.marked(Mark.DRAFT)
    assert draft is not None
    assert draft.cost is not None
    whole = np.array([line.intercept for line in lines])
    slope = np.array([line.slope for line in lines])
    value = whole - table(costs[draft.cost]) - forward_seams(engine[0], costs)
    return {
        name: Cost(
            value=rounded(value),
            batch=BATCHES,
            per_context=tuple(round(float(s), 5) for s in slope * (1 - part)),
            valid_range={"batch": (BATCHES[0], BATCHES[-1])},
            within_sd=round(float(np.median([x.within_sd for x in lines])), 4),
            boot_sd=round(float(np.median([x.error for x in lines])), 4),
            status="fitted",
            source=source,
        )
    }


def traced_graphs(engine: list[Pieces], whole: NDArray[np.float64] | None = None) -> dict[str, Cost]:
    """Graphs from traces alone: durations at the traced batches and contexts, no slope over the context.

    Between the traced batches in the shape of ``whole``, where given.
    """
    found: dict[str, dict[int, float]] = {}
    for p in engine:
        for piece in p.pieces.values():
            if piece.kind is Kind.GRAPH and piece.row is not None and piece.row.cost:
                found.setdefault(piece.row.cost, {})[p.traced.batch] = round(piece.device, 2)
    costs = {}
    for name, at in found.items():
        traced = tuple(sorted(at))
        batches = BATCHES if whole is not None else traced
        values = rounded(by_shape(at, whole)) if whole is not None else tuple(at[b] for b in traced)
        costs[name] = Cost(
            value=values if len(batches) > 1 else values[0],
            batch=batches if len(batches) > 1 else None,
            valid_range={"batch": (traced[0], traced[-1])},
            within_sd=0.005,
            boot_sd=TRACED_SD,
            status="measured",
            source=f"{file_names(engine)}: at the context of the traces, which they do not state",
        )
    return costs


def prefill_target(target: Cost, block: int, prompt: float) -> Cost:
    """Eager target prefill on the device: the target graph at as many tokens, on with its last slope."""
    values = table(target)
    tokens = block * np.array(BATCHES, dtype=float)
    slope = (values[-1] - values[-2]) / (tokens[-1] - tokens[-2])
    small = float(np.interp(prompt, tokens, values))
    return Cost(
        value=round(small - slope * prompt, 1),
        per_token=round(float(slope), 3),
        status="scaled",
        source=f"the target graph at {prompt:g} tokens, on with its slope from {tokens[-2]:g} to {tokens[-1]:g} "
        "tokens (bound by arithmetic)",
    )


def trace_name(p: Pieces) -> str:
    return Path(p.traced.trace.path).name
