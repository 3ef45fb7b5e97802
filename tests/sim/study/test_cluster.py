"""The Dask executor against a real cluster of two worker processes, one of which dies in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.errors import InputError
from sim.study.execute import Local, compute, execute, work_of
from sim.study.plan import load_plan
from sim.study.store import Store

distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
from sim.study.cluster import Dask  # noqa: E402

# Its own event loop closes its sockets a little after the cluster is closed.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
Write = Callable[..., str]


@pytest.fixture
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    ) as started:
        yield started


def test_a_worker_killed_in_the_middle_loses_no_result_and_counts_none_twice(
    cluster: Any, write_study: Write, tmp_path: Path
) -> None:
    values = ", ".join(str(n) for n in range(1, 13))
    work = work_of(load_plan(write_study(("[1, 2]", f"[{values}]"))))
    executor = Dask(cluster.scheduler_address)
    victim = next(iter(executor._client.run(os.getpid).values()))
    stored: list[None] = []

    def after_one() -> None:
        stored.append(None)
        if len(stored) == 5:
            os.kill(victim, signal.SIGKILL)

    try:
        with Store(tmp_path / "dask.sqlite") as store, Store(tmp_path / "local.sqlite") as local:
            execute(work, store, executor, None, after_one)
            execute(work, local, Local(1))
            assert len(stored) == len(work)
            assert store.known(w.key for w in work) == {w.key for w in work}
            assert [store.get(w.key) for w in work] == [local.get(w.key) for w in work]
    finally:
        executor.close()


def test_the_command_takes_the_address_of_a_cluster(cluster: Any, write_study: Write, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as end:
        main(["study", write_study(), "--out", str(out), "--executor", f"dask:{cluster.scheduler_address}"])
    assert end.value.code == 0
    assert (out / "report.md").is_file()


def test_nobody_at_the_address_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.study.cluster._CONNECT_S", 0.3)
    with pytest.raises(InputError, match="where nobody answers"):
        Dask("tcp://127.0.0.1:1")


def test_workers_with_another_version_of_the_model_are_refused(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.study.cluster._ours", lambda: "9.9+other")
    with pytest.raises(InputError, match=r"expected 9\.9\+other, the version here"):
        Dask(cluster.scheduler_address)


def test_the_work_sent_is_complete_in_itself(write_study: Write) -> None:
    """A worker needs no file of ours: what is sent is the resolved scenario."""
    import pickle

    cell = work_of(load_plan(write_study()))[0]
    assert compute(pickle.loads(pickle.dumps(cell))) == compute(cell)
