"""One turn of a scheduler loop with a fixed batch: the primitives in host order, and what each one costs.

A turn is what the host does between two looks at its inbox: receive, launch forward i, and process the result
that is due (that of forward i−1 when overlapped, of forward i when not; semantics 1.2 and 1.11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from sim import relay
from sim.config.resolve import Resolved
from sim.program.expand import Expander
from sim.program.policies import Situation, policies_of
from sim.program.primitives import Act, Primitive, first_launches
from sim.trace.record import Cause


@dataclass(frozen=True, slots=True)
class Share:
    """What one host section or device operation costs: ``share`` of the cost ``name`` at these rows and tokens.

    ``reading`` is the part of the rows that read context (padded graph rows read none); ``late`` marks work on a
    result, whose context already contains the step that was launched in between.
    """

    name: str
    share: float
    host: bool
    rows: int
    tokens: int
    reading: float = 1.0
    late: bool = False
    #: a host cost to which the first launch after a host section adds
    first: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """Primitives of one turn; ``host[i]`` and ``device[i]`` say what primitive i costs, None for nothing;
    ``wakes[i]`` the wake of a synchronisation that has a cost of its own.

    ``due`` tells whether the result processed in this turn was launched in the one before.
    """

    primitives: tuple[Primitive, ...]
    host: tuple[Share | None, ...]
    device: tuple[Share | None, ...]
    wakes: tuple[Share | None, ...]
    due: bool


class FixedBatch:
    """The turns of a run whose requests all arrive at once and outlast it.

    Turn 0 launches the prefill of the whole batch, turn 1 the first decode (nothing recorded for its waits by the
    prefill), turn 2 is the first with a decode on either side; from turn 3 on every turn is alike.
    ``batch`` defaults to the scenario's concurrency.
    """

    def __init__(self, resolved: Resolved, batch: int | None = None, prompt_tokens: int = 1):
        scenario = resolved.scenario
        assert scenario.block_size is not None
        self.resolved = resolved
        self.batch = batch or scenario.workload.concurrency or scenario.serving.max_running_requests
        self.prompt_tokens = prompt_tokens
        self.block_size = resolved.program.speculation.block_at(self.batch, scenario.block_size)
        self.policies = policies_of(resolved)
        self._graphs = sorted(scenario.serving.graph_batches)
        self._expander = Expander(resolved.program, self.policies, scenario.serving.page_size)
        self._expand = cache(self._expander.expand)
        gathered = relay.gathers(self.policies.relay, carry_valid=True)
        # A prefill leaves no event for the waits of the next iteration, and at the start there is none either.
        self._prefill = Situation(True, False, False, gathered, read_end_recorded=False, fence_recorded=False)
        self._first = replace(self._prefill, prefill=False)
        self._steady = replace(
            self._first,
            read_end_recorded=self._expander.records_read_end,
            fence_recorded=self._expander.records_fence,
        )

    @property
    def padded(self) -> int:
        """Rows of a captured graph that serves this batch; the batch itself where none is large enough."""
        return self._padded(self.batch)

    def turn(self, k: int) -> Turn:
        """Turn ``k`` of the run."""
        launched = self._situation(k)
        due = self.policies.overlap
        processed = self._situation(k - 1) if due else launched
        shares: list[tuple[Primitive, Share | None, Share | None]] = []
        shares += self._receive()
        shares += self._piece(self._expand(launched).launch, launched)
        if k > 0 or not due:
            shares += self._piece(self._expand(processed).process, processed, late=True)
        primitives, host, device = zip(*shares, strict=True)
        return Turn(primitives, host, device, tuple(map(self._own_wake, primitives)), due)

    @property
    def steady(self) -> Turn:
        return self.turn(3)

    def _own_wake(self, p: Primitive) -> Share | None:
        named = p.act is Act.SYNC and p.own_wake in self.resolved.profile.costs
        return Share(p.own_wake, 1.0, True, self.batch, 1, reading=0.0) if named else None

    def _situation(self, k: int) -> Situation:
        return self._prefill if k <= 0 else self._first if k == 1 else self._steady

    def _padded(self, batch: int) -> int:
        return next((g for g in self._graphs if g >= batch), batch)

    def _receive(self) -> list[tuple[Primitive, Share | None, Share | None]]:
        """Polling knows no batch: one row, no context."""
        polled = self._shares(self._expand(Situation()).receive, 1, None)
        return [(p, host and replace(host, reading=0.0), device) for p, host, device in polled]

    def _piece(
        self, primitives: Sequence[Primitive], situation: Situation, late: bool = False
    ) -> list[tuple[Primitive, Share | None, Share | None]]:
        if not situation.prefill:
            return self._shares(primitives, self.batch, None, late)
        # Whatever idles in a prefill iteration idles because of the prefill; the wait for a result is its own cause.
        primitives = [
            p if p.cause is Cause.COPY_DONE else replace(p, cause=Cause.PREFILL) for p in primitives
        ]
        return self._shares(primitives, self.batch, self.batch * self.prompt_tokens, late)

    def _shares(
        self, primitives: Sequence[Primitive], batch: int, tokens: int | None, late: bool = False
    ) -> list[tuple[Primitive, Share | None, Share | None]]:
        """``tokens`` of a prefill; None: rows times block."""
        out: list[tuple[Primitive, Share | None, Share | None]] = []
        firsts = first_launches(primitives)
        for i, p in enumerate(primitives):
            host = device = None
            if p.host is not None:
                host = Share(
                    p.host,
                    p.share,
                    True,
                    batch,
                    batch * self.block_size if tokens is None else tokens,
                    late=late,
                    first=i in firsts,
                )
            if p.act is Act.LAUNCH and p.device is not None:
                rows = self._padded(batch) if p.kind == "graph" else batch
                device = Share(
                    p.device,
                    1.0,
                    False,
                    rows,
                    rows * self.block_size if tokens is None else tokens,
                    batch / rows,
                    late,
                )
            out.append((p, host, device))
        return out
