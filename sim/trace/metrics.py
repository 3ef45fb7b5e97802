"""The books of one run: cycles, idle time, latencies. Filled by the loop, read once at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sim.errors import OverlapsimError
from sim.serving.request import Batch, Request
from sim.stats.tally import Tally
from sim.trace.record import CAUSES

#: full-batch iterations dropped at the start of a run, and the fewest intervals a cycle is reported from
#: (interface: "drop the first 5 … null under 8 such intervals")
DROPPED = 5
FEWEST = 8


class Times(Protocol):
    """Host and device times of one launch, ns."""

    entered: int
    blocked: int
    mark_issued: int
    mark_started: int
    forward_before: int


class Counters(Protocol):
    """What the books read off a machine, modelled or real: running sums in ns, ends of streams (forward first)."""

    @property
    def times(self) -> Times: ...

    idle: list[int]
    exposed: int
    blocked: int
    busy: int
    free: list[int]
    forward_started: int | None


@dataclass(slots=True)
class Sums:
    """Sums over some iterations, ns: idle by cause, time of the forward stream, host time, of it blocked; idle
    time that a late launch ended. ``steps`` counts the decode iterations among them."""

    steps: int = 0
    idle: list[int] = field(default_factory=lambda: [0] * len(CAUSES))
    forward: int = 0
    host: int = 0
    blocked: int = 0
    exposed: int = 0

    def add(
        self, steps: int, idle: Sequence[int], forward: int, host: int, blocked: int, exposed: int
    ) -> None:
        self.steps += steps
        for k, value in enumerate(idle):
            self.idle[k] += value
        self.forward += forward
        self.host += host
        self.blocked += blocked
        self.exposed += exposed

    def join(self, other: Sums) -> None:
        self.add(other.steps, other.idle, other.forward, other.host, other.blocked, other.exposed)


@dataclass(slots=True)
class RunBooks:
    """Accumulates one run. ``full`` is the batch size that counts as full (None in an open loop)."""

    full: int | None
    cycles: Tally = field(default_factory=Tally)
    itl: Tally = field(default_factory=Tally)
    ttft: Tally = field(default_factory=Tally)
    tpot_ns: list[float] = field(default_factory=list)
    lead: Tally = field(default_factory=Tally)
    decode_iterations: int = 0
    prefill_iterations: int = 0
    output_tokens: int = 0
    row_steps: int = 0
    accepted_drafts: int = 0
    fallbacks: int = 0
    carried: int = 0
    ahead: int = 0
    first_arrival: int | None = None
    last_completion: int = 0
    context_sum: float = 0.0
    #: from the first full batch whose cycle counts to the last full one, prefills between them included; and over
    #: the whole run
    loaded: Sums = field(default_factory=lambda: Sums())
    run: Sums = field(default_factory=lambda: Sums())
    #: host time between the start of a prefill iteration and the start of the next iteration; prompt tokens
    prefill_host: int = 0
    prompt_tokens: int = 0
    _full_seen: int = 0
    #: iterations just launched: full decodes in a row, and whether the last one was a prefill
    _streak: int = 0
    _since_full: Sums = field(default_factory=lambda: Sums())
    _after_prefill: bool = False
    #: mean context of the last two launches
    _contexts: tuple[float, float] = (0.0, 0.0)
    _last_entered: int = 0
    _last_idle: list[int] = field(default_factory=lambda: [0] * len(CAUSES))
    _last_forward: int = 0
    _last_blocked: int = 0
    _last_exposed: int = 0

    def launched(
        self, machine: Counters, batch: Batch, gathered: bool, fell_back: bool, context: float
    ) -> None:
        """Books one launch: the interval since the previous one, and what the forward stream did in between."""
        times = machine.times
        interval = times.entered - self._last_entered
        forward_end = machine.free[0]
        advanced = forward_end - self._last_forward
        blocked = times.blocked - self._last_blocked  # both ends as those of the interval
        full = not batch.prefill and batch.size == self.full
        first = self._last_entered == 0
        if self._after_prefill:
            self.prefill_host += interval
        self._streak = self._streak + 1 if full else 0
        if batch.prefill:
            self.prefill_iterations += 1
            self.prompt_tokens += batch.prompt_tokens
        else:
            self.decode_iterations += 1
            self.row_steps += batch.size
            if not gathered:
                self.carried += 1
            if fell_back:
                self.fallbacks += 1
            self.lead.add(times.mark_started - times.mark_issued)
            if times.mark_issued < times.forward_before:
                self.ahead += 1
        if full:
            self._full_seen += 1
            # The interval from the last launch to this one shows the forward before the last, which is still
            # running when the device is the slower side: that one must be a full decode as well.
            if self._streak > 2 and self._full_seen > DROPPED + 1:
                self.cycles.add(interval)
                self.context_sum += self._contexts[0]
        if not first:
            idle = [value - last for value, last in zip(machine.idle, self._last_idle, strict=True)]
            exposed = machine.exposed - self._last_exposed
            for sums in (self.run, self._since_full):
                sums.add(int(not batch.prefill), idle, advanced, interval, blocked, exposed)
        if full:
            if self._full_seen > DROPPED + 1:
                self.loaded.join(self._since_full)
            self._since_full = Sums()
        self._contexts = (self._contexts[1], context)
        self._after_prefill = batch.prefill
        self._last_entered = times.entered
        self._last_idle = machine.idle.copy()
        self._last_forward = forward_end
        self._last_blocked = times.blocked
        self._last_exposed = machine.exposed

    @property
    def sums(self) -> Sums:
        """The loaded stretch where a cycle can be reported from it, else the whole run."""
        return self.loaded if self.cycles.count >= FEWEST else self.run

    def arrived(self, request: Request, now: int) -> None:
        request.arrived_ns = now
        if self.first_arrival is None:
            self.first_arrival = now

    def processed(
        self,
        now: int,
        batch: Batch,
        delivered: Sequence[tuple[Request, int]],
        finished: Sequence[Request],
    ) -> None:
        """Books the tokens a result delivered at host time ``now``."""
        self.accepted_drafts += batch.accepted_drafts
        self.output_tokens += sum([tokens for _, tokens in delivered])
        lasts: dict[int, int] = {}  # when a row last got tokens → rows: nearly always one entry
        for request, _ in delivered:
            last = request.last_token_ns
            if request.first_token_ns is None:
                request.first_token_ns = now
                self.ttft.add(now - request.arrived_ns)
            elif last in lasts:
                lasts[last] += 1
            else:
                lasts[last] = 1
            request.last_token_ns = now
        for last, times in lasts.items():
            self.itl.add(now - last, times)
        for request in finished:
            self.last_completion = now
            if request.output_tokens > 1 and request.first_token_ns is not None:
                self.tpot_ns.append((now - request.first_token_ns) / (request.output_tokens - 1))

    def check(self, machine: Counters) -> None:
        """The idle causes add up to the idle time of the forward stream, exactly. Raises if they do not."""
        started = machine.forward_started or 0
        if sum(machine.idle) + machine.busy != machine.free[0] - started:
            raise OverlapsimError(
                f"idle causes sum to {sum(machine.idle)} ns but the forward stream was idle for "
                f"{machine.free[0] - started - machine.busy} ns"
            )
