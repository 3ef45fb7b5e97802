"""Runs of a study on an existing Dask cluster (extra ``cluster``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sim.errors import InputError, OverlapsimError, Problem
from sim.study.version import model_version

if TYPE_CHECKING:
    from distributed import Client

    from sim.study.execute import Work

#: runs in flight for every thread of the cluster: enough to keep it busy, few enough to stop soon
_AHEAD = 2
_CONNECT_S = 10
#: times a run may take its worker down with it before the study gives up
_RETRIES = 3


class Dask:
    """Sends every run to the cluster at ``address``; a run whose worker dies goes to another one.

    Raises InputError when Dask is not installed, nobody answers, or a worker has another version of the model.
    """

    def __init__(self, address: str):
        try:
            from distributed import Client
        except ImportError:
            raise InputError(
                Problem(
                    "--executor",
                    "dask, which is not installed",
                    "the extra for it",
                    "Install overlapsim[cluster].",
                )
            ) from None
        try:
            self._client: Client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                Problem(
                    "--executor",
                    f'"dask:{address}", where nobody answers ({error})',
                    "a Dask scheduler's address",
                )
            ) from None
        self._refuse_other_versions()

    def _refuse_other_versions(self) -> None:
        ours = _ours()
        try:
            versions = self._client.run(model_version)
        except ImportError as error:
            self._client.close()
            raise InputError(
                Problem(
                    "--executor",
                    f"workers that cannot load the model ({error})",
                    f"overlapsim {ours} on each",
                )
            ) from None
        others = {worker: version for worker, version in versions.items() if version != ours}
        if others:
            self._client.close()
            raise InputError(
                Problem("--executor", f"{version} on worker {worker}", f"{ours}, the version here")
                for worker, version in sorted(others.items())
            )

    def __call__(
        self, compute: Callable[[Work], dict[str, Any]], work: Iterable[Work]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        from distributed import KilledWorker, as_completed

        waiting = iter(work)

        def submit(some: Iterable[Work]) -> list[Any]:
            # Keyed by the result it makes: the same run is never two tasks.
            return [self._client.submit(compute, w, key=w.key, pure=False, retries=_RETRIES) for w in some]

        threads = max(1, sum(self._client.nthreads().values()))
        running = as_completed(submit(itertools.islice(waiting, _AHEAD * threads)), loop=self._client.loop)
        for future in running:
            try:
                result = future.result()
            except KilledWorker as error:
                raise OverlapsimError(
                    f"a run took down {_RETRIES} workers ({error}); what had finished is stored: go on with --resume"
                ) from None
            for more in submit(itertools.islice(waiting, 1)):
                running.add(more)
            yield future.key, result

    def close(self) -> None:
        self._client.close()


def _ours() -> str:
    return model_version()
