"""``overlapsim overlay``: simulated lanes beside the real ones in one Perfetto file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sim.commands.options import files_named
from sim.config.checked import Attempts
from sim.config.loader import load_resolved, parse_assignments
from sim.errors import InputError
from sim.files import check_distinct, check_writable


def command(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A path, or a name from `list scenarios`.")
    ],
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A torch-profiler trace, plain or gzip.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The Perfetto file to write.")
    ],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace one key of the scenario.")
    ] = None,
    iteration: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Decode iteration of the trace to align at; default: the first steady one."
        ),
    ] = None,
    simulated_iteration: Annotated[
        int, typer.Option(metavar="N", help="Decode iteration of the simulation to align there.")
    ] = 5,
) -> None:
    """Put a simulated run beside a real trace, aligned at the start of a target forward.

    Simulates one request a client, unless workload.requests is set; keeps what fits the trace's length.
    """
    from sim.ingest.kineto import read_trace

    attempts = Attempts()
    overrides: dict[str, object] = {}
    for assignment in assignments or []:
        overrides |= attempts.call(parse_assignments, [assignment]) or {}
    resolved = attempts.call(load_resolved, scenario, {**overrides, "run.replications": 1})
    traced = attempts.call(read_trace, trace)
    attempts.call(check_writable, output, "--output")
    read = {**files_named({"SCENARIO": scenario}), "TRACE": trace}
    attempts.call(check_distinct, {"--output": output}, read)
    if attempts.problems or resolved is None or traced is None:
        raise InputError(attempts.problems)

    from sim.ingest.overlay import overlay  # after the checks: a wrong input is answered at once
    from sim.run import simulate

    clients = resolved.scenario.workload.concurrency
    if clients is not None and "workload.requests" not in overrides:
        resolved = load_resolved(scenario, {**overrides, "run.replications": 1, "workload.requests": clients})
    with tempfile.TemporaryDirectory() as folder:
        simulated = Path(folder) / "simulated.json"
        simulate(resolved, trace=simulated, new_boots=False, hazards=False)
        aligned = overlay(traced, simulated, output, iteration, simulated_iteration)
    print(
        f"{output}: decode iteration {aligned.simulated} of the simulation starts its target forward with "
        f"iteration {aligned.real} of {trace.name}; open it in Perfetto (https://ui.perfetto.dev)"
    )
