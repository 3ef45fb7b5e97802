"""Costs of what policies insert and of the machine itself: calls, hops, relay gathers, the lengths' copy."""

from __future__ import annotations

from statistics import median

import numpy as np
from numpy.typing import NDArray

from sim.config.profile import Cost
from sim.ingest.assemble import BATCHES, file_names, rounded
from sim.ingest.deflate import Inflation
from sim.ingest.host import plan_stream_of
from sim.ingest.kineto import CallKind
from sim.ingest.pieces import Pieces
from sim.ingest.primitives import CALLS, Primitives
from sim.ingest.template import Row
from sim.program.step_program import Kind

#: more than this (µs) is no hop: the waiting stream was not ready
LONGEST_HOP = 100.0
#: an idle stream: its kernel waited for its launch
IDLE = 10.0
#: where no trace shows one (H200 data set)
DEFAULT_HOP, DEFAULT_LAUNCH_LAG = 5.4, 2.1


def call_costs(primitives: Primitives, launch_lag: float) -> dict[str, Cost]:
    """Single calls and what a blocked host pays when it wakes."""
    costs = {name: primitives.cost(name) for name in CALLS}
    status = "measured" if primitives.path else "assumed"
    where = primitives.path or "H200 defaults"
    costs["call.wake"] = Cost(
        value=round(
            max(
                0.5,
                primitives["kernel+sync roundtrip"]
                - primitives["kernel_launch_cpu(add_)"]
                - launch_lag
                - 1.0,
            ),
            2,
        ),
        status=status,
        source=f"{where}: kernel+sync roundtrip less its launch, hop.launch and a kernel of 1 us; the wait spins",
    )
    costs["call.pageable_copy"] = Cost(
        value=round(max(0.5, primitives[".cpu() 32 i64"] - primitives["d2h+sync roundtrip(32 i64)"]), 2),
        status="scaled" if primitives.path else "assumed",
        source=f"{where}: .cpu() (pageable) less the pinned round trip of the same size",
    )
    costs["host.lengths.resolve"] = Cost(
        value=2 * primitives["wait_stream_cpu"],
        status="assumed",
        source=f"entering and leaving the private stream, priced as two stream calls (wait_stream_cpu, {where})",
    )
    return costs


#: what no trace of a worker without exact lengths runs
UNTRACED = {
    "host.lengths.mirror": Cost(
        value=20.0,
        per_batch=0.1,
        status="assumed",
        source="five small CPU tensor operations at about 4 us each: index and sum of the mirror, and the bound "
        "with its sum that metadata builds from it (semantics 2.2 and 7.3); no trace of the data set runs it",
    ),
    "host.lengths.bound": Cost(
        value=4.0, status="assumed", source="one CPU tensor addition; part of 0.5.14's measured run_batch"
    ),
}


def launch_lag(traces: list[Pieces]) -> Cost:
    """End of a launch call to the kernel's start on an idle stream."""
    lags = {
        p.traced.trace.path.rsplit("/", 1)[-1]: [
            e.lag
            for e in p.traced.entries
            if e.kind == CallKind.LAUNCH and e.idle_before > IDLE and e.lag > 0
        ]
        for p in traces
    }
    name, found = max(lags.items(), key=lambda item: len(item[1]))
    if len(found) < 5:
        return Cost(
            value=DEFAULT_LAUNCH_LAG,
            status="assumed",
            source="H200 default: no trace launches into an idle stream",
        )
    return Cost(
        value=round(median(found), 2),
        status="measured",
        source=f"{name}: end of a launch call to the kernel's start on an idle stream, median",
    )


def cross_stream_hop(traces: list[Pieces]) -> Cost:
    """From an event on one stream to the operation that waited for it on another.

    A plan stream shows three hops: fence to plan stream, plan to schedule to forward stream. Without one, the
    gather of published lengths shows one, into a kernel.
    """
    for p in traces:
        if plan_stream_of(p).time:
            hops = _plan_hops(p)
            if hops is not None:
                return Cost(
                    value=round(hops / 3, 2),
                    status="measured",
                    source=f"{file_names([p])}: last append to first upload on the plan stream (one hop) and table "
                    "write to first forward kernel (two), medians, a third of the sum",
                )
    relayed = [hop for p in traces if "resolve" in p.policy_device for hop in _relay_hops(p)]
    if relayed:
        return Cost(
            value=round(median(relayed), 2),
            status="measured",
            source=f"{file_names(traces)}: publish to the lengths gather that waits for it on another stream, median",
        )
    return Cost(
        value=DEFAULT_HOP,
        status="assumed",
        source="H200 default: no trace shows an unmet wait across streams",
    )


