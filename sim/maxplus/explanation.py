"""What limits a scenario: the steady state of its full batch at one context, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sim.config.resolve import Resolved
from sim.maxplus.attribution import Attribution, Idle
from sim.maxplus.cuts import cuts
from sim.maxplus.cycles import Cycle, cycles
from sim.maxplus.graph import EventGraph
from sim.maxplus.scenarios import fixed_batch, middle_context
from sim.maxplus.segments import stretches
from sim.maxplus.steady import SteadyGraph, SteadyState
from sim.maxplus.timeline import timeline
from sim.program.primitives import Act
from sim.trace.record import CAUSES, FORWARD_LANE
from sim.units import NS_PER_US

#: cycles at least this long, relative to the critical one, are nearly critical
NEARLY = 0.95
#: and none shorter than this is looked for
WORTH_LISTING = 0.5
#: cycles listed at most
MOST_CYCLES = 8


def explain(resolved: Resolved, context: float | None = None) -> dict[str, Any]:
    """The explanation in JSON's terms; times in µs.

    ``context``: mean tokens a request, prompt included (default: the middle of an output). Raises InputError for an
    open loop, whose batch is not fixed.
    """
    steady = SteadyGraph(fixed_batch(resolved))
    at = middle_context(resolved) if context is None else context
    state = steady.at(at)
    durations = state.weighted.durations
    listed = _listed(steady.graph, state)
    idle = _idle(state)
    turns = len(idle)
    forward, host = _sums(steady.graph, durations)
    cycle_us = float(state.cycle_ns) / NS_PER_US
    busy = sum(i.busy for i in idle) / turns / NS_PER_US / cycle_us
    return {
        "scenario": resolved.to_json(),
        "device": {"name": resolved.profile.name, "status": resolved.profile.status},
        "program": resolved.program_name,
        "solver": "maxplus",
        "batch": steady.batch.batch,
        "padded_batch": steady.batch.padded,
        "mean_context": at,
        "context_from": "middle of an output" if context is None else "given",
        "cycle_us": cycle_us,
        "settled": state.settled,
        "critical_side": state.critical.side,
        "gpu_step_us": forward / NS_PER_US,
        "host_loop_us": host / NS_PER_US,
        "critical_cycle": _cycle(state.critical, steady.graph, durations),
        "other_cycles": [_cycle(c, steady.graph, durations) for c in listed[1:]],
        "nearly_critical_from": NEARLY,
        "idle_us_per_step": {
            str(c): sum(i.by_cause.get(c, 0) for i in idle) / turns / NS_PER_US for c in CAUSES
        },
        "exposed_host_us_per_step": sum(i.exposed for i in idle) / turns / NS_PER_US,
        "gpu_busy_fraction": busy,
        "host_blocked_us_per_step": sum(i.blocked for i in idle) / turns / NS_PER_US,
        "launch_lead_us": sum(i.lead for i in idle) / turns / NS_PER_US,
        "run_ahead_fraction": sum(i.ahead for i in idle) / turns,
        "costs": [asdict(c) for c in cuts(steady, state, at)],
        "extrapolated": _extrapolated(steady, at),
        "relief_not_counted": _relief(steady, 1 - busy),
        "timeline": timeline(state),
    }


def _listed(graph: EventGraph, state: SteadyState) -> list[Cycle]:
    """The critical cycle, every nearly critical one, and the next bottleneck after those."""
    blocked = state.blocked if len(set(state.blocked)) > 1 else state.blocked[:1]
    found = [state.critical]
    least = float(state.cycle_ns)
    for cycle in cycles(graph, state.weighted.durations, blocked, WORTH_LISTING * least):
        if cycle.crossings == state.critical.crossings:
            continue
        found.append(cycle)
        if cycle.mean < NEARLY * least or len(found) == MOST_CYCLES:
            break
    return found


def _sums(graph: EventGraph, durations: Sequence[int]) -> tuple[int, int]:
    """Device time of the forward stream and host work of one turn, waits counted as calls; ns."""
    primitives = graph.turn.primitives
    n = len(primitives)
    forward = sum(
        durations[n + i] for i, p in enumerate(primitives) if p.act is Act.LAUNCH and p.stream == FORWARD_LANE
    )
    return forward, sum(durations[:n])


def _cycle(cycle: Cycle, graph: EventGraph, durations: Sequence[int]) -> dict[str, Any]:
    return {
        "mean_us": float(cycle.mean) / NS_PER_US,
        "turns": cycle.turns,
        "side": cycle.side,
        "crossings": sorted(cycle.crossings),
        "host_us": cycle.host_ns / NS_PER_US,
        "device_us": cycle.device_ns / NS_PER_US,
        "stretches": [s.to_json() for s in stretches(cycle, graph, durations)],
    }


def _idle(state: SteadyState) -> list[Idle]:
    """The forward stream of each turn of the orbit, once the causes that turns hand on have settled."""
    attribution = Attribution()
    weighted = state.weighted
    last: list[Idle] = []
    for _ in range(3):
        last = [attribution.turn(weighted, values)[1] for values in state.orbit]
    return last


def _extrapolated(steady: SteadyGraph, context: float) -> list[str]:
    """Costs used outside the range they were obtained in."""
    costs = steady.batch.resolved.profile.costs
    out = set()
    for _, share in steady.durations.named():
        used = {"batch": share.rows, "tokens": share.tokens, "context": context}
        for argument, (low, high) in costs[share.name].valid_range.items():
            if share.reading and not low <= used[argument] <= high:
                out.add(share.name)
    return sorted(out)


def _relief(steady: SteadyGraph, idle_share: float) -> dict[str, float]:
    """Graphs that a device with this share of idle time runs shorter, and by what share of them; here they are not.

    The clock that gives the relief follows the idle share of a whole run, which no recurrence over turns has.
    """
    costs = steady.batch.resolved.profile.costs
    shorter = {
        share.name: 1 - costs[share.name].relieved(share.rows, idle_share)
        for _, share in steady.durations.named()
        if not share.host
    }
    return {name: by for name, by in sorted(shorter.items()) if by > 0}
