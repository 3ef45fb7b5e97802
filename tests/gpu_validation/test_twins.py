"""The model runs what the suite runs: the suite's sections and device calls are those its step program expands to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from scenes import ALGORITHMS, combinations, engine, policies, workload

from gpu_validation.device.stand_in import Call
from gpu_validation.observe.sections import RUN_BATCH, SectionLog
from gpu_validation.runtime.build import Built
from gpu_validation.runtime.server import RunOptions, Server
from gpu_validation.spec.program import step_program
from sim.capabilities import Relay
from sim.program.expand import Expander, Iteration
from sim.program.policies import Policies, Situation
from sim.program.primitives import Act, Primitive

torch.set_num_threads(1)


def run_logged(built: Built, chosen: Policies) -> tuple[list[list[str]], list[list[Call]]]:
    """Sections and device calls of each iteration of a single request's run."""
    calls: list[Call] = []
    built.backend.log = calls  # type: ignore[attr-defined]
    log = SectionLog()
    lap = log.lap()
    marks: list[int] = []

    def marked(name: str) -> None:
        lap(name)
        if name == "receive":
            marks.append(len(calls))

    server = Server(
        built.worker,
        chosen,
        workload(built.setting.block, requests=1, p=0.3),
        RunOptions(1),
        built.streams,
        marked,
    )
    from gpu_validation.loops import run

    run(server)
    built.backend.log = None  # type: ignore[attr-defined]
    names = [name for name, _ in log.laps]
    starts = [i for i, name in enumerate(names) if name == "receive"]
    sections = [names[a:b] for a, b in zip(starts, [*starts[1:], len(names)], strict=True)]
    device = [calls[a:b] for a, b in zip(marks, [*marks[1:], len(calls)], strict=True)]
    return sections, device


def all_of(iteration: Iteration) -> list[Primitive]:
    return [*iteration.receive, *iteration.launch, *iteration.process]


def host_sections(primitives: Sequence[Primitive]) -> list[str]:
    return [
        RUN_BATCH if p.act is Act.ENTER else p.name
        for p in primitives
        if p.act is Act.ENTER or p.host is not None
    ]


def device_calls(primitives: Sequence[Primitive]) -> list[tuple[str, str]]:
    """(kind of call, stream); the record behind a wait for a stream's tail is part of that wait."""
    kinds = {Act.LAUNCH: "launch", Act.RECORD: "record", Act.WAIT: "wait", Act.SYNC: "synchronize"}
    return [
        (kinds[p.act], "" if p.act is Act.SYNC else p.stream or "")
        for p in primitives
        if p.act in kinds and not p.name.endswith(".tail")
    ]


def seen(calls: Sequence[Call]) -> list[tuple[str, str]]:
    kinds = {"launch": "launch", "copy": "launch", "graph": "launch"}
    return [(kinds.get(c.act, c.act), c.stream) for c in calls]


@pytest.mark.parametrize(
    ("algorithm", "platform"), [*((a, "cuda") for a in ALGORITHMS), ("dflash", "hip"), ("none", "hip")]
)
def test_a_decode_iteration_is_what_its_program_expands_to(algorithm: str, platform: str) -> None:
    built = engine(algorithm)
    program = step_program(built.worker, "suite")
    for chosen in combinations(built.worker.capabilities.length_source, platform):
        expander = Expander(program, chosen, 1)
        gathered = chosen.relay is Relay.UNIFIED
        expected = all_of(
            expander.expand(
                Situation(
                    gathered=gathered,
                    read_end_recorded=expander.records_read_end,
                    fence_recorded=expander.records_fence,
                )
            )
        )
        sections, device = run_logged(built, chosen)
        assert sections[3] == host_sections(expected), chosen
        assert seen(device[3]) == device_calls(expected), chosen


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_prefill_iteration_is_what_its_program_expands_to(algorithm: str) -> None:
    built = engine(algorithm)
    program = step_program(built.worker, "suite")
    for pinned in (True, False):
        chosen = policies(pinned=pinned)
        situation = Situation(prefill=True, read_end_recorded=False, fence_recorded=False)
        iteration = Expander(program, chosen, 1).expand(situation)
        sections, device = run_logged(built, chosen)
        assert sections[0] == host_sections([*iteration.receive, *iteration.launch])
        assert seen(device[0]) == device_calls([*iteration.receive, *iteration.launch])


@pytest.mark.parametrize("folder", ["relay", "barrier", "host_lengths", "loops"])
def test_both_executions_have_the_same_axes(folder: str) -> None:
    from pathlib import Path

    import gpu_validation
    import sim

    ours = Path(str(gpu_validation.__file__)).parent / folder / "__init__.py"
    models = Path(str(sim.__file__)).parent / folder / "__init__.py"
    assert ours.is_file()
    assert models.is_file()
