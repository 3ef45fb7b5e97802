"""Everything one process start measures for calibration, as raw data; nothing is estimated here.

For each model and calibrated batch, short runs of the same load in the calibrated configuration (:data:`MODES`):

- ``as_is``: nothing but the section log; the only one whose cycle is used;
- ``segments``: the forward timed operation by operation, all of it queued before it runs: the forward stream is held
  back for that, unless the host is ahead of it anyway (holding a device that has no pause lets it cool and clock up);
- ``ahead``: the host looks for results without blocking, so that no section follows a wake;
- ``woken``: exact host lengths, so that every section after resolve follows a wake;
- ``fenced``: the worker's own fence, so that every section of preparation follows a wake;
- ``roomy``: as "segments", in the next larger graph, so that most of its rows are empty;
- ``paused``: as "segments", with the device idle while the host works (overlap off), where it has no pause otherwise:
  how much its clock gains.

"woken" and "fenced" run other policies, for their host sections alone, "paused" for its segments. Modes are visited
forwards, then backwards while that is quick. Beside them the operations of the schedule, copy and D2H streams, timed
on their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from statistics import fmean, median
from typing import Any

from gpu_validation import settings
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS, policies_of
from gpu_validation.loops import run
from gpu_validation.observe.host_state import HostState
from gpu_validation.observe.run_record import RunRecord, record_of
from gpu_validation.observe.sections import SectionLog
from gpu_validation.observe.segments import SegmentLog
from gpu_validation.runtime.build import Built
from gpu_validation.runtime.server import RunOptions
from gpu_validation.spec.program import step_program
from sim.program.step_program import Kind, StreamName
from sim.units import NS_PER_US

#: for how long the forward stream is held at the start of each timed forward; longer than the host takes to launch it
HOLD_US = 900.0
#: warm-up is over when two runs in a row agree so well in their median cycle, or after so many
SETTLED, WARM_UPS = 0.004, 4
#: repetitions of the operations timed on their own
REPEATS = 40
#: mode to the configuration it runs; without published lengths there is nothing to be woken by
MODES = {
    "as_is": CALIBRATED,
    "ahead": CALIBRATED,
    "woken": "unified_exact",
    "fenced": "fence",
    "segments": CALIBRATED,
    "roomy": CALIBRATED,
    "paused": "synchronous",
}
#: modes that need published lengths to wait for
WAKING = ("woken", "fenced")
#: modes that time device segments
TIMED = ("segments", "roomy", "paused")
#: seconds one visit of all modes may take to be followed by a second one
SECOND_VISIT_S = 4.0

Say = Callable[[str], None]


def measure_model(built: Built, load: settings.Load, host: HostState, say: Say) -> dict[str, Any]:
    """Raw calibration data of one model: per batch a list of runs (mode, host state, record) and ``alone``."""
    lengths = built.worker.capabilities.consumes_host_lengths
    batches = {}
    for batch in load.batches:
        warm_up(lambda: measured(built, batch, "as_is", load))  # noqa: B023
        modes = [
            mode
            for mode in MODES
            if (lengths or mode not in WAKING) and (mode != "roomy" or batch < load.batches[-1])
        ]
        runs: list[dict[str, Any]] = []
        took = 0.0
        ahead = False
        for visit in range(2):
            if visit and took > SECOND_VISIT_S:
                break
            for mode in modes if not visit else reversed(modes):
                if mode == "paused" and not ahead:
                    continue
                held_us = 0.0 if mode not in TIMED or ahead else HOLD_US
                record, state, repeated = host.steadily(
                    partial(measured, built, batch, mode, load, held_us=held_us)
                )
                ahead = ahead or (mode == "as_is" and slack_us(record) > HOLD_US)
                about = {"mode": mode, "held_us": held_us, "host_us": state, "repeated": repeated}
                runs.append({**about, "record": record.to_json()})
                took += record.duration_ns / 1e9
        say(f"batch {batch}: {_cycle(runs[0])}, host {runs[0]['host_us']} of {host.best_us:.0f} us")
        batches[str(batch)] = {"runs": runs, "alone": alone(built, batch)}
    return {
        "model": built.setting.shape.name,
        "algorithm": built.worker.name,
        "work": asdict(load.work),
        "batches": batches,
    }


def warm_up(run: Callable[[], RunRecord]) -> int:
    """Runs nobody keeps, until clocks, caches and lazily loaded code have settled; how many it took."""
    before = 0.0
    for done in range(1, WARM_UPS + 1):
        cycle = median(run().cycles_ns() or [0])
        if abs(cycle - before) <= SETTLED * cycle:
            return done
        before = cycle
    return WARM_UPS


def slack_us(record: RunRecord) -> float:
    """For how long the host waits in an iteration for the result of the one before: it is ahead by as much."""
    return fmean(record.passes[i].sections.get("result.synchronize", 0) for i in record.steady()) / NS_PER_US


def measured(built: Built, batch: int, mode: str, load: settings.Load, held_us: float = 0.0) -> RunRecord:
    """One run of ``batch`` requests in one of :data:`MODES`, or "spans": as "segments" but as a whole.

    ``held_us``: for how long the forward stream is held where segments are timed.
    """
    options = RunOptions(batch, work=load.work, poll=mode == "ahead", roomy=mode == "roomy")
    log = SectionLog()
    lap = log.lap()
    segments: SegmentLog | None = None
    names = forward_operations(built)
    policies = policies_of(CONFIGURATIONS[MODES.get(mode, CALIBRATED)])
    # Without overlap there is no stream to enter.
    start = "enter.wait" if policies.overlap else "enter.isolate"
    if mode in (*TIMED, "spans"):
        segments = SegmentLog(built.backend, built.streams.forward, lap, names, start, held_us)
        lap = segments.lap
    server = built.server(
        policies,
        load.workload(built.setting.block, batch),
        options,
        lap,
    )
    run(server)
    record = record_of(server, log, batch)
    if segments is not None:
        record.segments_us = [
            {name: round(us, 3) for name, us in step.items()} for step in segments.durations_us()
        ]
    return record


def forward_operations(built: Built) -> list[str]:
    """Names of operations that occupy the forward stream, prefill included, in launch order."""
    program = step_program(built.worker, "suite")
    device = (Kind.KERNEL, Kind.GRAPH, Kind.PUBLISH, Kind.STASH)
    return [
        op.name
        for op in (*program.prefill, *program.operations)
        if op.kind in device and op.stream is StreamName.FORWARD
    ]


def alone(built: Built, batch: int) -> dict[str, list[float]]:
    """Microseconds of the operations beside the forward stream, on a quiet device.

    What stands between two events on a stream that is held back; "nothing" is two events alone, and "a+b" the
    operations a and b one after the other, so that differences say what each takes.
    """
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
    operations: dict[str, Callable[[], object]] = {
        "prepare.copy": lambda: backend.copy(group.on_device, group.host),
        "prepare.assign": lambda: backend.launch(
            setting.kernels.assign_slots,
            group.on_device,
            group.rows,
            setting.pool.req_to_token,
            batch,
            2 * setting.block,
        ),
        "relay.gather_lengths": lambda: future.gather_lengths(group.pool_rows, batch, 0),
        "lengths.copy": lambda: backend.copy(future.mirror, future.lengths_by_row),
        "result.copy": lambda: backend.copy(future.results_on_host[0], future.results[0]),
    }
    chain = ["prepare.copy", "prepare.assign", "relay.gather_lengths"]
    pieces = [(streams.schedule, chain[:n]) for n in range(4)]
    pieces += [(streams.d2h, ["lengths.copy"]), (streams.copy, ["result.copy"])]
    out: dict[str, list[float]] = {"+".join(names) or "nothing": [] for _, names in pieces}
    for repeat in range(REPEATS + 5):
        for stream, names in pieces:
            backend.set_stream(stream)
            backend.occupy(120.0)
            begin, end = backend.event(timing=True), backend.event(timing=True)
            begin.record(stream)
            for name in names:
                operations[name]()
            end.record(stream)
            backend.synchronize()
            if repeat >= 5:
                out["+".join(names) or "nothing"].append(round(begin.elapsed_time(end) * 1e3, 3))
    backend.set_stream(streams.schedule)
    return out


def _cycle(run: dict[str, Any]) -> str:
    cycles = RunRecord.from_json(run["record"]).cycles_ns()
    return f"{sum(cycles) / len(cycles) / 1e3:.1f} us over {len(cycles)} cycles" if cycles else "no cycle"
