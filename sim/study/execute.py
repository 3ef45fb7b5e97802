"""Runs what is missing and stores every result as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from sim.errors import OverlapsimError
from sim.run import simulate
from sim.study.interrupt import Stop, without_interrupts
from sim.study.plan import Cell, Plan, TracedCell
from sim.study.store import Store
from sim.study.timeline import trace

Work = Cell | TracedCell


class Executor(Protocol):
    """Applies ``compute`` to each piece of work, wherever, and yields each answer as soon as it is there.

    Takes ``work`` only as fast as it is done, so that ending the iteration ends the study soon.
    """

    def __call__(
        self, compute: Callable[[Work], dict[str, Any]], work: Iterable[Work]
    ) -> Iterator[tuple[str, dict[str, Any]]]: ...


def compute(work: Work) -> dict[str, Any]:
    """The result of one piece of work, as it is stored. What it took in wall time is not part of it."""
    if isinstance(work, TracedCell):
        return trace(work)
    result = simulate(work.resolved, new_boots=work.new_boots, hazards=work.hazards).to_json()
    result.pop("wall_s")
    return result


def work_of(plan: Plan) -> list[Work]:
    """All work of a study, each key once; traced runs first, as one may have fewer iterations than asked for."""
    every: list[Work] = [*plan.traced, *plan.cells]
    return list({work.key: work for work in every}.values())


def execute(
    work: Sequence[Work],
    store: Store,
    executor: Executor,
    stop: Stop | None = None,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Computes ``work`` and stores each result at once; ``done`` is called after each.

    Raises KeyboardInterrupt when ``stop`` was requested, with the runs then in flight stored too. A killed process
    loses the runs in flight and no others.
    """
    stop = stop or Stop()
    kinds = {w.key: "timeline" if isinstance(w, TracedCell) else "result" for w in work}
    for key, result in executor(compute, stop.until(work)):
        store.put(key, kinds[key], result)
        done()
    if stop.requested:
        raise KeyboardInterrupt


class Local:
    """Processes of this machine; with one job, this process."""

    def __init__(self, jobs: int):
        self.jobs = jobs

    def __call__(
        self, compute: Callable[[Work], dict[str, Any]], work: Iterable[Work]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.jobs == 1:
            yield from ((w.key, compute(w)) for w in work)
            return
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        pool = Parallel(
            n_jobs=self.jobs,
            return_as="generator_unordered",
            batch_size=1,  # a batch would be lost together
            pre_dispatch="2*n_jobs",
            idle_worker_timeout=ORPHANED_S,
        )
        with (
            without_interrupts()
        ):  # nor have the processes started here: ending a study in order is the parent's
            results = pool(delayed(_keyed)(compute, w) for w in work)
        try:
            yield from results
        except TerminatedWorkerError:
            raise OverlapsimError(
                "a worker process was killed (memory?); what had finished is stored: go on with --resume"
            ) from None


#: a worker without work ends after this many seconds, as do those of a killed study
ORPHANED_S = 20


def _keyed(compute: Callable[[Work], dict[str, Any]], work: Work) -> tuple[str, dict[str, Any]]:
    return work.key, compute(work)
