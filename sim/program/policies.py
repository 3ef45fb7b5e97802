"""The resolved policies of a run and what is true of one iteration. Plain data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from sim.capabilities import Barrier, BarrierPlacement, HostLengths, PrepStream, Relay
from sim.program.step_program import Fact

if TYPE_CHECKING:
    from sim.config.resolve import Resolved


@dataclass(frozen=True, slots=True)
class PlatformSemantics:
    """What the runtime does differently; a row of data, never a question about a vendor.

    Sources: semantics section 3 (release source, both platforms).
    """

    name: str
    #: resolve waits for `publish_ready` on the stream (True) or on the host (False)
    publish_wait_on_stream: bool
    #: the lengths' copy has a private stream and pinned memory, or runs on the schedule stream
    private_d2h_stream: bool
    #: result copies may use their own stream
    result_copy_stream: bool
    #: whether the scheduler's barrier is on when nobody asks for it
    barrier_by_default: bool
    #: a stream's wait for an event holds the calling thread until the event is met (a lock held over the wait)
    stream_wait_holds_host: bool = False
    #: a graph launch returns only when the graph has run
    graph_launch_holds_host: bool = False
    #: a record on the schedule stream waits for all other streams (the schedule stream is the null stream)
    record_joins_streams: bool = False


#: a device profile may state otherwise for its driver (``semantics``)
PLATFORMS = {
    "cuda": PlatformSemantics("cuda", True, True, True, True),
    "hip": PlatformSemantics("hip", False, False, False, False),
}


@dataclass(frozen=True, slots=True)
class Policies:
    relay: Relay
    host_lengths: HostLengths
    barrier: Barrier
    placement: BarrierPlacement
    prep_stream: PrepStream
    overlap: bool
    platform: PlatformSemantics
    pinned: bool


def policies_of(resolved: Resolved) -> Policies:
    """The policies of a resolved scenario; the synchronous loop has none of the overlapped ones."""
    s = resolved.scenario
    assert s.platform is not None
    assert s.host_lengths is not None
    stated = cast("dict[str, Any]", resolved.profile.semantics)
    return Policies(
        relay=s.relay or Relay.UNIFIED,
        host_lengths=HostLengths(s.host_lengths),
        barrier=s.barrier or Barrier.UNGUARDED,
        placement=BarrierPlacement(s.barrier_placement),
        prep_stream=s.prep_stream or PrepStream.SCHEDULE,
        overlap=s.overlap,
        platform=replace(PLATFORMS[s.platform], private_d2h_stream=s.d2h_stream != "schedule", **stated),
        pinned=s.pinned,
    )


@dataclass(frozen=True, slots=True)
class Situation:
    """What one iteration is like; equal situations run the same list of primitives."""

    prefill: bool = False
    filtered: bool = False
    merged: bool = False
    #: the relay gathers by row (unified always; direct carry after a filter or merge)
    gathered: bool = True
    #: the previous forward recorded its read end / the worker's fence
    read_end_recorded: bool = True
    fence_recorded: bool = True

    def facts(self, policies: Policies, lengths_published: bool, page_size: int) -> frozenset[str]:
        """Every fact of :class:`Fact` that holds, and ``not_<fact>`` for every one that does not."""
        exact = policies.host_lengths in (HostLengths.EXACT, HostLengths.EXACT_DEFERRED)
        held = {
            Fact.FILTERED: self.filtered,
            Fact.MERGED: self.merged,
            Fact.CHANGED: self.filtered or self.merged,
            Fact.GATHERED: self.gathered,
            Fact.CARRIED: not self.gathered,
            Fact.LENGTHS_ON_HOST: exact and lengths_published,
            Fact.OVERLAP: policies.overlap,
            Fact.SYNCHRONOUS: not policies.overlap,
            Fact.PLAN_STREAM: policies.prep_stream is PrepStream.PLAN,
            Fact.PAGED: page_size > 1,
        }
        return frozenset(str(f) if true else f"not_{f}" for f, true in held.items())
