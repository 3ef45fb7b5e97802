"""What the device and its runtime can do, and how each fact was found. CUDA and ROCm builds through one API."""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from gpu_validation.device.backend import Backend


@dataclass(frozen=True)
class Finding:
    """One fact: its value for people, how it was found, and whether the suite can do without."""

    name: str
    value: str
    how: str


def describe(backend: Backend) -> dict[str, str]:
    """Names and versions, for provenance."""
    facts = {
        "device": backend.name,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "host": _processor(),
        "platform": "hip" if torch.version.hip else "cuda" if torch.version.cuda else "cpu",
        "runtime": str(torch.version.hip or torch.version.cuda or "none"),
    }
    if backend.real:
        properties = torch.cuda.get_device_properties(backend.device)
        facts["memory"] = f"{properties.total_memory / 2**30:.0f} GiB"
        facts["driver"] = _driver()
    return facts


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _driver() -> str:
    """Version of the kernel driver, where the vendor's management library is installed."""
    try:
        import pynvml  # type: ignore[import-not-found]
    except ImportError:
        return "not asked (no management library installed)"
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        return f"not known ({error})"


def probe(backend: Backend) -> list[Finding]:
    """Every fact the suite relies on, found by trying."""
    found = [Finding(name, value, "reported by the runtime") for name, value in describe(backend).items()]
    found += [
        _graphs(backend),
        _stream_wait(backend),
        _copy_beside_compute(backend),
        _pinned(backend),
        _timer(),
        _event_timer(backend),
        _streams(backend),
        _kernels(backend),
    ]
    return found


def _graphs(backend: Backend) -> Finding:
    x = torch.zeros(16, device=backend.device)
    stream = backend.stream("probe")

    def body() -> None:
        x.add_(1)

    try:
        graph = backend.capture(body, stream)
        backend.set_stream(stream)
        backend.synchronize()
        before = float(x[0])
        graph.replay()
        backend.synchronize()
        works = float(x[0]) == before + 1
    except RuntimeError as error:
        return Finding("graphs", f"no ({str(error).splitlines()[0]})", "capture of one launch raised")
    return Finding("graphs", "yes" if works else "no", "captured one launch, replayed it, read the result")


def _stream_wait(backend: Backend) -> Finding:
    """A stream-side wait on an event that is far off must return at once."""
    a, b, event = backend.stream("a"), backend.stream("b"), backend.event()
    backend.set_stream(a)
    backend.occupy(20_000)
    event.record(a)
    t = time.perf_counter()
    b.wait_event(event)
    took = (time.perf_counter() - t) * 1e6
    unmet = not event.query()
    backend.synchronize()
    value = "no" if took < 5_000 else "yes"
    how = f"wait behind 20 ms of work returned after {took:.0f} us, event {'unmet' if unmet else 'met'} then"
    return Finding("a stream wait blocks the host", value, how)


def _copy_beside_compute(backend: Backend) -> Finding:
    if not backend.real:
        return Finding("copies run beside compute", "no", "the stand-in does one thing at a time")
    a, b = backend.stream("a"), backend.stream("b")
    large = torch.zeros(64 * 2**20 // 4, device=backend.device)
    pinned = backend.host_buffer((large.numel(),), torch.float32, True)
    copied, computed = backend.event(), backend.event()
    for _ in range(2):  # the first round loads what it needs
        backend.synchronize()
        backend.set_stream(a)
        backend.occupy(20_000)
        computed.record(a)
        backend.set_stream(b)
        backend.copy(pinned, large)
        copied.record(b)
        copied.synchronize()
        beside = not computed.query()
    backend.synchronize()
    return Finding(
        "copies run beside compute",
        "yes" if beside else "no",
        "a 64 MiB copy to pinned memory ended while 20 ms of work on another stream ran",
    )


def _pinned(backend: Backend) -> Finding:
    if not backend.real:
        return Finding("pinned memory", "no", "the stand-in has no device to pin for")
    works = backend.host_buffer((16,), torch.int32, True).is_pinned()
    return Finding("pinned memory", "yes" if works else "no", "allocated some and asked")


def _timer() -> Finding:
    steps = []
    for _ in range(2000):
        t = time.perf_counter_ns()
        u = time.perf_counter_ns()
        while u == t:
            u = time.perf_counter_ns()
        steps.append(u - t)
    steps.sort()
    return Finding("host timer step", f"{steps[0]} ns", "smallest difference of 2000 pairs of clock reads")


def _event_timer(backend: Backend) -> Finding:
    if not backend.real:
        return Finding("device timer step", "none", "the stand-in has the host's clock")
    stream = backend.stream("probe")
    backend.set_stream(stream)
    events = [backend.event(timing=True) for _ in range(200)]
    for event in events:
        event.record(stream)
    backend.synchronize()
    steps = sorted({round(a.elapsed_time(b) * 1e6) for a, b in pairwise(events)} - {0})
    value = f"{steps[0]} ns" if steps else "under 1 ns"
    return Finding("device timer step", value, "smallest time between 200 events recorded back to back")


def _streams(backend: Backend) -> Finding:
    streams: list[Any] = [backend.stream(f"probe {i}") for i in range(5)]
    handles = {getattr(s, "cuda_stream", id(s)) for s in streams}
    return Finding(
        "stream handles distinct",
        "yes" if len(handles) == len(streams) else "no",
        "five streams, handles compared",
    )


def _kernels(backend: Backend) -> Finding:
    if not backend.real:
        return Finding("kernels", "torch", "no device to compile for")
    try:
        import triton
    except ImportError:
        return Finding(
            "kernels", "none", "triton, which the suite's kernels are written in, is not installed"
        )
    return Finding("kernels", f"triton {triton.__version__}", "imported")
