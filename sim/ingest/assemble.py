"""From the pieces of one engine's traces and its unprofiled section totals to operations and their costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.config.profile import Cost
from sim.ingest.deflate import SECTION_ERROR, Inflation
from sim.ingest.pieces import Piece, Pieces
from sim.program.step_program import Kind, Operation, Phase, StepProgram

#: batches at which costs are tabulated
BATCHES = (1, 2, 4, 8, 16, 32)
#: unprofiled cost of a graph launch call (µs), as far as it matters for an operation's share of its section
GRAPH_CALL = 3.0
#: sections that one unprofiled timing covers together; sections outside any group are deflated only
GROUPS = {
    "schedule": ("schedule", "prepare"),
    "run_batch": ("enter", "gather_tokens", "draft", "verify", "accept", "publish", "tail", "copy"),
    "process": ("process",),
}
#: the traced publish kernel belongs to the accept section's cost
MERGED = {"publish": "accept"}


@dataclass(frozen=True)
class Totals:
    """Unprofiled µs of a group of sections at state 1, over :data:`BATCHES`, without what policies insert."""

    value: NDArray[np.float64]
    status: str
    source: str
    #: relative standard error
    error: float = 0.0


def operations(engine: list[Pieces], inflation: Inflation, label: str) -> list[Operation]:
    """The engine's operations in program order; each names its section's host cost and its share of it."""
    shares = _shares(engine, inflation)
    found = []
    for name in _order(engine):
        piece = next(p.pieces[name] for p in engine if name in p.pieces)
        section = MERGED.get(piece.section, piece.section)
        host_name = host_cost(section, label)
        if piece.kind is Kind.HOST:
            row = piece.row
            found.append(
                Operation(
                    phase=piece.phase,
                    name=name,
                    kind=Kind.HOST,
                    cost=host_name,
                    share=shares[name],
                    stream=row.stream if row else None,
                    writes=row.writes if row else (),
                )
            )
            continue
        row = piece.row
        assert row is not None  # every kind but HOST comes from a template row
        found.append(
            Operation(
                phase=piece.phase,
                name=name,
                kind=piece.kind,
                stream=row.stream,
                cost=row.cost,
                host=host_name,
                share=shares[name],
                event=row.event,
                on=row.on,
                when=row.when,
                marks=row.marks,
                reads=row.reads,
                writes=row.writes,
                direction=row.direction,
            )
        )
    return found


def program(engine: list[Pieces], inflation: Inflation) -> StepProgram:
    """The step program of an engine: its traced decode iteration and the template's rest.

    Where no trace separates batch selection from preparation, it opens the preparation.
    """
    template = engine[0].template
    listed: list[Operation] = []
    traced = operations(engine, inflation, template.label)
    for op in traced:
        if op.phase is Phase.PREPARE and not any(x.phase in (Phase.SCHEDULE, Phase.PREPARE) for x in listed):
            cost = host_cost("schedule", template.label)
            listed.append(Operation(phase=Phase.SCHEDULE, name="schedule", kind=Kind.HOST, cost=cost))
        if op.phase is Phase.PREPARE and not any(x.phase is Phase.PREPARE for x in listed):
            listed += template.changed
        if op.name in template.optional:
            listed.append(template.optional[op.name])
        listed.append(op)
    return StepProgram(
        algorithm=template.algorithm,
        engine=template.engine,
        description=template.description,
        status="measured",
        source=f"{file_names(engine)}; calls and kernels in traced order, meaning of events from the engine's source",
        capabilities=template.capabilities,
        speculation=template.speculation,
        admission_min_free=template.admission_min_free,
        operations=tuple(listed),
        prefill=template.prefill,
    )


def split_schedule(costs: dict[str, Cost], label: str, before: Cost) -> None:
    """Takes batch selection out of the prepare cost where the traces do not separate the two."""
    prepare = costs[host_cost("prepare", label)]
    name = host_cost("schedule", label)
    whole = np.array(prepare.value) + (np.array(costs[name].value) if name in costs else 0.0)
    rest = whole - np.array(before.value)
    costs[host_cost("prepare", label)] = prepare.model_copy(update={"value": rounded(np.maximum(rest, 0.0))})
    costs[name] = before


def host_cost(section: str, label: str) -> str:
    return f"host.{label}.{section}"


def _order(engine: list[Pieces]) -> list[str]:
    """Program order over all traces; ``receive`` opens the list although its last part closes an iteration."""
    names: list[str] = []
    for p in engine:
        at = 0
        for name in p.pieces:
            if name in names:
                at = names.index(name) + 1
            else:
                names.insert(at, name)
                at += 1
    rank = {phase: i for i, phase in enumerate(Phase)}
    phase_of = {name: piece.phase for p in engine for name, piece in p.pieces.items()}
    return sorted(names, key=lambda n: rank[phase_of[n]])  # stable: order inside a phase is the trace's


def _host(piece: Piece, inflation: Inflation, state: float, graph_call: float) -> float:
    graphs = piece.graph_time if inflation.graphs_as_traced else graph_call * piece.graph_calls
    return inflation.deflate(piece.host, state) + graphs


def _by_section(p: Pieces, inflation: Inflation, graph_call: float) -> dict[str, dict[str, float]]:
    state = inflation.states[p.traced.trace.path]
    out: dict[str, dict[str, float]] = {}
    for piece in p.pieces.values():
        section = MERGED.get(piece.section, piece.section)
        out.setdefault(section, {})[piece.name] = _host(piece, inflation, state, graph_call)
    return out


def _shares(engine: list[Pieces], inflation: Inflation, graph_call: float = GRAPH_CALL) -> dict[str, float]:
    """Each operation's share of its section, averaged over traces; shares of a section sum to one."""
    collected: dict[str, dict[str, list[float]]] = {}
    for p in engine:
        for section, parts in _by_section(p, inflation, graph_call).items():
            total = sum(parts.values())
            for name, part in parts.items():
                collected.setdefault(section, {}).setdefault(name, []).append(part / total if total else 0.0)
    shares = {}
    for parts_of in collected.values():
        means = {name: float(np.mean(values)) for name, values in parts_of.items()}
        whole = sum(means.values()) or 1.0
        shares.update({name: mean / whole for name, mean in means.items()})
    return shares


