"""The composition root: a resolved scenario becomes a machine, policies, a loop and books; then a result.

One *replication* is one run of the workload with its own luck. Replications run at the host state the costs are
stated at; the spread between boots enters ``pi95`` through two extra runs of the first replication, at the ends
of the profile's host-state range.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import simpy

from sim.capabilities import Barrier
from sim.config.resolve import Resolved
from sim.config.scenario import ListedLengths, LogNormal, MatchExpected, TruncatedGeometric
from sim.config.scenario import PerPosition as PerPositionKeys
from sim.errors import InputError, Problem
from sim.hazards.check import HazardCheck, merged
from sim.loops import Loop
from sim.loops.steps import Steps
from sim.machine.clients import Inbox, closed_loop, open_loop
from sim.machine.costs import CostBook, Scales
from sim.machine.machine import Machine
from sim.program.expand import Expander
from sim.program.policies import Situation, policies_of
from sim.randomness import RunKey
from sim.result import Estimate, RunResult
from sim.serving.request import Batch, Request
from sim.serving.scheduler import BatchScheduler
from sim.serving.workload import Lengths, Workload
from sim.spec.acceptance import (
    AcceptanceModel,
    MatchExpectedAcceptance,
    PerPositionAcceptance,
    RecordedAcceptance,
    geometric_probability,
)
from sim.stats.intervals import mean_interval, new_boot_interval, next_run_half_width
from sim.stats.tally import Tally
from sim.trace import chrome
from sim.trace.metrics import FEWEST, RunBooks
from sim.trace.record import CAUSES
from sim.trace.recorder import Recorder
from sim.uncertainty import Work
from sim.units import NS_PER_MS, NS_PER_S, NS_PER_US

#: prompt tokens of one prefill iteration (the engine's chunked-prefill default)
PREFILL_TOKENS = 8192
#: most replications `until` may ask for
MOST_REPLICATIONS = 400
#: an exposed or blocked share of the cycle below this is not what limits it
NEGLIGIBLE = 0.01


def simulate(
    resolved: Resolved,
    *,
    until: float | None = None,
    trace: Path | None = None,
    new_boots: bool = True,
    hazards: bool = True,
) -> RunResult:
    """Runs a resolved scenario.

    ``until``: go on replicating until the half-width of the throughput's ``ci95`` is at most this share of it.
    ``trace``: write the first replication there as Chrome/Perfetto JSON (gzipped if it ends in .gz).
    ``new_boots``: also run at other host states, which ``pi95`` needs; without, ``pi95`` is None.
    ``hazards``: check every replication's shared accesses; without, the result's ``hazards`` is None.
    Raises InputError when ``until`` is set and the run is too short for a cycle or the replications run out,
    WaitError when the step program waits for an event that nothing records.
    """
    began = time.perf_counter()
    scenario = resolved.scenario
    wanted = scenario.run.replications
    recorder = None if trace is None else Recorder()
    runs = [
        Replication(resolved, r, recorder=recorder if r == 0 else None, hazards=hazards).run()
        for r in range(wanted)
    ]
    if until is not None:
        _refuse_short(runs, resolved)
        while not _narrow(runs, until):
            if len(runs) >= MOST_REPLICATIONS:
                raise InputError(
                    Problem(
                        "--until",
                        f"still wider than {until:.3%} after {MOST_REPLICATIONS} replications",
                        "a half-width this workload can reach",
                        "Ask for a wider interval or simulate more requests.",
                    )
                )
            runs.append(Replication(resolved, len(runs), hazards=hazards).run())
    nodes = _at_other_host_states(resolved) if new_boots else None
    result = _result(resolved, runs, nodes, time.perf_counter() - began)
    if trace is not None and recorder is not None:
        chrome.write(trace, recorder.records)
    return result


def _at_other_host_states(resolved: Resolved) -> list[Replication]:
    """The first replication's luck at both ends of the host states a boot may be in.

    Cycle and throughput are monotone in the host factor, so the ends of the states give the ends of the answer.
    """
    by_probability = sorted(resolved.profile.host_state.quantiles.items(), key=lambda item: float(item[0]))
    ends = {by_probability[0][1], by_probability[-1][1]} if by_probability else set()
    return [Replication(resolved, 0, host_factor=factor).run() for factor in sorted(ends - {1.0})]


class Replication:
    """One run of the workload. ``host_factor`` multiplies every host cost (a boot's host state)."""

    def __init__(
        self,
        resolved: Resolved,
        index: int,
        host_factor: float = 1.0,
        recorder: Recorder | None = None,
        hazards: bool = False,
    ):
        scenario = resolved.scenario
        self.resolved = resolved
        assert scenario.block_size is not None
        self.block_size = scenario.block_size
        key = RunKey(scenario.run.seed, index)
        self.env = simpy.Environment()
        self.costs = CostBook(
            resolved.profile,
            Scales(scenario.host_scale * host_factor, scenario.device_scale),
            key,
        )
        policies = policies_of(resolved)
        self.hazards = (
            HazardCheck(
                self.block_size,
                scenario.serving.max_running_requests,
                scenario.serving.page_size,
                policies.barrier is Barrier.READ_DONE,
            )
            if hazards
            else None
        )
        self.machine = Machine(self.env, self.costs, recorder, self.hazards)
        self.expander = Expander(resolved.program, policies, scenario.serving.page_size)
        self.steps = Steps(self.machine, self.expander, scenario.serving.graph_batches, self.block_size)
        assert isinstance(scenario.serving.min_free_slots, int)
        self.scheduler = BatchScheduler(
            scenario.serving.max_running_requests,
            scenario.serving.min_free_slots,
            PREFILL_TOKENS,
            self.block_size - 1,
        )
        self.workload = Workload(
            scenario.workload.requests,
            lengths_of(scenario.workload.prompt_tokens),
            lengths_of(scenario.workload.output_tokens),
            acceptance_of(scenario.acceptance, self.block_size),
            key,
        )
        self.books = RunBooks(scenario.workload.concurrency)
        self.inbox = Inbox(self.env)
        self._done: dict[int, simpy.Event] = {}
        self.situations: dict[Situation, int] = {}

    def run(self) -> Replication:
        """Simulates to the last completion; returns itself."""
        loop = Loop(self.machine, self.scheduler, self.steps, self, self.hazards)
        self._start_clients()
        host = loop.overlapped() if self.resolved.scenario.overlap else loop.synchronous()
        self.env.run(until=self.env.process(host))
        self.books.check(self.machine)
        self.costs.check_context()
        return self

    # -- the world outside the engine (sim.loops.Outside) ------------------------------------------------

    def _start_clients(self) -> None:
        keys = self.resolved.scenario.workload
        if keys.arrival_rate_per_s is not None:
            rate = keys.arrival_rate_per_s
            gaps = (
                (i, round(self.workload.interarrival_s(i, rate) * NS_PER_S)) for i in range(keys.requests)
            )
            self.env.process(open_loop(self.env, self.inbox, gaps))
        else:
            indices = iter(range(keys.requests))
            delay = round(keys.client_delay_us * NS_PER_US)
            for _ in range(min(keys.concurrency or 1, keys.requests)):
                self.env.process(closed_loop(self.env, self.inbox, indices, self._completion, delay))
        # Clients that start at time 0 send before the host first looks.
        self.env.run(until=self.env.timeout(0))

    def _completion(self, index: int) -> simpy.Event:
        self._done[index] = self.env.event()
        return self._done[index]

    def receive(self, scheduler: BatchScheduler) -> None:
        for index, arrived in self.inbox.take_all():
            request = self.workload.make(index)
            self.books.arrived(request, arrived)
            scheduler.submit(request)

    def exhausted(self) -> bool:
        return self.inbox.exhausted

    def arrival(self) -> simpy.Event:
        return self.inbox.arrival()

    def launched(self, batch: Batch, situation: Situation, context: float) -> None:
        policies = self.expander.policies
        fell_back = (
            policies.overlap and policies.barrier is Barrier.READ_DONE and not situation.read_end_recorded
        )
        self.books.launched(self.machine, batch, situation.gathered, fell_back, context)
        if not batch.prefill:
            self.situations[situation] = self.situations.get(situation, 0) + 1

    def processed(
        self, batch: Batch, delivered: list[tuple[Request, int]], finished: Sequence[Request]
    ) -> None:
        self.books.processed(self.machine.now, batch, delivered, finished)
        for request in finished:
            done = self._done.pop(request.index, None)
            if done is not None:
                done.succeed()

    # -- what the whole run says ---------------------------------------------------------------------------

    @property
    def throughput(self) -> float:
        """Output tokens over the time from first arrival to last completion, tok/s."""
        return self.books.output_tokens / self._duration_s

    @property
    def steps_per_s(self) -> float:
        return self.books.decode_iterations / self._duration_s

    @property
    def _duration_s(self) -> float:
        return (self.books.last_completion - (self.books.first_arrival or 0)) / NS_PER_S

    @property
    def cycle(self) -> float | None:
        """Mean full-batch cycle, µs; None under 8 intervals."""
        tally = self.books.cycles
        if tally.count < FEWEST or tally.mean is None:
            return None
        return tally.mean / NS_PER_US


# -- from the scenario's keys to objects ----------------------------------------------------------------------


def lengths_of(keys: Any) -> Lengths:
    if isinstance(keys, LogNormal):
        return Lengths(mean=keys.mean, cv=keys.cv)
    if isinstance(keys, ListedLengths):
        return Lengths(listed=keys.values)
    return Lengths(fixed=int(keys))


def acceptance_of(keys: Any, block_size: int) -> AcceptanceModel:
    """The acceptance model of a block of ``block_size`` positions (block_size − 1 drafts)."""
    drafts = block_size - 1
    if isinstance(keys, TruncatedGeometric):
        if drafts == 0:
            return PerPositionAcceptance([], 0)
        p = geometric_probability(keys.mean_accepted_drafts, drafts)
        return PerPositionAcceptance([p] * drafts, drafts)
    if isinstance(keys, PerPositionKeys):
        return PerPositionAcceptance(keys.probabilities, drafts)
    if isinstance(keys, MatchExpected):
        return MatchExpectedAcceptance(min(keys.mean_accepted_drafts, drafts), drafts)
    return RecordedAcceptance(dict(enumerate(keys.values or ())), drafts)


# -- from replications to a result ----------------------------------------------------------------------------


def _refuse_short(runs: Sequence[Replication], resolved: Resolved) -> None:
    full = resolved.scenario.workload.concurrency
    if full is not None and any(r.cycle is None for r in runs):
        fewest = min(r.books.cycles.count for r in runs)
        raise InputError(
            Problem(
                "workload",
                f"a run with only {fewest} full-batch cycles",
                f"at least {FEWEST} of them for --until",
                "Raise workload.requests or workload.output_tokens, or lower workload.concurrency.",
            )
        )


def _narrow(runs: Sequence[Replication], until: float) -> bool:
    interval = mean_interval([r.throughput for r in runs])
    if interval is None:
        return False
    low, high = interval
    return (high - low) / 2 <= until * (high + low) / 2


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


def _result(
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
        notes=list(resolved.notes),
        wall_s=round(wall_s, 4),
        samples={
            "throughput_tok_s": [round(r.throughput, 4) for r in runs],
            "cycle_us": [None if r.cycle is None else round(r.cycle, 4) for r in runs],
            "host_factors": [round(r.costs.scales.host / resolved.scenario.host_scale, 6) for r in others],
            "throughput_tok_s_at_factors": [round(r.throughput, 4) for r in others],
            "cycle_us_at_factors": [None if r.cycle is None else round(r.cycle, 4) for r in others],
        },
    )


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
    decode = Work.of(first.costs, pieces, batch, padded, first.block_size, context)
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


def package_version() -> str:
    try:
        return version("overlapsim")
    except PackageNotFoundError:
        return "0+unknown"
