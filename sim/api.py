"""The public functions and classes; :mod:`sim` offers them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config.loader import load_profile, load_resolved, load_scenario
from sim.config.resolve import Resolved, resolve
from sim.config.scenario import Scenario
from sim.errors import InputError
from sim.lock import sole_writer
from sim.report.write import write
from sim.result import RunResult
from sim.run import simulate as _simulate
from sim.study import compare as _compare
from sim.study.collect import collect
from sim.study.compare import Comparison
from sim.study.execute import Executor, Local, execute, work_of
from sim.study.frame import load_results
from sim.study.plan import load_plan, plan
from sim.study.spec import check_study
from sim.study.store import RESULTS, Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Comparison",
    "InputError",
    "RunResult",
    "Scenario",
    "Study",
    "compare",
    "load_profile",
    "load_results",
    "load_scenario",
    "simulate",
]

#: a scenario, or the name or path of one
ScenarioLike = Scenario | Resolved | str | Path


def simulate(
    scenario: ScenarioLike,
    *,
    until: float | None = None,
    trace: str | Path | None = None,
    new_boots: bool = True,
) -> RunResult:
    """Simulates one scenario.

    ``until``: replicate until the half-width of the throughput's ``ci95`` is at most this share of it. ``trace``:
    write a Perfetto trace of the first replication. ``new_boots=False`` leaves out the runs that ``pi95`` needs.
    Raises InputError with every problem of the scenario.
    """
    where = None if trace is None else Path(trace)
    return _simulate(_resolved(scenario), until=until, trace=where, new_boots=new_boots)


def compare(a: ScenarioLike, b: ScenarioLike, *, until: float | None = None) -> Comparison:
    """What going from ``a`` to ``b`` changes, paired run by run; see :class:`Comparison`.

    ``until``: replicate until the half-width of the relative change's ``ci95`` is at most this. Raises InputError.
    """
    return _compare.compare(_resolved(a), _resolved(b), until=until)


def _resolved(scenario: ScenarioLike) -> Resolved:
    if isinstance(scenario, Resolved):
        return scenario
    return resolve(scenario) if isinstance(scenario, Scenario) else load_resolved(str(scenario))


class Study:
    """A grid of scenarios: a study file by name or path, or its tables as a mapping.

    Every problem of every cell is found here: raises InputError.
    """

    def __init__(self, study: str | Path | Mapping[str, Any], name: str = "study"):
        if isinstance(study, Mapping):
            digest = hashlib.sha256(json.dumps(study, sort_keys=True, default=str).encode()).hexdigest()
            self._plan = plan(check_study(study, name), Path(f"{name}.toml"), digest)
        else:
            self._plan = load_plan(str(study))

    @property
    def name(self) -> str:
        return self._plan.name

    def __len__(self) -> int:
        """How many cells it has."""
        return len(self._plan.cells)

    def run(
        self,
        out: str | Path,
        *,
        jobs: int | None = None,
        executor: Executor | None = None,
        fresh: bool = False,
    ) -> pd.DataFrame:
        """Computes what the folder ``out`` does not hold yet (everything, if ``fresh``); one row a cell.

        ``jobs``: processes, by default one a core. ``executor``: somewhere else, as ``sim.study.cluster.Dask``.
        Raises InputError when ``out`` holds foreign results.
        """
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        with sole_writer(folder, "out"), Store(folder / RESULTS) as store:
            store.put_cells(self.name, [(cell.variant, cell.at, cell.key) for cell in self._plan.cells])
            work = work_of(self._plan)
            known = set() if fresh else store.known(w.key for w in work)
            missing = [w for w in work if w.key not in known]
            execute(missing, store, executor or Local(jobs or os.cpu_count() or 1))
        frame = load_results(folder)
        return frame[frame["study"] == self.name].reset_index(drop=True)

    def report(self, out: str | Path) -> Path:
        """Draws the report of a finished study from the results in ``out``; returns ``report.md``.

        Raises KeyError if a cell has no result yet.
        """
        folder = Path(out)
        with Store(folder / RESULTS) as store:
            data = collect(self._plan, store, f"overlapsim study {self.name}")
        return write(data, folder)