def _relay_hops(p: Pieces) -> list[float]:
    """Published lengths to their gather in the next iteration (µs), where the stream did wait."""
    published, gathers = (
        next(
            i for i, (e, r) in enumerate(zip(p.traced.entries, p.rows, strict=True)) if e.nodes and wanted(r)
        )
        for wanted in (_is_publish, _is_relay_gather)
    )
    used = p.traced.iterations
    hops = [
        p.traced.times(i + 1, gathers)[0] - p.traced.times(i, published)[1]
        for i in range(len(used) - 1)
        if used[i + 1].index == used[i].index + 1
    ]
    return [hop for hop in hops if 0 < hop < LONGEST_HOP]


def _is_publish(row: Row | None) -> bool:
    return row is not None and row.operation is Kind.PUBLISH


def _is_relay_gather(row: Row | None) -> bool:
    return row is not None and row.role == "policy" and row.section == "resolve"


def _plan_hops(p: Pieces) -> float | None:
    def times(name: str) -> list[tuple[float, float]]:
        row = p.pieces[name].row
        column = [i for i, r in enumerate(p.rows) if r is row]
        index = column[0]
        return [p.traced.times(i, index) for i in range(len(p.traced.iterations))]

    uploads, tables = times("prepare.lengths"), times("prepare.assign")
    blocks, fences = times("draft.block"), times("append.store_4")
    into = [u[0] - f[1] for f, u in zip(fences, uploads[1:], strict=False)]
    out = [b[0] - t[1] for t, b in zip(tables, blocks, strict=True)]
    near = [g for g in into if 0 < g < LONGEST_HOP], [g for g in out if 0 < g < LONGEST_HOP]
    if not all(near):
        return None
    return median(near[0]) + median(near[1])


def traced_costs(traces: list[Pieces], amounts: Inflation, primitives: Primitives) -> dict[str, Cost]:
    """Relay gathers, the barrier call and copies, as far as traces show them; assumed where they do not."""
    gathering = [p for p in traces if "resolve" in p.policy_device]
    costs: dict[str, Cost] = {}
    if gathering:
        names = file_names(gathering)
        alone = {p.traced.batch: p.pieces["enter.tokens"].device for p in gathering}
        costs["relay.gather_tokens"] = _over_traces(alone, f"{names}: token gather that opens the forward")
        # The traced lengths gather runs beside the draft append, which stretches it several times and hides it.
        costs["relay.gather_lengths"] = _over_traces(
            alone,
            f"{names}: the token gather, one index kernel over the rows as well, with nothing beside it",
        )
        barrier = median(
            amounts.deflate(p.policy["receive"], amounts.states[p.traced.trace.path]) for p in gathering
        )
        costs["host.barrier"] = Cost(
            value=round(max(0.0, barrier - primitives["event_wait_cpu"]), 2),
            status="measured",
            source=f"{names}: the loop's barrier call deflated, less call.wait",
        )
    else:
        costs["relay.gather_lengths"] = Cost(
            value=5.0, status="assumed", source="one small gather; no trace runs it"
        )
        costs["relay.gather_tokens"] = Cost(
            value=3.0, status="assumed", source="one small gather; no trace runs it"
        )
        costs["host.barrier"] = Cost(
            value=4.0, status="assumed", source="Python around the call; no trace runs it"
        )
    copies = gathering or traces
    costs["lengths.copy"] = Cost(
        value=round(median(p.pieces["copy.accepted"].device for p in copies), 2),
        status="scaled",
        source=f"{file_names(copies)}: as the smaller result copy to pinned memory (the pool has about 70 rows)",
    )
    return costs


def relay_resolve(total: NDArray[np.float64] | None, primitives: Primitives) -> Cost:
    """Host part of resolve with its gather: the unprofiled section less its wait call, or a launch where unknown."""
    if total is None:
        return Cost(
            value=primitives["kernel_launch_cpu(add_)"] * 6,
            status="assumed",
            source="one gather through the framework with its Python; no timing of resolve",
        )
    return Cost(
        value=rounded(total - primitives["event_wait_cpu"]),
        batch=BATCHES,
        status="measured",
        valid_range={"batch": (BATCHES[0], BATCHES[-1])},
        source="cycles.csv: host_resolve_us of 0.5.15 default at host state 1, less call.wait",
    )


def _over_traces(values: dict[int, float], source: str) -> Cost:
    batches = tuple(sorted(values))
    if len(batches) == 1:
        return Cost(value=round(values[batches[0]], 2), status="measured", source=source)
    return Cost(
        value=tuple(round(values[b], 2) for b in batches), batch=batches, status="measured", source=source
    )
