"""A step program: the ordered operations of one iteration, as an engine's worker declares them.

The file form is ``configs/algorithms/<algorithm>@<engine>.toml``. Operations stand in host program order; the
phases they belong to are the steps of the scheduler's loop, which may order phases differently (overlapped or
synchronous) but never the operations inside one. Both solvers read this same list through
:mod:`sim.program.expand`, which inserts what the chosen policies add.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sim.capabilities import Capabilities
from sim.program.buffers import parse_access


class Phase(StrEnum):
    """Steps of one iteration, in the overlapped loop's order."""

    RECEIVE = "receive"  # poll for requests, dispatch them
    SCHEDULE = "schedule"  # choose the batch, filter and merge
    PREPARE = "prepare"  # decode preparation: allocation and writes to shared buffers
    RESOLVE = "resolve"  # what the relay and the host lengths need (policies fill it; host work may be added)
    ENTER = "enter"  # enter the forward stream, entry gathers, isolation
    FORWARD = "forward"  # the worker: draft, verify, publish, tail, stash
    COPY = "copy"  # results to the host
    QUEUE = "queue"  # remember the batch
    PROCESS = "process"  # after the wait for the previous result's copy: per-request result loop


class Kind(StrEnum):
    HOST = "host"  # host work only
    KERNEL = "kernel"  # one eager launch
    GRAPH = "graph"  # one graph launch: one host cost, one device span, padded batch
    COPY = "copy"  # one asynchronous copy
    RECORD = "record"  # event recorded on `stream`
    WAIT = "wait"  # `stream` waits for `event`, or for the tail of stream `on`
    SYNCHRONIZE = "synchronize"  # host waits for `event`, or for the tail of stream `on`
    PUBLISH = "publish"  # a kernel that writes the new lengths, then records `publish_ready`
    STASH = "stash"  # a kernel that writes relayed fields


class StreamName(StrEnum):
    SCHEDULE = "schedule"
    FORWARD = "forward"
    COPY = "copy"  # result copies, where the engine keeps them off the forward stream
    D2H = "d2h"  # the private stream of the lengths' copy
    PLAN = "plan"
    PREP = "prep"  # whichever of schedule and plan the policy `prep_stream` names
    AUX = "aux"  # a worker's own second stream


class Fact(StrEnum):
    """What can be true of one iteration; an operation with ``when`` runs only if all its facts hold.

    Each fact but PADDED, LENGTHS_ON_HOST and PREVIOUS_* has a negation spelt ``not_<fact>``.
    """

    FILTERED = "filtered"  # a finished request leaves the batch in this iteration
    MERGED = "merged"  # a prefilled request joins a running batch in this iteration
    CHANGED = "changed"  # either
    GATHERED = "gathered"  # the relay gathers by row in this iteration
    CARRIED = "carried"  # the relay hands over by reference
    LENGTHS_ON_HOST = "lengths_on_host"  # exact lengths reach the host in this iteration
    OVERLAP = "overlap"
    SYNCHRONOUS = "synchronous"
    PLAN_STREAM = "plan_stream"
    PAGED = "paged"  # page_size > 1


class Mark(StrEnum):
    """Places in the list that policies refer to."""

    LAST_SHARED_READ = "last_shared_read"  # after it, schedule-stream writes no longer disturb this forward
    SELF_FENCE = "self_fence"  # after it, the worker's own fence may be recorded
    FIRST_USE_OF_HOST_LENGTHS = "first_use_of_host_lengths"  # before it, exact lengths must be on the host
    DRAFT = "draft"  # the operation whose start defines the launch lead
    TARGET = "target"  # the target forward (cycles of traces are measured from its start)


class Operation(BaseModel):
    """One operation of a program.

    ``cost`` names the device duration of kernel, graph, copy, publish and stash, and the host duration of host
    operations. ``host`` names a host cost of which ``share`` is spent launching (Python before the call and the
    call itself); omitted, it is the primitive of the kind (``call.launch``, ``call.graph``, ``call.copy``,
    ``call.record``, ``call.wait``, ``call.synchronize``), looked up in the device profile. For host operations
    ``share`` scales ``cost`` itself. A name of the profile or an expression over its names and ``batch``,
    ``tokens``, ``context``, ``block_size`` is accepted in ``cost`` and ``host``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    phase: Phase
    name: str
    kind: Kind
    stream: StreamName | None = None
    cost: str | None = None
    host: str | None = None
    share: float = Field(default=1.0, ge=0)
    #: event recorded, waited for or synchronised on
    event: str | None = None
    #: another stream whose tail is waited for (instead of an event)
    on: StreamName | None = None
    when: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    #: shared buffers with rows and columns (:mod:`sim.program.buffers`): "req_to_token[seq:seq+B]". A host
    #: operation's accesses are the host's own, or, where it names a stream, of kernels it enqueues there that
    #: are too small to time
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    #: bytes or direction notes for copies: "h2d" | "d2h" | "d2d"
    direction: Literal["h2d", "d2h", "d2d"] | None = None

    @field_validator("reads", "writes")
    @classmethod
    def accesses_can_be_read(cls, accesses: tuple[str, ...]) -> tuple[str, ...]:
        for access in accesses:
            parse_access(access)
        return accesses


class AdaptiveBlock(BaseModel):
    """The block of batches up to ``up_to_batch`` rows; choose captured batches, so that padding changes nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    up_to_batch: int = Field(ge=1)
    block_size: int = Field(ge=1)


class Speculation(BaseModel):
    """Width of the speculative step. ``block_size`` counts the verified positions a request (B).

    ``adaptive`` narrows the block by load: the first entry that holds the batch counts, beyond the last the last.
    A scenario's block is then the widest allowed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "chain", "block", "tree", "lookup"]
    block_size: int = Field(ge=1)
    min_block_size: int = Field(default=1, ge=1)
    max_block_size: int = Field(ge=1)
    draft_steps: int | None = Field(default=None, ge=1)
    topk: int | None = Field(default=None, ge=1)
    adaptive: tuple[AdaptiveBlock, ...] = ()

    @model_validator(mode="after")
    def adaptive_ascends(self) -> Speculation:
        batches = [entry.up_to_batch for entry in self.adaptive]
        if batches != sorted(set(batches)):
            raise ValueError(f"adaptive lists up_to_batch {batches}; ascending without repeats is expected")
        return self

    def block_at(self, batch: int, widest: int) -> int:
        """Verified positions a request in a batch of this size, when the scenario allows ``widest``."""
        if not self.adaptive:
            return widest
        held = next((entry for entry in self.adaptive if batch <= entry.up_to_batch), self.adaptive[-1])
        return min(held.block_size, widest)


class StepProgram(BaseModel):
    """``configs/algorithms/<algorithm>@<engine>.toml``, checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: str
    engine: str
    description: str = ""
    #: "measured" when read off traces of this engine, "assumed" when composed from other programs' pieces
    status: Literal["measured", "assumed", "exact"] = "assumed"
    source: str = ""
    capabilities: Capabilities
    speculation: Speculation
    #: numbers that cost expressions may name, such as a drafter's layers
    parameters: dict[str, float] = {}
    #: free slots the engine wants before it admits a prefill while something runs: `engine` rule or a number
    admission_min_free: Literal["refill_batching"] | int = 0
    #: operations of a decode iteration
    operations: tuple[Operation, ...]
    #: operations of a prefill iteration
    prefill: tuple[Operation, ...]
