"""What the traces show before anything is simulated: the host's work and waits, the device's use, who limits whom."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sim.ingest.assemble import MERGED
from sim.ingest.deflate import Inflation
from sim.ingest.device import trace_name
from sim.ingest.iterations import Entry
from sim.ingest.kineto import CallKind
from sim.ingest.pieces import Pieces
from sim.program.step_program import Kind

#: shares of the cycle below which idle time, or waiting, is not what limits it
NEGLIGIBLE = 0.01
#: a gap between queued kernels is no idle time (µs)
QUEUED_GAP = 5.0
#: a synchronisation that took longer than its call (µs) blocked the host
BLOCKED = 20.0


@dataclass(frozen=True)
class TraceSummary:
    """One trace, µs an iteration unless a share is meant."""

    trace: str
    batch: int
    iterations: int
    #: target start to target start, in profiled time
    cycle: float
    #: host work by section: traced, and with profiling removed at host state 1
    host: dict[str, dict[str, float]]
    #: where the host blocked, and for how long
    waits: dict[str, float]
    host_state: float
    gpu_busy_fraction: float
    #: idle time of the forward stream, in profiled time
    exposed_host: float
    critical_side: str


@dataclass(frozen=True)
class Summary:
    traces: list[TraceSummary]
    #: µs that profiling adds for each recorded thing, and where that comes from
    profiling: dict[str, float]
    profiling_source: str
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For people: one paragraph a trace."""
        out = []
        for t in self.traces:
            host = sum(s["unprofiled"] for s in t.host.values())
            waits = ", ".join(f"{v:,.0f} us in {k}" for k, v in t.waits.items()) or "nowhere"
            out.append(
                f"{t.trace}: batch {t.batch}, {t.iterations} iterations of {t.cycle:,.0f} us; host works "
                f"{host:,.0f} us (profiling removed), waits {waits}; GPU busy {t.gpu_busy_fraction:.1%}, exposed "
                f"host time {t.exposed_host:,.0f} us; limited by: {t.critical_side}"
            )
        added = ", ".join(f"{k} {v:.2f} us" for k, v in self.profiling.items())
        out.append(f"profiling adds ({self.profiling_source}): {added}")
        return out + [f"note: {n}" for n in self.notes]


def summarise(traces: list[Pieces], amounts: Inflation, notes: list[str]) -> Summary:
    return Summary(
        traces=[_trace(p, amounts) for p in traces],
        profiling=amounts.amount,
        profiling_source="fitted to the unprofiled timings"
        if amounts.fitted
        else "defaults, not measured here",
        notes=notes,
    )


def _trace(p: Pieces, amounts: Inflation) -> TraceSummary:
    state = amounts.states[p.traced.trace.path]
    host: dict[str, dict[str, float]] = {}
    for piece in p.pieces.values():
        section = host.setdefault(
            MERGED.get(piece.section, piece.section), {"traced": 0.0, "unprofiled": 0.0}
        )
        section["traced"] += piece.host.time + piece.graph_time
        section["unprofiled"] += amounts.deflate(piece.host, state)
    idle = forward_idle(p)
    waits = _waits(p.traced.entries)
    cycle = p.traced.cycle
    blocked = sum(waits.values())
    side = "gpu" if idle < NEGLIGIBLE * cycle else "host" if blocked < NEGLIGIBLE * cycle else "exposed"
    return TraceSummary(
        trace=trace_name(p),
        batch=p.traced.batch,
        iterations=len(p.traced.iterations),
        cycle=round(cycle, 1),
        host={k: {n: round(v, 1) for n, v in s.items()} for k, s in host.items()},
        waits={k: round(v, 1) for k, v in waits.items()},
        host_state=round(state, 3),
        gpu_busy_fraction=round(max(0.0, 1 - idle / cycle), 4),
        exposed_host=round(idle, 1),
        critical_side=side,
    )


def forward_idle(p: Pieces) -> float:
    """Median over iterations of the forward stream's idle time: gaps longer than those between queued kernels."""
    streams = {piece.stream for piece in p.pieces.values() if piece.kind is Kind.GRAPH}
    return median(
        sum(
            e.idle_before for e in i.entries if e.nodes and e.stream in streams and e.idle_before > QUEUED_GAP
        )
        for i in p.traced.iterations
    )


def _waits(entries: list[Entry]) -> dict[str, float]:
    """Time in blocking calls by the innermost annotation around them."""
    found: dict[str, float] = {}
    inside: list[str] = []
    for e in entries:
        if e.kind == "open":
            inside.append(e.label)
        elif e.kind == "close" and e.label in inside:
            inside.remove(e.label)
        elif e.kind == CallKind.SYNCHRONIZE and e.call > BLOCKED:
            where = inside[-1] if inside else "the loop"
            found[where] = found.get(where, 0.0) + e.call
    return found
