"""The two scheduler loops: the same steps, in another order (semantics 1.2 and 1.11).

Both are generators run by the host process. ``overlapped`` launches forward i before it processes result i−1;
``synchronous`` processes each result before it goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

from sim.errors import WaitError
from sim.loops.steps import Steps
from sim.machine.machine import EventState, Machine
from sim.program.expand import COPY_DONE, RESULT_READY
from sim.program.policies import Situation
from sim.serving.request import Batch, Request
from sim.serving.scheduler import BatchScheduler

Host = Generator[Any, None, None]


class Outside(Protocol):
    """The world beyond the engine: arrivals in, results out, and whoever keeps the books."""

    def receive(self, scheduler: BatchScheduler) -> None: ...
    def exhausted(self) -> bool: ...
    def arrival(self) -> Any: ...
    def launched(self, batch: Batch, situation: Situation, context: float) -> None: ...
    def processed(self, batch: Batch, delivered: list[Any], finished: Any) -> None: ...


class Hazards(Protocol):
    """Who checks the accesses of what the machine runs: told whose they are, and whose rows are free again."""

    def begin(self, iteration: int, requests: Sequence[Request]) -> None: ...
    def finished(self, requests: Sequence[Request]) -> None: ...


class Pending:
    """A launched batch whose result the host has not processed."""

    __slots__ = ("batch", "copy_done", "iteration", "situation")

    def __init__(self, batch: Batch, situation: Situation, copy_done: EventState, iteration: int):
        self.batch, self.situation, self.copy_done, self.iteration = batch, situation, copy_done, iteration


class Loop:
    """The helper calls both loops share."""

    def __init__(
        self,
        machine: Machine,
        scheduler: BatchScheduler,
        steps: Steps,
        outside: Outside,
        hazards: Hazards | None = None,
    ):
        self.machine, self.scheduler, self.steps, self.outside = machine, scheduler, steps, outside
        self.hazards = hazards
        self.iteration = 0

    def overlapped(self) -> Host:
        """Launch forward i, then process result i−1."""
        pending: Pending | None = None
        while True:
            yield from self.poll()
            batch = self.scheduler.next_batch()
            if batch is None and pending is None:
                if self.scheduler.idle and self.outside.exhausted():
                    return
                yield from self.wait_for_work()
                continue
            launched = None
            if batch is not None:
                launched = yield from self.launch(batch)
            if pending is not None:
                yield from self.process(pending)
            pending = launched

    def synchronous(self) -> Host:
        """Launch forward i and process its result before anything else."""
        while True:
            yield from self.poll()
            batch = self.scheduler.next_batch()
            if batch is None:
                if self.scheduler.idle and self.outside.exhausted():
                    return
                yield from self.wait_for_work()
                continue
            launched = yield from self.launch(batch)
            yield from self.process(launched)

    def poll(self) -> Host:
        """Receive what has arrived by now."""
        recorder = self.machine.recorder
        if recorder is not None:
            recorder.begin(self.iteration, 0, False)
        yield from self.machine.run(self.steps.receive(), 0.0, self.iteration)
        yield from self.machine.catch_up()
        self.outside.receive(self.scheduler)

    def wait_for_work(self) -> Host:
        """Nothing can run. Raises :class:`WaitError` when nothing will ever arrive either."""
        if not self.outside.exhausted():
            yield from self.machine.wait_for_work(self.outside.arrival())
        elif not self.scheduler.idle:
            raise WaitError(
                f"{len(self.scheduler.waiting)} requests wait for {self.scheduler.pool.free} free rows, nothing runs "
                "that could free more and nothing else will arrive"
            )

    def launch(self, batch: Batch) -> Generator[Any, None, Pending]:
        """Everything from the barrier to the end of the launch."""
        machine, iteration = self.machine, self.iteration
        situation = self.steps.situation(batch)
        context = batch.mean_context()
        if machine.recorder is not None:
            machine.recorder.begin(iteration, batch.size, batch.prefill)
        if self.hazards is not None:
            self.hazards.begin(iteration, batch.requests)
        yield from machine.run(self.steps.launch(situation, batch), context, iteration)
        self.outside.launched(batch, situation, context)
        self.scheduler.launch(batch)
        self.steps.launched(batch)
        self.iteration += 1
        return Pending(batch, situation, machine.event(COPY_DONE), iteration)

    def process(self, pending: Pending) -> Host:
        """Wait for the result that is due, then look at it."""
        machine, batch = self.machine, pending.batch
        machine.bind(RESULT_READY, pending.copy_done)
        if machine.recorder is not None:
            machine.recorder.begin(pending.iteration, batch.size, batch.prefill)
        if self.hazards is not None:
            self.hazards.begin(pending.iteration, batch.requests)
        step = self.steps.process(pending.situation, batch)
        yield from machine.run(step, batch.mean_context(), pending.iteration)
        delivered, finished = self.scheduler.process(batch)
        if self.hazards is not None and finished:
            self.hazards.finished(finished)
        if finished:  # clients hear of it now, not when the event loop last looked
            yield from machine.catch_up()
        self.outside.processed(batch, delivered, finished)
