"""What the host learns of the lengths, and where it waits for it; the twin of :mod:`sim.host_lengths`.

``none`` covers every position a row can have; ``bound`` the most that the host's own watermark allows;
``exact`` copies the published lengths on the private D2H stream and waits inside resolve; ``exact_deferred``
enqueues the same copy and waits where the worker first uses the lengths.
"""

from __future__ import annotations

from gpu_validation.device.backend import Backend
from gpu_validation.observe.sections import Lap
from gpu_validation.relay import RelayPolicy
from gpu_validation.runtime.future_map import FutureMap
from gpu_validation.runtime.step import Step
from gpu_validation.runtime.streams import Streams
from sim.capabilities import Capabilities, HostLengths, LengthSource
from sim.program.policies import Policies


class HostLengthsPolicy:
    """``block`` positions follow the committed ones; ``width`` is the most a row can have."""

    def __init__(
        self,
        policies: Policies,
        capabilities: Capabilities,
        backend: Backend,
        future: FutureMap,
        streams: Streams,
        block: int,
        width: int,
        lap: Lap,
    ):
        published = capabilities.length_source is LengthSource.PUBLISHED and policies.overlap
        lengths = policies.host_lengths
        self._bound = published and lengths is HostLengths.BOUND and capabilities.consumes_host_lengths
        self._exact = published and lengths in (HostLengths.EXACT, HostLengths.EXACT_DEFERRED)
        self._deferred = lengths is HostLengths.EXACT_DEFERRED and policies.pinned
        self._private = policies.platform.private_d2h_stream
        self._pinned = policies.pinned
        self._backend, self._future, self._streams, self._lap = backend, future, streams, lap
        self._mirror = future.mirror.numpy()
        self._block, self._width = block, width

    def resolve(self, step: Step, relay: RelayPolicy) -> None:
        """On the schedule stream, after the relay."""
        if self._bound:
            step.width = min(step.bound + self._block, self._width)
            self._lap("lengths.bound")
            return
        step.width = self._width
        if not self._exact:
            return
        streams, future = self._streams, self._future
        stream = streams.d2h if self._private else streams.schedule
        self._backend.set_stream(stream)
        self._lap("lengths.enqueue")
        if self._private:
            stream.wait_event(future.publish_ready)
            self._lap("lengths.wait_publish")
        elif not relay.gathers(step):  # nothing has waited for the lengths yet
            relay.await_publish()
        self._backend.copy(future.mirror, future.lengths_by_row)
        if not self._pinned:
            self._lap("lengths.stage")
        future.mirror_ready.record(stream)
        self._backend.set_stream(streams.schedule)
        self._lap("lengths.copy")
        if not self._deferred:
            self._await(step)

    def first_use(self, step: Step) -> None:
        """Where the worker first uses host lengths."""
        if self._exact and self._deferred:
            self._await(step)

    def _await(self, step: Step) -> None:
        self._future.mirror_ready.synchronize()
        self._lap("lengths.synchronize")
        lengths = self._mirror[step.host_rows]
        step.width = min(int(lengths.max()) + self._block, self._width)
        self._lap("lengths.mirror")
