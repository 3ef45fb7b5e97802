"""From a model, an algorithm and sizes to a captured worker, and from a worker to runs."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_validation import kernels
from gpu_validation.device.backend import Backend
from gpu_validation.loops import run
from gpu_validation.observe.run_record import RunRecord, record_of
from gpu_validation.observe.sections import Lap, SectionLog
from gpu_validation.runtime.pool import RequestPool
from gpu_validation.runtime.server import RunOptions, Server
from gpu_validation.runtime.shapes import ModelShape
from gpu_validation.runtime.sizes import Sizes
from gpu_validation.runtime.step import Step
from gpu_validation.runtime.streams import Streams
from gpu_validation.spec import BLOCKS, worker_named
from gpu_validation.spec.base import Setting, Worker
from sim.errors import InputError, Problem
from sim.program.policies import Policies
from sim.serving.workload import Workload


class Built:
    """A worker with its graphs, and the streams its runs use."""

    def __init__(
        self,
        backend: Backend,
        shape: ModelShape,
        algorithm: str,
        sizes: Sizes,
        block: int | None = None,
        temperature: float = 0.0,
        seed: int = 1,
    ):
        cls = worker_named(algorithm)
        block = BLOCKS[cls.kind] if block is None else block
        _refuse_sizes(sizes)
        width = sizes.width(block)
        pool = RequestPool(backend, sizes.rows, width, sizes.output + 4 * block)
        self.setting = Setting(
            backend,
            kernels.for_device(backend.real),
            shape,
            pool,
            sizes.rows * width + 1,
            sizes.graph_batches,
            block,
            temperature,
            seed,
        )
        self.backend = backend
        self.streams = Streams.separate(backend)
        self.worker: Worker = cls(self.setting, _ignore, _Nowhere())
        self.worker.capture(self.streams.forward)
        backend.synchronize()

    def server(self, policies: Policies, workload: Workload, options: RunOptions, lap: Lap) -> Server:
        return Server(self.worker, policies, workload, options, self.streams, lap)

    def run(self, policies: Policies, workload: Workload, options: RunOptions) -> tuple[Server, SectionLog]:
        """One whole run; returns the finished server and its section log."""
        log = SectionLog()
        server = self.server(policies, workload, options, log.lap())
        run(server)
        return server, log


def _refuse_sizes(sizes: Sizes) -> None:
    if sizes.rows > sizes.graph_batches[-1]:
        raise InputError(
            Problem(
                "graph batches",
                f"{list(sizes.graph_batches)} for {sizes.rows} requests at once",
                "a largest graph batch of at least the number of requests",
            )
        )


def _ignore(name: str) -> None:
    return


class _Nowhere:
    """Places before any run: nobody listens."""

    def first_use_of_host_lengths(self, step: Step) -> None: ...

    def last_shared_read(self, step: Step) -> None: ...

    def publish(self, step: Step, new_lengths: object, result: object) -> None: ...

    def self_fence(self, step: Step) -> None: ...


def run_once(built: Built, policies: Policies, workload: Workload, options: RunOptions) -> RunRecord:
    """One whole run and its record."""
    server, log = built.run(policies, workload, options)
    return record_of(server, log, options.concurrency)


def tokens_of(server: Server) -> Sequence[list[int]]:
    """Output tokens by request index."""
    return [server.tokens[i] for i in sorted(server.tokens)]
