"""How lengths and relayed fields of the previous forward reach the next one; the twin of :mod:`sim.relay`.

By row: the schedule stream waits for ``publish_ready`` and gathers lengths; the forward gathers the fields.
By reference: the previous forward's own tensors, no wait and no gather.
"""

from __future__ import annotations

from gpu_validation.observe.sections import Lap
from gpu_validation.runtime.future_map import FutureMap
from gpu_validation.runtime.step import Step
from gpu_validation.runtime.streams import Streams
from sim.capabilities import LengthSource, Relay
from sim.program.policies import Policies


class RelayPolicy:
    """``source`` says whether lengths are published at all; if not, the host's own are used."""

    def __init__(
        self, policies: Policies, source: LengthSource, future: FutureMap, streams: Streams, lap: Lap
    ):
        self._unified = policies.relay is Relay.UNIFIED
        self._publishes = source is LengthSource.PUBLISHED and policies.overlap
        self._on_stream = policies.platform.publish_wait_on_stream
        self._future, self._streams, self._lap = future, streams, lap

    def gathers(self, step: Step) -> bool:
        """Whether this step gathers by row."""
        return self._unified or not step.batch.carry_valid

    def resolve(self, step: Step) -> None:
        """Lengths of a decode step, on the schedule stream."""
        if not self._publishes:
            return
        if not self.gathers(step):
            step.lengths = self._future.carried_lengths[(step.number - 1) % 2]
            return
        self.await_publish()
        step.lengths = self._future.gather_lengths(step.pool_rows, step.rows, step.number)
        self._lap("resolve.gather_lengths")

    def await_publish(self) -> None:
        """The schedule stream, or where the platform asks for it the host, waits for the previous publish."""
        if self._on_stream:
            self._streams.schedule.wait_event(self._future.publish_ready)
        else:
            self._future.publish_ready.synchronize()
        self._lap("resolve.wait_publish")

    def enter(self, step: Step) -> None:
        """Relayed fields of a decode step, on the forward stream."""
        by_row = self.gathers(step)
        for field in self._future.fields:
            if by_row:
                step.fields[field.name] = self._future.gather_field(field, step.pool_rows, step.rows)
                self._lap(f"enter.gather_{field.name}")
            else:
                step.fields[field.name] = self._future.carried[(step.number - 1) % 2][field.name]
