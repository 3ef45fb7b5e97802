"""The vocabulary a worker declares and the scheduler reads; nothing downstream asks for names.

Two groups of words. *Policies* are what a scenario chooses (relay, host lengths, barrier, its placement, the
preparation stream). *Capabilities* are what a step program declares about itself; a policy that the scenario
leaves out is derived from them. SGLang's two flags are views: :attr:`Capabilities.needs_war_barrier` and
:attr:`Capabilities.needs_cpu_seq_lens`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Relay(StrEnum):
    """How the lengths and tokens of forward i−1 reach forward i."""

    DIRECT_CARRY = "direct_carry"  # by reference while the batch is unchanged, else through the FutureMap
    UNIFIED = "unified"  # always through the FutureMap: wait publish_ready, gather by row


class HostLengths(StrEnum):
    """What the host knows of the lengths before it enters the forward."""

    NONE = "none"
    BOUND = "bound"
    EXACT = "exact"
    EXACT_DEFERRED = "exact_deferred"


class Barrier(StrEnum):
    """What orders schedule-stream writes after the previous forward's reads."""

    UNGUARDED = "unguarded"
    COARSE = "coarse"
    READ_DONE = "read_done"
    SELF_FENCE = "self_fence"


class BarrierPlacement(StrEnum):
    LOOP_TOP = "loop_top"
    AFTER_LAUNCH = "after_launch"


class PrepStream(StrEnum):
    SCHEDULE = "schedule"
    PLAN = "plan"


class LengthSource(StrEnum):
    HOST_KNOWN = "host_known"  # +1 a step, nothing to publish
    PUBLISHED = "published"  # only the device knows, until `publish`


class HostLengthNeed(StrEnum):
    NONE = "none"
    BOUND = "bound"
    EXACT = "exact"


class Carry(StrEnum):
    BY_ROW = "by_row"
    BY_REF_IF_UNCHANGED = "by_ref_if_unchanged"


class ReadEnd(StrEnum):
    """Where the program's last shared read lies, hence where ``read_done`` may be recorded."""

    PRE_REPLAY = "pre_replay"
    IN_REPLAY = "in_replay"
    END = "end"
    UNKNOWN = "unknown"


class WriteFence(StrEnum):
    SCHEDULER = "scheduler"
    SELF = "self"


class Capabilities(BaseModel):
    """Declared once by a step program; scheduler, relay, barrier and machine read only these."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    length_source: LengthSource
    host_length_need: HostLengthNeed
    #: fields the relay carries between steps; empty when nothing is stashed
    relay_schema: tuple[str, ...] = ()
    carry: Carry = Carry.BY_ROW
    read_end: ReadEnd = ReadEnd.UNKNOWN
    write_fence: WriteFence = WriteFence.SCHEDULER
    decode_prep: PrepStream = PrepStream.SCHEDULE
    #: whether a phase of the program consumes host lengths at all; if not, `none` and `bound` are one point
    consumes_host_lengths: bool = True

    @property
    def needs_war_barrier(self) -> bool:
        """SGLang's view: the scheduler must fence shared writes for this worker."""
        return self.write_fence is WriteFence.SCHEDULER

    @property
    def needs_cpu_seq_lens(self) -> bool:
        """SGLang's view: the worker wants exact lengths on the host before launch."""
        return self.host_length_need is HostLengthNeed.EXACT

    def default_relay(self) -> Relay:
        return Relay.DIRECT_CARRY if self.carry is Carry.BY_REF_IF_UNCHANGED else Relay.UNIFIED

    def default_host_lengths(self) -> HostLengths:
        return HostLengths(self.host_length_need.value)

    def default_barrier(self) -> Barrier:
        """Own fence if declared; else the fine event where one can exist, else the whole forward."""
        if self.write_fence is WriteFence.SELF:
            return Barrier.SELF_FENCE
        return Barrier.READ_DONE if self.read_end is ReadEnd.PRE_REPLAY else Barrier.COARSE
