"""``overlapsim gpu …``: the real-device suite. Imports torch only inside a command; says so when it is missing."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from sim.capabilities import LengthSource
from sim.console import print_table
from sim.errors import InputError, Problem
from sim.files import check_folder
from sim.program.step_program import StepProgram

app = typer.Typer(
    no_args_is_help=True,
    help="Measure this machine's device, calibrate the model on it and check the model against it.",
)

Backend = Annotated[
    Literal["torch", "cpu"],
    typer.Option(help="torch: the device torch sees; cpu: the ordered stand-in, for trying things out."),
]
Models = Annotated[
    str | None, typer.Option(metavar="NAME,…", help="Models to run; default: all of this backend.")
]
Algorithm = Annotated[str, typer.Option(help="Algorithm of the worker.")]
Starts = Annotated[
    int,
    typer.Option(
        min=1, max=20, help="Process starts, one after the other; more that are in --raw do not count."
    ),
]
Budget = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="No new piece of measurement begins after this.")
]
Raw = Annotated[Path, typer.Option(metavar="DIR", help="Raw measurements; finished pieces are not repeated.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Drop measurements that are already in --raw.")]
NoDevice = Annotated[
    bool, typer.Option("--measured", help="Measure nothing: use what is in --raw. Needs no device.")
]
Configs = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with devices/ and algorithms/; default: the package's configs."),
]

#: the backend that is no device
STAND_IN = "cpu"
#: what a judgement writes into ``--out``
REPORTED = ("results.json", "report.md")


def need_torch() -> None:
    """Raises InputError naming the extra to install."""
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:  # not there, or its libraries are not
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        found = "no torch in this environment" if absent else f"a torch that cannot be imported ({error})"
        raise InputError(
            Problem(
                "overlapsim gpu",
                found,
                "the extra that has it",
                'Install it with: pip install "overlapsim[gpu]" (for a GPU, a build of torch for its driver).',
            )
        ) from None


@app.command("probe")
def probe_command(backend: Backend = "torch") -> None:
    """Print what the device and its runtime can do, and how each fact was found."""
    need_torch()
    from gpu_validation.device import open_backend
    from gpu_validation.device.probe import probe

    found = probe(open_backend(backend))
    print_table(["fact", "value", "how it was found"], [[f.name, f.value, f.how] for f in found])


@app.command("calibrate")
def calibrate_command(
    backend: Backend = "torch",
    models: Models = None,
    algorithm: Algorithm = "dflash",
    starts: Starts = 2,
    budget: Budget = 220,
    raw: Raw = Path("gpu_calibration"),
    fresh: Fresh = False,
    measured: NoDevice = False,
    into: Configs = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the device in profiles; default: from the runtime's.")
    ] = None,
) -> None:
    """Measure what single calls, host sections and device segments cost; write profiles and the step program."""
    need_torch()
    from gpu_validation.calibrate.profile_file import ENGINE, write_calibration
    from gpu_validation.spec.declared import declared
    from gpu_validation.starts import Asked, measure, models_of
    from sim.config import paths

    asked = Asked("calibrate", backend, algorithm, models_of(models, backend), starts)
    program = declared(algorithm, asked.load.block, ENGINE)
    target = into or paths.folder("devices").parent
    _check_folder(target, "--into", folders=("devices", "algorithms"))
    _check_name(name)
    missing = asked.held(raw) if measured else measure(asked, raw, budget, fresh)
    facts = {"command": _command()}
    written = write_calibration(raw, program, name, target, facts, asked.load.batches, starts)
    for path in written:
        print(f"wrote {path}")
    _say_scope(backend, starts, asked.beyond(raw))
    _say_missing(missing, measured)


@app.command("validate")
def validate_command(
    backend: Backend = "torch",
    models: Models = None,
    algorithm: Algorithm = "dflash",
    starts: Starts = 3,
    budget: Budget = 480,
    raw: Raw = Path("gpu_validation_raw"),
    fresh: Fresh = False,
    measured: NoDevice = False,
    configs: Configs = None,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="The calibrated device: profiles are NAME_suite*.toml.")
    ] = "h200",
    semantics: Annotated[
        Literal["cuda", "hip"],
        typer.Option(help="Platform whose order of operations is forced, whatever the device."),
    ] = "cuda",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results and report go.")] = Path(
        "gpu_validation_report"
    ),
) -> None:
    """Measure every configuration, predict each from the calibration alone, and judge the claims."""
    need_torch()
    from gpu_validation.calibrate.profile_file import ENGINE
    from gpu_validation.configurations import CALIBRATED
    from gpu_validation.spec.declared import declared
    from gpu_validation.starts import Asked, measure, models_of
    from gpu_validation.validate.claims import Cell
    from gpu_validation.validate.predict import Predictions
    from gpu_validation.validate.report import write
    from gpu_validation.validate.results import results
    from sim.config import paths
    from sim.files import json_text, write_atomically

    asked = Asked("validate", backend, algorithm, models_of(models, backend), starts, semantics)
    _check_publishes(declared(algorithm, asked.load.block, ENGINE))
    _check_folder(out, "--out", REPORTED, ("figures",))
    source = configs or paths.folder("devices").parent
    if not measured:  # what is there may be of other models than those asked for
        predictions = Predictions(source, device, algorithm, asked.load, semantics)
        for model in asked.models:
            predictions.resolved(Cell(model, asked.load.validated[model][0]), CALIBRATED)
    missing = asked.held(raw) if measured else measure(asked, raw, budget, fresh)
    found = results(raw, source, device, algorithm, asked.load, _command(), starts)
    text = json_text(found)
    print(f"wrote {write(found, out)}")
    write_atomically(out / "results.json", text)  # not beside a report of something else
    verdicts = [claim["verdict"] for claim in found["claims"]]
    counts = {v: verdicts.count(v) for v in ("holds", "fails", "cannot_tell")}
    print(f"{len(verdicts)} claims: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
    _say_scope(backend, starts, asked.beyond(raw))
    unlike = [cell["name"] for cell in found["cells"] if cell["digests"] != 1]
    if unlike:
        print(
            f"runs of {', '.join(unlike)} committed different tokens: they are wrong, and so is what compares them"
        )
    _say_missing(missing, measured)
    if unlike or (counts["fails"] and backend != STAND_IN):
        raise typer.Exit(1)


@app.command("races")
def races_command(
    backend: Backend = "torch",
    algorithm: Algorithm = "dflash",
    budget: Budget = 240,
    raw: Raw = Path("gpu_races_raw"),
    fresh: Fresh = False,
    measured: NoDevice = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results and report go.")] = Path(
        "gpu_races_report"
    ),
) -> None:
    """Provoke races over a recycled request row under every policy, and compare with what the model calls safe."""
    need_torch()
    from gpu_validation import settings
    from gpu_validation.calibrate.profile_file import ENGINE
    from gpu_validation.spec.declared import declared
    from gpu_validation.starts import Asked, measure
    from gpu_validation.validate.race_results import results, write
    from sim.files import json_text, write_atomically

    asked = Asked("races", backend, algorithm, ("races",), 1)
    _check_publishes(declared(algorithm, settings.races_of(backend).block, ENGINE))
    _check_folder(out, "--out", (*REPORTED, "profile.toml", "program.toml"))
    missing = asked.held(raw) if measured else measure(asked, raw, budget, fresh)
    found = results(raw, algorithm, settings.races_of(backend), _command(), out)
    text = json_text(found)
    print(f"wrote {write(found, out)}")
    write_atomically(out / "results.json", text)  # not beside a report of something else
    _say_missing(missing, measured)
    if any(run["verdict"] == "fails" for run in found["runs"]):
        raise typer.Exit(1)


def _check_publishes(program: StepProgram) -> None:
    """Raises InputError for a worker whose lengths the host knows: most configurations say nothing about it."""
    if program.capabilities.length_source is not LengthSource.PUBLISHED:
        raise InputError(
            Problem(
                "--algorithm", f'"{program.algorithm}"', "an algorithm whose lengths the device publishes"
            )
        )


def _check_folder(path: Path, option: str, files: Sequence[str] = (), folders: Sequence[str] = ()) -> None:
    """Raises InputError unless these can be written below ``path``, which is made if needed: minutes of measuring
    lie between this and the writing."""
    check_folder(path, option, files, folders)
    path.mkdir(parents=True, exist_ok=True)


def _check_name(name: str | None) -> None:
    """Raises InputError for a name that cannot begin those of files."""
    if name is not None and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is None:
        raise InputError(
            Problem("--name", f'"{name}"', "letters, digits, dots, dashes and underscores, as h200")
        )


def _say_scope(backend: str, starts: int, beyond: list[int]) -> None:
    """What was not looked at, and what the times are worth."""
    if beyond:
        more = ", ".join(map(str, beyond))
        print(f"process starts below {starts} counted, as --starts says; there are more: {more}")
    if backend == STAND_IN:
        print("times of the CPU stand-in prove nothing about a device or about the model")


def _say_missing(missing: list[str], measured: bool) -> None:
    """Ends with status 1 where what was asked for is not all there."""
    if not missing:
        return
    if measured:
        print(f"not in --raw: {', '.join(missing)}; without --measured the same command measures them")
    else:
        print(f"not measured for want of time: {', '.join(missing)}; the same command goes on from there")
    raise typer.Exit(1)


def _command() -> str:
    return " ".join(["overlapsim", *sys.argv[1:]])
