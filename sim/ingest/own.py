"""Traces this package wrote itself (``run --trace``): calls name their operations, so programs are the templates."""

from __future__ import annotations

from bisect import bisect_right
from statistics import median

from sim.capabilities import LengthSource
from sim.config import paths
from sim.config.declarations import load_program
from sim.config.profile import Cost
from sim.ingest.kineto import ActivityKind, CallKind
from sim.ingest.pieces import Pieces
from sim.ingest.template import Row, Template
from sim.program.step_program import Kind, Operation, Phase, StepProgram, StreamName

#: a host call this long (µs) blocked; what lies further apart does not belong together
BLOCKED = 20.0
#: how a call of each kind of operation is traced
_TRACED = {
    Kind.HOST: "host",
    Kind.KERNEL: "launch",
    Kind.PUBLISH: "launch",
    Kind.STASH: "launch",
    Kind.GRAPH: "graph",
    Kind.COPY: "copy",
    Kind.RECORD: "record",
    Kind.WAIT: "wait",
    Kind.SYNCHRONIZE: "synchronize",
}
#: operations that policies insert → the cost they show
POLICY_COSTS = {
    "barrier": "host.barrier",
    "barrier.wait": "call.wait",
    "resolve.wait_publish": "call.wait",
    "resolve.gather_lengths": "host.relay.resolve",
    "publish.record": "call.record",
    "lengths.enqueue": "host.lengths.resolve",
    "lengths.copy": "call.copy",
    "lengths.mirror": "host.lengths.mirror",
    "lengths.bound": "host.lengths.bound",
}
POLICY_DEVICE_COSTS = {"resolve.gather_lengths": "relay.gather_lengths", "lengths.copy": "lengths.copy"}


def templates() -> list[Template]:
    """One template for every step program there is."""
    return [template_of(load_program(name, "")) for name in paths.names("algorithms")]


def template_of(program: StepProgram) -> Template:
    """Rows by the names of the program's operations; what a decode trace cannot show is the program's own."""
    rows = tuple(_row(op) for op in program.operations if not op.when or "gathered" in op.when)
    shown = {r.cost for r in rows} | {f"host.ingested.{r.section}" for r in rows}
    missing = {
        name
        for op in (*program.operations, *program.prefill)
        for name in (op.cost, op.host)
        if name is not None and name not in shown
    }
    assumed = {
        name: Cost(
            value=200.0 if name.startswith("host.") else 100.0,
            status="assumed",
            source="no decode trace shows it",
        )
        for name in sorted(missing)
    }
    return Template(
        algorithm=program.algorithm,
        engine=program.engine,
        label="ingested",
        description=program.description,
        rows=rows,
        capabilities=program.capabilities,
        speculation=program.speculation,
        admission_min_free=program.admission_min_free,
        changed=tuple(op for op in program.operations if set(op.when) & {"filtered", "merged", "changed"}),
        optional={},
        prefill=program.prefill,
        bound_us=0.0,
        assumed=assumed,
    )


def _row(op: Operation) -> Row:
    return Row(
        kind=_TRACED[op.kind],
        pattern=f"^{_escaped(op.name)}$",
        role="keep",
        name=op.name,
        phase=op.phase,
        section=str(op.phase),
        operation=op.kind,
        stream=op.stream,
        cost=None
        if op.kind in (Kind.HOST, Kind.RECORD, Kind.WAIT, Kind.SYNCHRONIZE)
        else f"ingested.{op.name}",
        event=op.event,
        on=op.on,
        when=op.when,
        marks=op.marks,
        reads=op.reads,
        writes=op.writes,
        direction=op.direction,
    )


def _escaped(name: str) -> str:
    return name.replace(".", r"\.")


def shown_costs(traces: list[Pieces]) -> dict[str, Cost]:
    """Costs of policies that the traces show, medians over traces."""
    source = "shown by the trace itself"
    found: dict[str, list[float]] = {}
    for p in traces:
        for operation, stretch in p.policy.items():
            if operation in POLICY_COSTS:
                found.setdefault(POLICY_COSTS[operation], []).append(stretch.time)
        for operation, span in p.policy_device.items():
            if operation in POLICY_DEVICE_COSTS:
                found.setdefault(POLICY_DEVICE_COSTS[operation], []).append(span)
        found.setdefault("call.wake", []).extend(_wakes(p))
        found.setdefault("hop.cross_stream", []).extend(_hops(p))
    return {
        n: Cost(value=round(median(v), 3), status="measured", source=source) for n, v in found.items() if v
    }


def _wakes(p: Pieces) -> list[float]:
    """From the end of the copy that a blocked host waited for to the host's return."""
    ends = sorted(a.end for a in p.traced.trace.activities if a.kind is ActivityKind.COPY)
    found = []
    for call in p.traced.trace.calls:
        if call.kind is CallKind.SYNCHRONIZE and call.end - call.start > BLOCKED:
            before = bisect_right(ends, call.end)
            if before and call.end - ends[before - 1] < BLOCKED:
                found.append(call.end - ends[before - 1])
    return found


def _hops(p: Pieces) -> list[float]:
    """From the end of a forward to the first copy of its result, where that has its own stream."""
    copies = {r.name for r in p.template.rows if r.stream is StreamName.COPY and r.operation is Kind.COPY}
    first = next((i for i, r in enumerate(p.rows) if r is not None and r.name in copies), None)
    last = max(
        (i for i, r in enumerate(p.rows) if r is not None and r.phase is Phase.FORWARD and r.cost),
        default=None,
    )
    if first is None or last is None:
        return []
    times = [
        (p.traced.times(i, first)[0], p.traced.times(i, last)[1]) for i in range(len(p.traced.iterations))
    ]
    return [start - end for start, end in times if 0 <= start - end < BLOCKED]


def policies_shown(p: Pieces) -> dict[str, str]:
    """Scenario keys of the traced configuration, from the operations that policies inserted."""
    order = [e.label for e in p.traced.entries]
    names = set(p.policy)
    first_forward = next(
        (i for i, r in enumerate(p.rows) if r is not None and r.phase is Phase.FORWARD), len(order)
    )
    keys: dict[str, str] = {}
    if p.template.capabilities.length_source is LengthSource.PUBLISHED:
        keys["relay"] = "unified" if "resolve.gather_lengths" in names else "direct_carry"
    if "lengths.copy" in names:
        deferred = "lengths.synchronize" in order and order.index("lengths.synchronize") > first_forward
        keys["host_lengths"] = "exact_deferred" if deferred else "exact"
    if names & {"fence.synchronize", "plan.wait_fence"}:
        keys["barrier"] = "self_fence"
    elif "barrier.wait" in names:
        keys["barrier"] = "coarse" if "barrier.record" in names else "read_done"
        if order.index("barrier.wait") > first_forward:
            keys["barrier_placement"] = "after_launch"
    else:
        keys["barrier"] = "unguarded"
    if "plan.record" in names:
        keys["prep_stream"] = "plan"
    return keys
