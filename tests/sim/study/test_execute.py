"""Running a study: what is computed, stored and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sim.errors import OverlapsimError
from sim.study.execute import Local, Work, compute, execute, work_of
from sim.study.interrupt import Stop
from sim.study.plan import load_plan
from sim.study.store import Store

Write = Callable[..., str]


def stored(store: Store, work: Sequence[Work]) -> list[Any]:
    return [store.get(w.key) for w in work]


def test_one_process_and_two_store_equal_results(write_study: Write, tmp_path: Path) -> None:
    work = work_of(load_plan(write_study()))
    with Store(tmp_path / "one.sqlite") as one, Store(tmp_path / "two.sqlite") as two:
        execute(work, one, Local(1))
        execute(work, two, Local(2))
        assert stored(one, work) == stored(two, work)


def test_cells_that_are_one_scenario_are_computed_once(write_study: Write) -> None:
    work = work_of(load_plan(write_study(('barrier = "coarse"', 'barrier = "read_done"'))))
    # Two distinct variants at two concurrencies, and their timelines.
    assert len(work) == 6


def test_asked_to_stop_it_stores_what_is_in_flight_and_starts_no_more(
    write_study: Write, tmp_path: Path
) -> None:
    work = work_of(load_plan(write_study()))
    stop = Stop()
    done: list[None] = []

    def after_three() -> None:
        done.append(None)
        stop.requested = len(done) == 3

    with Store(tmp_path / "r.sqlite") as store, pytest.raises(KeyboardInterrupt):
        execute(work, store, Local(1), stop, after_three)
    with Store(tmp_path / "r.sqlite") as store:
        assert store.known(w.key for w in work) == {w.key for w in work[:3]}


def _dies(work: Work) -> dict[str, Any]:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_a_killed_worker_is_said_in_words(write_study: Write) -> None:
    work = work_of(load_plan(write_study()))
    with pytest.raises(OverlapsimError, match="a worker process was killed"):
        list(Local(2)(_dies, work))


def test_a_result_holds_no_wall_time(write_study: Write) -> None:
    assert "wall_s" not in compute(load_plan(write_study()).cells[0])


def test_a_timeline_covers_its_iterations_on_the_forward_stream(write_study: Write) -> None:
    plan = load_plan(write_study())
    timeline = compute(plan.traced[0])
    rows = [dict(zip(timeline["fields"], row, strict=True)) for row in timeline["rows"]]
    forward = [row for row in rows if row["lane"] == "forward" and row["iteration"] in timeline["shown"]]
    assert min(row["start"] for row in forward) == timeline["window"][0]
    assert max(row["end"] for row in forward) == timeline["window"][1]
    assert len(timeline["shown"]) == 2
