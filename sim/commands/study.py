"""``overlapsim study``: computes what is missing of one or several studies and writes their reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.config.checked import Attempts
from sim.errors import InputError, OverlapsimError, Problem
from sim.files import check_folder, check_writable

if TYPE_CHECKING:
    from rich.progress import Progress

    from sim.study.execute import Executor
    from sim.study.interrupt import Stop
    from sim.study.plan import Plan


class Solver(StrEnum):
    """What answers the cells of a study."""

    SIMPY = "simpy"
    SCREEN = "screen"


def command(
    studies: Annotated[
        list[str], typer.Argument(metavar="STUDY...", help="Paths, or names from `list studies`.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the report; of several, their parent. Default: reports/STUDY."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes. Default: one a core.")
    ] = None,
    executor: Annotated[
        str, typer.Option(metavar="local|dask:ADDRESS", help="This machine, or an existing Dask cluster.")
    ] = "local",
    export: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Also write every cell as a row: .csv or .parquet; one study only."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Compute only what is not stored yet.")] = False,
    solver: Annotated[
        Solver,
        typer.Option(
            help="simpy: simulate and report; screen: full-batch cycles by the vectorised recurrence."
        ),
    ] = Solver.SIMPY,
) -> None:
    """Run a grid of scenarios, store every result, write the report."""
    from sim.report.data import IMAGES, WRITTEN
    from sim.study.collect import read_measured
    from sim.study.plan import load_plan

    attempts = Attempts()
    plans = [plan for plan in (attempts.call(load_plan, name) for name in studies) if plan is not None]
    parent = Path("reports") if out is None else out
    folders = [parent / plan.name if out is None or len(studies) > 1 else parent for plan in plans]
    for plan, folder in zip(plans, folders, strict=True):
        attempts.call(check_folder, folder, "--out", (*WRITTEN, "screen.csv", "screen.json"), (IMAGES,))
        attempts.call(read_measured, plan.study, plan.path)
    attempts.call(_check_apart, plans, folders)
    attempts.call(_check_executor, executor)
    for path in export or []:
        attempts.call(_check_export, path, len(studies))
    if export and solver is Solver.SCREEN:
        found, expected = (
            "a file with --solver screen",
            "no --export: the screen writes its answers to screen.csv",
        )
        attempts.problems.append(Problem("--export", found, expected))
    if attempts.problems:
        raise InputError(attempts.problems)

    if solver is Solver.SCREEN:
        _screen(plans, folders)
        return

    from sim.study.frame import load_results, write_frame
    from sim.study.interrupt import INTERRUPTED, stopping
    from sim.study.store import RESULTS

    jobs = jobs or _cores()
    try:
        with _executor(executor, jobs) as run, stopping() as stop, _progress() as bar:
            for plan, folder in zip(plans, folders, strict=True):
                print(f"report: {_run(plan, folder, run, jobs, resume, stop, bar)}", flush=True)
                for path in export or []:
                    write_frame(load_results(folder / RESULTS), path)
    except KeyboardInterrupt:
        print("overlapsim: interrupted; finished runs are stored: go on with --resume", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except InputError:
        raise
    except OverlapsimError as error:
        print(f"overlapsim: {error}", file=sys.stderr)
        sys.exit(1)


def _screen(plans: list[Plan], folders: list[Path]) -> None:
    """Answers every cell with the second solver and prints how far the first one is from it on a sample."""
    from sim.study.screening import screen_plan

    for plan, folder in zip(plans, folders, strict=True):
        agreement = screen_plan(plan, folder)
        print(f"{plan.name}: {agreement}")
        print(f"answers: {folder / 'screen.csv'}", flush=True)


def _run(
    plan: Plan, folder: Path, executor: Executor, jobs: int, resume: bool, stop: Stop, bar: Progress
) -> Path:
    """Computes, stores, reports; returns the report's path."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    from sim.lock import sole_writer
    from sim.report.write import write
    from sim.study.collect import collect
    from sim.study.execute import execute, work_of
    from sim.study.store import RESULTS, Store

    folder.mkdir(parents=True, exist_ok=True)
    with sole_writer(folder, "--out"), Store(folder / RESULTS) as store:
        store.put_cells(plan.name, [(cell.variant, cell.at, cell.key) for cell in plan.cells])
        work = work_of(plan)
        keys = [w.key for w in work]
        known = store.known(keys) if resume else set()
        outdated = store.outdated(keys) if resume else 0
        missing = [w for w in work if w.key not in known]
        task = bar.add_task(plan.name, total=len(work), completed=len(known))
        execute(missing, store, executor, stop, lambda: bar.advance(task))
        data = collect(plan, store, f"overlapsim study {plan.name}")
        bar.update(task, description=f"{plan.name}: drawing")
        try:
            report = write(data, folder, jobs)
        except TerminatedWorkerError:
            if stop.requested:  # Ctrl-C reaches the processes that draw too
                raise KeyboardInterrupt from None
            found = "a process that draws was killed (memory?); every run is stored: go on with --resume"
            raise OverlapsimError(found) from None
    bar.update(task, description=plan.name)
    print(f"{plan.name}: {len(missing)} runs computed, {len(known)} found stored", file=sys.stderr)
    if outdated:
        print(f"{plan.name}: {outdated} stored runs are of another version of the model", file=sys.stderr)
    return report


def _check_apart(plans: list[Plan], folders: list[Path]) -> None:
    """Raises InputError where two studies would write one folder."""
    taken: dict[Path, Path] = {}
    for plan, folder in zip(plans, folders, strict=True):
        if folder in taken:
            found = f'"{taken[folder]}" and "{plan.path}", which both write to {folder}'
            raise InputError(Problem("STUDY", found, "studies of different names", "Run them one by one."))
        taken[folder] = plan.path


def _check_export(path: Path, studies: int) -> None:
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(Problem("--export", f'"{path}"', "a name ending in .csv or .parquet"))
    if studies > 1:
        raise InputError(
            Problem("--export", f"one file for {studies} studies", "one study", "Export each alone.")
        )
    check_writable(path, "--export")


def _check_executor(text: str) -> None:
    if text != "local" and not (text.startswith("dask:") and text.removeprefix("dask:").strip()):
        raise InputError(Problem("--executor", f'"{text}"', "local, or dask:ADDRESS of a Dask scheduler"))


@contextmanager
def _executor(text: str, jobs: int) -> Iterator[Executor]:
    if text == "local":
        from sim.study.execute import Local

        yield Local(jobs)
        return
    from sim.study.cluster import Dask

    cluster = Dask(text.removeprefix("dask:"))
    try:
        yield cluster
    finally:
        cluster.close()


def _cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