def host_costs(
    engine: list[Pieces], inflation: Inflation, totals: dict[str, Totals], label: str, graph_call: float
) -> dict[str, Cost]:
    """Every section's host cost over the batch.

    The deflated traces say how a group's unprofiled total divides into sections (linear in the batch between the
    traces); the total itself is exact. Sections without a total keep their deflated time. ``boot_sd`` is what the
    uncertainty of the removed profiling leaves in a section, with the spread of its total and the error of any
    one traced section.
    """
    central = _sections_over_batches(engine, inflation, totals, graph_call)
    variance = {
        s: (totals[g].error if g in totals else 0.0) ** 2 + SECTION_ERROR**2 for s, (_, g) in central.items()
    }
    for kind, spread in inflation.spread.items():
        moved = _sections_over_batches(engine, inflation.moved(kind, spread), totals, graph_call)
        for s, (value, _) in moved.items():
            level = float(np.mean(central[s][0]))
            variance[s] += (float(np.mean(value)) / level - 1) ** 2 if level else 0.0
    names = file_names(engine)
    batches = [p.traced.batch for p in engine]
    valid = {True: (BATCHES[0], BATCHES[-1]), False: (min(batches), max(batches))}
    costs = {}
    for s, (value, group) in central.items():
        if group in totals:
            status, source = totals[group].status, f"{totals[group].source}; divided as in {names}"
        else:
            status = "scaled"
            source = (
                f"{names}, profiling removed per recorded operator and call; no unprofiled timing covers it"
            )
        costs[host_cost(s, label)] = Cost(
            value=rounded(value),
            batch=BATCHES,
            valid_range={"batch": valid[group in totals]},
            boot_sd=round(float(np.sqrt(variance[s])), 3),
            status=status,
            source=source,
        )
    return costs


def _sections_over_batches(
    engine: list[Pieces], inflation: Inflation, totals: dict[str, Totals], graph_call: float
) -> dict[str, tuple[NDArray[np.float64], str]]:
    """For each section its µs over :data:`BATCHES`, and its group ("" without)."""
    batches = [p.traced.batch for p in engine]
    traced = [_by_section(p, inflation, graph_call) for p in engine]
    sections = sorted({s for t in traced for s in t})
    deflated = {
        s: _over_batches(batches, [sum(t[s].values()) if s in t else None for t in traced]) for s in sections
    }
    group_of = {s: group for group, members in GROUPS.items() if group in totals for s in members}
    found = {}
    for s in sections:
        group = group_of.get(s, "")
        if group:
            whole = sum(deflated[member] for member in GROUPS[group] if member in deflated)
            found[s] = (totals[group].value * deflated[s] / whole, group)
        else:
            found[s] = (deflated[s], group)
    return found


def _over_batches(batches: list[int], values: list[float | None]) -> NDArray[np.float64]:
    known = sorted((b, v) for b, v in zip(batches, values, strict=True) if v is not None)
    return np.interp(BATCHES, [b for b, _ in known], [v for _, v in known])


def rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(v), 2) for v in values)


def file_names(engine: list[Pieces]) -> str:
    """The traces' file names, for sources."""
    return ", ".join(p.traced.trace.path.rsplit("/", 1)[-1] for p in engine)
