"""A real device through ``torch.cuda``: the same API serves CUDA and ROCm builds of torch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from gpu_validation.device.backend import Backend
from sim.errors import InputError, Problem

#: runs of a function before it is captured: lazy initialisation and kernel compilation must not be recorded
_WARM_UP = 2


class TorchDevice(Backend):
    """Device ``index`` of this process. Raises InputError when torch sees none."""

    real = True

    def __init__(self, index: int = 0):
        if not torch.cuda.is_available():
            raise InputError(
                Problem(
                    "device",
                    f"torch {torch.__version__}, which sees no GPU",
                    "a GPU with its driver, and a build of torch for it",
                    "Use --backend cpu to run the same loops on the stand-in.",
                )
            )
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        self.name = torch.cuda.get_device_name(index)
        self._pool: Any = None
        self._cycles_per_us = _spin_rate()

    def stream(self, name: str) -> Any:
        return torch.cuda.Stream(self.device)

    def event(self, timing: bool = False) -> Any:
        return torch.cuda.Event(enable_timing=timing)

    set_stream = staticmethod(torch.cuda.set_stream)

    def launch(self, function: Callable[..., object], *args: object) -> None:
        function(*args)

    def copy(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        destination.copy_(source, non_blocking=True)

    def capture(self, function: Callable[[], object], stream: Any) -> Any:
        previous = torch.cuda.current_stream()
        torch.cuda.synchronize()
        torch.cuda.set_stream(stream)
        for _ in range(_WARM_UP):
            function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Graphs of one runner replay one after the other on one stream, so they may share their scratch
        # memory.
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream):
            function()
        torch.cuda.synchronize()
        torch.cuda.set_stream(previous)
        return graph

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, pin_memory=pinned)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def occupy(self, microseconds: float) -> None:
        torch.cuda._sleep(int(microseconds * self._cycles_per_us))

    def release(self) -> None:
        self._pool = None
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _spin_rate() -> float:
    """Cycles of torch's spin kernel a microsecond, timed once."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    cycles = 2_000_000
    for _ in range(2):  # the first run loads the kernel
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
    return cycles / (begin.elapsed_time(end) * 1e3)
