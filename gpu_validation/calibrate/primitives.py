"""What single calls cost on this machine, unprofiled, through the same API the loops use.

Every primitive is a list of samples in microseconds after warm-up. Host calls are timed with the process clock;
what happens on the device, with events or with a spin kernel of known length.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from gpu_validation.device.backend import Backend

#: samples of each primitive, and those thrown away before
SAMPLES, WARM_UP = 200, 40


def host_call(call: Callable[[], object], before: Callable[[], object] | None = None) -> list[float]:
    """Host microseconds of ``call``; ``before`` runs untimed ahead of each sample."""
    clock = time.perf_counter_ns
    out = []
    for i in range(WARM_UP + SAMPLES):
        if before is not None:
            before()
        t = clock()
        call()
        t = clock() - t
        if i >= WARM_UP:
            out.append(t / 1e3)
    return out


def primitives(backend: Backend) -> dict[str, list[float]]:
    """Name to samples. Names with "graph" carry the number of nodes."""
    device = backend.device
    a, b = backend.stream("a"), backend.stream("b")
    backend.set_stream(a)
    x = torch.zeros(64, dtype=torch.int32, device=device)
    pinned = backend.host_buffer((4096,), torch.int32, True)
    pageable = backend.host_buffer((4096,), torch.int32, False)
    large = torch.zeros(4096, dtype=torch.int32, device=device)
    event = backend.event()
    sync = backend.synchronize

    def add() -> None:
        backend.launch(_increment, x)

    out: dict[str, list[float]] = {}
    out["clock"] = host_call(lambda: None)
    out["record"] = host_call(lambda: event.record(a), sync)
    out["wait"] = host_call(lambda: b.wait_event(event), sync)
    out["wait_stream"] = host_call(lambda: b.wait_stream(a), sync)
    out["synchronize_met"] = host_call(event.synchronize)
    out["query_met"] = host_call(event.query)
    out["set_stream"] = host_call(lambda: backend.set_stream(a))
    out["launch_idle"] = host_call(add, sync)
    out["launch_busy"] = host_call(add, lambda: (sync(), backend.occupy(100.0)))
    out["copy_d2h_pinned"] = host_call(lambda: backend.copy(pinned, large), sync)
    out["copy_h2d_pinned"] = host_call(lambda: backend.copy(large, pinned), sync)
    out["copy_h2d_pageable"] = host_call(lambda: backend.copy(large, pageable), sync)
    for nodes in (1, 100, 400):
        graph = backend.capture(lambda n=nodes: _increments(x, n), a)  # type: ignore[misc]
        backend.set_stream(a)
        out[f"graph_{nodes}_idle"] = host_call(graph.replay, sync)
        out[f"graph_{nodes}_busy"] = host_call(graph.replay, lambda: (sync(), backend.occupy(400.0)))
    out |= _latencies(backend, a, b, x)
    backend.synchronize()
    return out


def _increment(x: torch.Tensor) -> None:
    x.add_(1)


def _increments(x: torch.Tensor, n: int) -> None:
    for _ in range(n):
        x.add_(1)


def _latencies(backend: Backend, a: Any, b: Any, x: torch.Tensor) -> dict[str, list[float]]:
    """Launch to start, wake-up, and the hop between streams."""
    clock = time.perf_counter_ns
    event = backend.event()
    launch: list[float] = []
    wake: list[float] = []
    hold_us = 150.0
    spans: list[float] = []
    # A spin kernel whose length the device itself says, so that the rest is launch and wake.
    begin, end = backend.event(timing=True), backend.event(timing=True)
    for i in range(WARM_UP + SAMPLES):
        backend.synchronize()
        backend.occupy(50.0)
        begin.record(a)
        backend.occupy(hold_us)
        end.record(a)
        end.synchronize()
        if i >= WARM_UP:
            spans.append(begin.elapsed_time(end) * 1e3)
    spin = sorted(spans)[len(spans) // 2]
    for i in range(WARM_UP + SAMPLES):
        for samples, block in ((launch, False), (wake, True)):
            backend.synchronize()
            backend.occupy(hold_us)
            called = clock()
            event.record(a)
            if block:
                event.synchronize()
            else:
                while not event.query():
                    pass
            over = clock()
            if i >= WARM_UP:
                # From the end of the call that launched it to when the host knows, less its own length.
                samples.append((over - called) / 1e3 - spin)
    hops: list[float] = []
    count = 20
    there, back = backend.event(), backend.event()
    for i in range(12 + WARM_UP // 10):
        times = []
        for crossing in (True, False):
            backend.synchronize()
            backend.set_stream(a)
            backend.occupy(1500.0)
            begin.record(a)
            for _ in range(count):
                if crossing:
                    there.record(a)
                    b.wait_event(there)
                    backend.set_stream(b)
                    backend.launch(_increment, x)
                    back.record(b)
                    a.wait_event(back)
                    backend.set_stream(a)
                else:
                    backend.launch(_increment, x)
                backend.launch(_increment, x)
            end.record(a)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        if i >= WARM_UP // 10:
            hops.append((times[0] - times[1]) / (2 * count))
    backend.set_stream(a)
    return {"known_by_polling": launch, "known_by_blocking": wake, "hop": hops, "spin_us": spans}
