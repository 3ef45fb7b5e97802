"""Collects records; a run without a recorder collects nothing and pays nothing."""

from __future__ import annotations

from sim.trace.record import Record


class Recorder:
    """Appends records in host program order. ``limit`` bounds memory: later iterations are not kept."""

    def __init__(self, limit: int | None = None):
        self.records: list[Record] = []
        self.limit = limit
        self.iteration = -1
        self.batch = 0
        self.prefill = False

    def begin(self, iteration: int, batch: int, prefill: bool) -> None:
        self.iteration, self.batch, self.prefill = iteration, batch, prefill

    def add(
        self,
        name: str,
        phase: str,
        act: str,
        lane: str,
        start: int,
        end: int,
        issued: int,
        event: str = "",
        link: int = -1,
        cause: str = "",
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
    ) -> int:
        """Returns the record's serial."""
        serial = len(self.records)
        self.records.append(
            Record(
                serial,
                self.iteration,
                name,
                phase,
                act,
                lane,
                start,
                end,
                issued,
                event,
                link,
                cause,
                reads,
                writes,
                self.batch,
                self.prefill,
            )
        )
        return serial
