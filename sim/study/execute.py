"""Runs what is missing and stores every result as it comes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from sim.errors import OverlapsimError
from sim.run import simulate
from sim.study.plan import Cell, Plan, TracedCell
from sim.study.store import Store
from sim.study.timeline import trace

Work = Cell | TracedCell


class Executor(Protocol):
    """Applies ``compute`` to every piece of work, wherever, and yields each answer as soon as it is there."""

    def __call__(
        self, compute: Callable[[Work], dict[str, Any]], work: Sequence[Work]
    ) -> Iterator[tuple[str, dict[str, Any]]]: ...


def compute(work: Work) -> dict[str, Any]:
    """The result of one piece of work, as it is stored. What it took in wall time is not part of it."""
    if isinstance(work, TracedCell):
        return trace(work)
    result = simulate(work.resolved, new_boots=work.new_boots).to_json()
    result.pop("wall_s")
    return result


def work_of(plan: Plan) -> list[Work]:
    """All work of a study, each key once."""
    every: list[Work] = [*plan.cells, *plan.traced]
    return list({work.key: work for work in every}.values())


def execute(
    work: Sequence[Work], store: Store, executor: Executor, done: Callable[[], None] = lambda: None
) -> None:
    """Computes ``work`` and stores each result at once; ``done`` is called after each.

    Interrupted, it loses the runs in flight and no others.
    """
    kinds = {w.key: "timeline" if isinstance(w, TracedCell) else "result" for w in work}
    for key, result in executor(compute, work):
        store.put(key, kinds[key], result)
        done()


class Local:
    """Processes of this machine; with one job, this process."""

    def __init__(self, jobs: int):
        self.jobs = jobs

    def __call__(
        self, compute: Callable[[Work], dict[str, Any]], work: Sequence[Work]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.jobs == 1 or len(work) == 1:
            yield from (_keyed(compute, w) for w in work)
            return
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        # Single tasks: a batch of them would be lost together.
        pool = Parallel(
            n_jobs=self.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="4*n_jobs"
        )
        try:
            yield from pool(delayed(_keyed)(compute, w) for w in work)
        except TerminatedWorkerError:
            raise OverlapsimError(
                "a worker process was killed (memory?); what had finished is stored: go on with --resume"
            ) from None


def _keyed(compute: Callable[[Work], dict[str, Any]], work: Work) -> tuple[str, dict[str, Any]]:
    return work.key, compute(work)


@contextmanager
def as_interrupt_when_terminated() -> Iterator[None]:
    """Lets SIGTERM end a study as Ctrl-C does: worker processes go with it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
