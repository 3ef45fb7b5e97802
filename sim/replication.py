"""One run of a workload: machine, policies, loop and books put together, and the world outside the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import simpy

from sim.capabilities import Barrier
from sim.config.resolve import Resolved
from sim.config.scenario import ListedLengths, LogNormal, MatchExpected, TruncatedGeometric
from sim.config.scenario import PerPosition as PerPositionKeys
from sim.errors import InputError, Problem
from sim.hazards.check import HazardCheck
from sim.loops import Loop
from sim.loops.steps import Steps
from sim.machine.clients import Inbox, closed_loop, open_loop
from sim.machine.costs import CostBook, Scales
from sim.machine.machine import Machine
from sim.program.expand import Expander
from sim.program.policies import Situation, policies_of
from sim.randomness import RunKey
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
from sim.trace.metrics import FEWEST, RunBooks
from sim.trace.recorder import Recorder
from sim.units import NS_PER_S, NS_PER_US

#: prompt tokens of one prefill iteration (the engine's chunked-prefill default)
PREFILL_TOKENS = 8192


class Replication:
    """One run of the workload. ``host_factor`` multiplies every host cost (a boot's host state); ``idle_share``: for
    what share of its time the device is expected to idle (:mod:`sim.device_clock`)."""

    def __init__(
        self,
        resolved: Resolved,
        index: int,
        host_factor: float = 1.0,
        recorder: Recorder | None = None,
        hazards: bool = False,
        prefill_tokens: int = PREFILL_TOKENS,
        idle_share: float = 0.0,
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
            idle_share=idle_share,
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
        width = resolved.program.speculation
        self.steps = Steps(self.machine, self.expander, scenario.serving.graph_batches, self.block_size)
        assert isinstance(scenario.serving.min_free_slots, int)
        self.scheduler = BatchScheduler(
            scenario.serving.max_running_requests,
            scenario.serving.min_free_slots,
            prefill_tokens,
            lambda batch: width.block_at(batch, self.block_size) - 1,
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
        if self.books.output_tokens and not self._duration_s:
            found = "no cost above 0, so that a run takes no time"
            where = f"device profile {self.resolved.profile.name}: costs"
            raise InputError(Problem(where, found, "costs that take time"))
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
