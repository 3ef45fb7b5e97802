"""From replications to a result: means, the two intervals, idle by cause, what is critical and what is assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sim.config.resolve import Resolved
from sim.hazards.check import merged
from sim.program.policies import Situation
from sim.replication import Replication
from sim.result import Estimate, RunResult
from sim.stats.intervals import mean_interval, new_boot_interval, next_run_half_width
from sim.stats.tally import Tally
from sim.trace.record import CAUSES
from sim.uncertainty import Work
from sim.units import NS_PER_MS, NS_PER_US
from sim.version import package_version

#: an exposed or blocked share of the cycle below this is not what limits it
NEGLIGIBLE = 0.01


def _estimate(
    values: Sequence[float | None], at_nodes: Sequence[float | None] | None, other_sd: float
) -> Estimate:
    """Mean over replications, interval of the mean, interval for a new boot (none without ``at_nodes``)."""
    if any(v is None for v in values):
        return Estimate(None)
    known = [v for v in values if v is not None]
    mean = math.fsum(known) / len(known)
    if mean == 0:
        return Estimate(mean)
    if at_nodes is None:
        return Estimate(mean, mean_interval(known))
    ratios = [v / known[0] for v in at_nodes if v is not None]
    luck = next_run_half_width(known) / mean
    pi = new_boot_interval(mean, ratios, other_sd, luck)
    return Estimate(mean, mean_interval(known), pi)


def _each(nodes: Sequence[Replication] | None, name: str) -> list[float | None] | None:
    return None if nodes is None else [getattr(r, name) for r in nodes]


def summarise(
    resolved: Resolved, runs: Sequence[Replication], nodes: Sequence[Replication] | None, wall_s: float
) -> RunResult:
    books = [r.books for r in runs]
    others = nodes or ()
    steps = sum(b.sums.steps for b in books)
    forward, host = sum(b.sums.forward for b in books), sum(b.sums.host for b in books)
    blocked, exposed = sum(b.sums.blocked for b in books), sum(b.sums.exposed for b in books)
    idle = [sum(b.sums.idle[k] for b in books) for k in range(len(CAUSES))]
    decodes = sum(b.decode_iterations for b in books)
    row_steps = sum(b.row_steps for b in books)
    side = _critical_side(exposed, blocked, forward, host)
    shares, cycle_sd, run_sd = _shares(resolved, runs[0], exposed, forward)
    cycles, tpot, itl, ttft, lead = Tally(), Tally(), Tally(), Tally(), Tally()
    for b in books:
        cycles.merge(b.cycles)
        itl.merge(b.itl)
        ttft.merge(b.ttft)
        lead.merge(b.lead)
        for value in b.tpot_ns:
            tpot.add(round(value))
    cycle = _estimate([r.cycle for r in runs], _each(nodes, "cycle"), cycle_sd)
    median = cycles.quantile(0.5) if cycle.mean is not None else None
    contexts = sum(b.context_sum for b in books)
    extrapolated = sorted({name for r in runs for name in r.costs.extrapolated})
    clipped = sorted({name for r in (*runs, *others) for name in r.costs.clipped})
    accepted = _ratio(sum(b.accepted_drafts for b in books), row_steps)
    return RunResult(
        scenario=resolved.to_json(),
        device={
            "name": resolved.profile.name,
            "status": resolved.profile.status,
            "sha256": resolved.profile_sha256,
        },
        version=package_version(),
        seed=resolved.scenario.run.seed,
        replications=len(runs),
        throughput_tok_s=_estimate([r.throughput for r in runs], _each(nodes, "throughput"), run_sd),
        cycle_us=Estimate(cycle.mean, cycle.ci95, cycle.pi95, None if median is None else median / NS_PER_US),
        steps_per_s=_estimate([r.steps_per_s for r in runs], _each(nodes, "steps_per_s"), run_sd),
        accepted_per_step={
            "with_bonus": None if accepted is None else round(accepted + 1, 6),
            "without_bonus": None if accepted is None else round(accepted, 6),
        },
        tpot_ms=_summary(tpot, NS_PER_MS),
        itl_ms=_summary(itl, NS_PER_MS),
        ttft_ms=_summary(ttft, NS_PER_MS),
        gpu_busy_fraction=_ratio(forward - sum(idle), forward, 6),
        host_busy_fraction=_ratio(host - blocked, host, 6),
        exposed_host_us_per_step=_ratio(exposed / NS_PER_US, steps, 3),
        launch_lead_us=_summary(lead, NS_PER_US),
        run_ahead_fraction=_ratio(sum(b.ahead for b in books), decodes, 6),
        barrier_fallback_fraction=_ratio(sum(b.fallbacks for b in books), decodes, 6),
        direct_carry_fraction=_ratio(sum(b.carried for b in books), decodes, 6),
        idle_us_per_step={
            str(cause): round(idle[k] / NS_PER_US / steps, 3) if steps else 0.0
            for k, cause in enumerate(CAUSES)
        },
        critical_side=side,
        cost_share_by_status=shares,
        extrapolated=extrapolated,
        hazards=_findings(runs),
        iterations=decodes,
        prefill_iterations=sum(b.prefill_iterations for b in books),
        mean_context=_ratio(contexts, cycles.count, 3),
        notes=[*resolved.notes, *_clipped(clipped)],
        wall_s=round(wall_s, 4),
        program=resolved.program_name,
        samples={
            "throughput_tok_s": [round(r.throughput, 4) for r in runs],
            "cycle_us": [None if r.cycle is None else round(r.cycle, 4) for r in runs],
            "host_factors": [round(r.costs.scales.host / resolved.scenario.host_scale, 6) for r in others],
            "throughput_tok_s_at_factors": [round(r.throughput, 4) for r in others],
            "cycle_us_at_factors": [None if r.cycle is None else round(r.cycle, 4) for r in others],
        },
    )


def _clipped(names: Sequence[str]) -> list[str]:
    """The note of costs that extending them beyond their valid range leads below zero."""
    if not names:
        return []
    return [f"below 0 outside their valid range and counted as 0: {', '.join(names)}"]


def _findings(runs: Sequence[Replication]) -> list[dict[str, Any]] | None:
    checks = [r.hazards for r in runs if r.hazards is not None]
    return merged(checks) if checks else None


def _critical_side(exposed: int, blocked: int, forward: int, host: int) -> str | None:
    """gpu: the forward stream hardly waits for launches; host: it does and the host hardly blocks; else exposed."""
    if not forward or not host:
        return None
    if exposed < NEGLIGIBLE * forward:
        return "gpu"
    return "host" if blocked < NEGLIGIBLE * host else "exposed"


def _shares(
    resolved: Resolved, first: Replication, exposed: int, forward: int
) -> tuple[dict[str, float], float, float]:
    """Share of one decode iteration's work by status of its cost; the relative uncertainty costs put into a cycle,
    and into the time of a whole run, prefills included."""
    if not first.situations:
        return {}, 0.0, 0.0
    profile, books = resolved.profile, first.books
    situation = max(first.situations, key=lambda s: (first.situations[s], repr(s)))
    full = resolved.scenario.workload.concurrency
    batch = full if full and books.cycles.count else max(1, round(books.row_steps / books.decode_iterations))
    context = books.context_sum / books.cycles.count if books.cycles.count else first.costs.largest_context
    padded = next((g for g in resolved.scenario.serving.graph_batches if g >= batch), batch)
    iteration = first.expander.expand(situation)
    pieces = (iteration.receive, iteration.launch, iteration.process)
    block = resolved.program.speculation.block_at(batch, first.block_size)
    decode = Work.of(first.costs, pieces, batch, padded, block, context)
    outside = first.costs.extrapolated
    decode_sd = decode.relative_sd(profile, exposed / forward if forward else 0.0, outside)

    rows = max(1, round(resolved.scenario.workload.requests / max(1, books.prefill_iterations)))
    tokens = round(books.prompt_tokens / max(1, books.prefill_iterations))
    prefill_launch = first.expander.expand(Situation(prefill=True)).launch
    prefill = Work.of(first.costs, [prefill_launch], rows, rows, first.block_size, 0.0, tokens)
    # A prefill's host and device follow one another (the engine waits for it), so each counts by its length.
    host, device = sum(prefill.host.values()), sum(prefill.device.values())
    host_share = host / (host + device) if host + device else 0.0
    prefill_sd = prefill.relative_sd(profile, host_share, outside)
    share = books.prefill_host / books.run.host if books.run.host else 0.0
    boot = profile.device_boot_sd
    run_sd = math.hypot((1 - share) * decode_sd, share * prefill_sd)
    return decode.by_status(profile), math.hypot(boot, decode_sd), math.hypot(boot, run_sd)


def _summary(tally: Tally, unit: int) -> dict[str, float | None]:
    mean = tally.mean
    out: dict[str, float | None] = {"mean": None if mean is None else round(mean / unit, 6)}
    for label, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value = tally.quantile(q)
        out[label] = None if value is None else round(value / unit, 6)
    return out


def _ratio(a: float, b: float, digits: int = 9) -> float | None:
    return round(a / b, digits) if b else None
