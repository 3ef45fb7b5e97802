"""The suite's own step programs: what the loops do in one iteration, for the model.

The list is written beside the loops and a test holds the two together: the sections that a run ends, in
order, are the host operations that the model expands from this program under the same policies.
"""

from __future__ import annotations

from typing import Any

from gpu_validation.spec.base import Worker
from sim.program.step_program import Kind, Operation, Phase, StepProgram, StreamName

_S, _F, _C = StreamName.SCHEDULE, StreamName.FORWARD, StreamName.COPY


def step_program(worker: Worker, engine: str) -> StepProgram:
    """``<worker>@<engine>`` with the costs named after the operations."""
    return StepProgram(
        algorithm=worker.name,
        engine=engine,
        description="the suite's own loop",
        status="measured",
        source="gpu_validation/spec/program.py, beside the loops; costs by `overlapsim gpu calibrate`",
        capabilities=worker.capabilities,
        speculation=worker.speculation(),
        admission_min_free=0,
        operations=tuple(_decode(worker)),
        prefill=tuple(_prefill(worker)),
    )


def _decode(worker: Worker) -> list[Operation]:
    gathers = [
        _op(Phase.ENTER, f"enter.gather_{f.name}", Kind.KERNEL, stream=_F, when=("gathered",))
        for f in worker.fields
    ]
    return [
        _host(Phase.RECEIVE, "receive"),
        _host(Phase.SCHEDULE, "schedule"),
        _host(Phase.PREPARE, "prepare.rows"),
        _op(Phase.PREPARE, "prepare.copy", Kind.COPY, stream=StreamName.PREP, direction="h2d"),
        _op(
            Phase.PREPARE,
            "prepare.assign",
            Kind.KERNEL,
            stream=StreamName.PREP,
            writes=("req_to_token[allocated:committed+2B]",),
        ),
        _host(Phase.ENTER, "enter.isolate"),
        _wait(Phase.ENTER, "enter.wait", _F, _S),
        *gathers,
        *worker.operations(),
        *_copy(),
        _host(Phase.QUEUE, "queue"),
        _host(Phase.PROCESS, "process"),
    ]


def _prefill(worker: Worker) -> list[Operation]:
    stashes = [_op(Phase.FORWARD, f"stash.{f.name}", Kind.STASH, stream=_F) for f in worker.fields]
    return [
        _host(Phase.RECEIVE, "receive"),
        _host(Phase.SCHEDULE, "schedule"),
        _host(Phase.PREPARE, "prefill.rows"),
        _op(Phase.PREPARE, "prefill.copy", Kind.COPY, stream=_S, direction="h2d"),
        _op(Phase.PREPARE, "prefill.assign", Kind.KERNEL, stream=_S, writes=("req_to_token[0:prompt]",)),
        _wait(Phase.ENTER, "enter.wait", _F, _S),
        _op(Phase.FORWARD, "prefill", Kind.KERNEL, stream=_F),
        _op(Phase.FORWARD, "publish", Kind.PUBLISH, stream=_F),
        *stashes,
        *_copy(),
        _host(Phase.QUEUE, "queue"),
        _host(Phase.PROCESS, "process"),
    ]


def _copy() -> list[Operation]:
    return [
        _wait(Phase.COPY, "result.wait", _C, _F),
        _op(Phase.COPY, "result.copy", Kind.COPY, stream=_C, direction="d2h"),
        Operation(
            phase=Phase.COPY,
            name="result.record",
            kind=Kind.RECORD,
            stream=_C,
            host="host.result.record",
            event="copy_done",
        ),
    ]


def _host(phase: Phase, name: str) -> Operation:
    return Operation(phase=phase, name=name, kind=Kind.HOST, cost=f"host.{name}")


def _wait(phase: Phase, name: str, stream: StreamName, on: StreamName) -> Operation:
    return Operation(phase=phase, name=name, kind=Kind.WAIT, stream=stream, on=on, host=f"host.{name}")


def _op(phase: Phase, name: str, kind: Kind, **more: Any) -> Operation:
    return Operation(phase=phase, name=name, kind=kind, cost=name, host=f"host.{name}", **more)
