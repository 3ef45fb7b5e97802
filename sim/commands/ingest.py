"""``overlapsim ingest``: from profiler traces of a serving engine to a step program and a cost profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.config import below_zero
from sim.config.checked import Attempts
from sim.errors import InputError, Problem
from sim.files import check_distinct, check_writable, json_text, write_atomically


def command(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE…", help="Torch-profiler traces of one engine, plain or gzip."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="PROFILE", help="The profile to write; the program goes beside it."
        ),
    ],
    timings: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Unprofiled timings of the same engine: cycles and host sections."),
    ] = None,
    primitives: Annotated[
        Path | None, typer.Option(metavar="JSON", help="CPU-side costs of single calls on the same machine.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose program to read the traces by; default: the best match."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the summary and the self-check.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write the profile even if it misses its own traces by over 5 %.")
    ] = False,
) -> None:
    """Read traces, write the step program and the costs they show, and hold both against the traces."""
    attempts = Attempts()
    attempts.call(_check_output, output)
    attempts.call(check_writable, output, "--output")
    attempts.call(check_writable, json, "--json")
    read: dict[str, Path | None] = {f"TRACE {path}": path for path in traces}
    read |= {"--timings": timings, "--primitives": primitives}
    attempts.call(check_distinct, {"--output": output, "--json": json}, read)
    if attempts.problems:
        raise InputError(attempts.problems)

    from sim.ingest import check, pipeline  # after the checks: a wrong path is answered at once
    from sim.ingest.files import write_profile, write_program

    result = pipeline.ingest(traces, timings, primitives, engine=engine, name=output.stem)
    checks = check.self_check(result)
    for line in [*result.summary.lines(), *map(str, checks)]:
        print(line)
    negative = below_zero.problems(result.profile, output.name)
    if negative:  # no scenario could load it
        raise InputError(negative)
    if not force:
        check.refuse(checks)
    beside = output.with_name(f"{result.program.algorithm}@{result.program.engine}.toml")
    check_writable(beside, "--output")
    check_distinct({"the program": beside, "--json": json}, read)
    write_program(beside, result.program, _COMMENT)
    write_profile(output, result.profile, _COMMENT)
    print(f"profile: {output}\nprogram: {beside}")
    if json:
        content: dict[str, Any] = {
            "profile": str(output),
            "program": str(beside),
            **result.summary.to_json(),
            "self_check": [
                {
                    "what": c.what,
                    "time": c.time,
                    "traced": c.traced,
                    "measured_us": round(c.measured, 1),
                    "simulated_us": round(c.simulated, 1),
                    "error": round(c.error, 6),
                }
                for c in checks
            ],
        }
        write_atomically(json, json_text(content))


_COMMENT = "Written by `overlapsim ingest`."


def _check_output(output: Path) -> None:
    """Raises InputError on a name that a scenario could not refer to."""
    if output.suffix != ".toml":
        raise InputError(Problem("--output", f'"{output}"', "a file name that ends in .toml"))
    if "@" in output.stem:  # the program beside it may have that very name
        raise InputError(Problem("--output", f'"{output}"', "a name without @, which step programs have"))
