"""Everything one process start measures for calibration, as raw data; nothing is estimated here.

For each model and calibrated batch, under the calibrated configuration, four short runs of the same load:

- ``as_is``: nothing but the section log; the only one whose cycle is used;
- ``segments``: the forward stream held back and timed operation by operation;
- ``woken``: exact host lengths, so that every section after resolve follows a wake;
- ``ahead``: the host looks for results without blocking, so that no section follows a wake;

and at the smallest batch ``bound``, for the arithmetic of bounded lengths. Beside them the operations of the
schedule, copy and D2H streams, timed on their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_validation import settings
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS, policies_of
from gpu_validation.loops import run
from gpu_validation.observe.run_record import RunRecord, record_of
from gpu_validation.observe.sections import SectionLog
from gpu_validation.observe.segments import SegmentLog
from gpu_validation.runtime.build import Built
from gpu_validation.runtime.server import RunOptions
from gpu_validation.spec.program import step_program
from sim.program.step_program import Kind, StreamName

#: for how long the forward stream is held at the start of each timed forward; longer than the host takes to launch it
HOLD_US = 900.0
#: repetitions of the operations timed on their own
REPEATS = 40

Say = Callable[[str], None]


def measure_model(built: Built, load: settings.Load, say: Say) -> dict[str, Any]:
    """Raw calibration data of one model."""
    out: dict[str, Any] = {"model": built.setting.shape.name, "algorithm": built.worker.name, "batches": {}}
    for batch in load.batches:
        runs = {}
        for mode in ("as_is", "segments", "woken", "ahead", *(["bound"] if batch == load.batches[0] else [])):
            runs[mode] = measured(built, batch, mode, load).to_json()
        say(f"batch {batch}: {_cycle(runs['as_is'])}")
        out["batches"][str(batch)] = {"runs": runs, "alone": alone(built, batch)}
    return out


def measured(built: Built, batch: int, mode: str, load: settings.Load) -> RunRecord:
    """One run of ``batch`` requests in one of the modes above."""
    published = bool(built.worker.fields) and built.setting.block > 1
    configuration = CALIBRATED
    if mode == "woken" and published:
        configuration = "unified_exact"
    if mode == "bound" and published:
        configuration = "unified_bound"
    options = RunOptions(batch, work=load.work, poll=mode == "ahead")
    log = SectionLog()
    lap = log.lap()
    segments: SegmentLog | None = None
    if mode == "segments":
        segments = SegmentLog(
            built.backend, built.streams.forward, lap, forward_operations(built), "enter.wait", HOLD_US
        )
        lap = segments.lap
    server = built.server(
        policies_of(CONFIGURATIONS[configuration]), load.workload(built.setting.block, batch), options, lap
    )
    run(server)
    record = record_of(server, log, batch)
    if segments is not None:
        for step in segments.durations_us():
            for name in sorted(forward_operations(built)):
                record.segments_us.setdefault(name, []).append(step.get(name, -1.0))
    return record


def forward_operations(built: Built) -> frozenset[str]:
    """Names of operations that occupy the forward stream, prefill included."""
    program = step_program(built.worker, "suite")
    device = (Kind.KERNEL, Kind.GRAPH, Kind.PUBLISH, Kind.STASH)
    return frozenset(
        op.name
        for op in (*program.operations, *program.prefill)
        if op.kind in device and op.stream is StreamName.FORWARD
    )


def alone(built: Built, batch: int) -> dict[str, list[float]]:
    """Microseconds of the operations beside the forward stream, on a quiet device, back to back."""
    backend, setting = built.backend, built.setting
    server = built.server(
        policies_of(CONFIGURATIONS[CALIBRATED]),
        settings.STAND_IN.workload(setting.block, 1),
        RunOptions(1),
        lambda name: None,
    )
    group = server.scratch.group(0, batch)
    # Rows of no length: the launches are real, nothing is changed.
    group.lists[:] = 0
    group.lists[0, :batch] = setting.pool.rows
    future, streams = server.future, server.streams
    operations: list[tuple[str, Any, Callable[[], object]]] = [
        ("prepare.copy", streams.schedule, lambda: backend.copy(group.on_device, group.host)),
        (
            "prepare.assign",
            streams.schedule,
            lambda: backend.launch(
                setting.kernels.assign_slots,
                group.on_device,
                group.rows,
                setting.pool.req_to_token,
                batch,
                2 * setting.block,
            ),
        ),
        ("relay.gather_lengths", streams.schedule, lambda: future.gather_lengths(group.pool_rows, batch, 0)),
        ("lengths.copy", streams.d2h, lambda: backend.copy(future.mirror, future.lengths_by_row)),
        ("result.copy", streams.copy, lambda: backend.copy(future.results_on_host[0], future.results[0])),
    ]
    out: dict[str, list[float]] = {name: [] for name, _, _ in operations}
    for repeat in range(REPEATS + 5):
        for name, stream, operation in operations:
            backend.set_stream(stream)
            backend.occupy(60.0)
            begin, end = backend.event(timing=True), backend.event(timing=True)
            begin.record(stream)
            operation()
            end.record(stream)
            backend.synchronize()
            if repeat >= 5:
                out[name].append(begin.elapsed_time(end) * 1e3)
    backend.set_stream(streams.schedule)
    return out


def _cycle(run: dict[str, Any]) -> str:
    cycles = RunRecord.from_json(run).cycles_ns()
    return f"{sum(cycles) / len(cycles) / 1e3:.1f} us over {len(cycles)} cycles" if cycles else "no cycle"
