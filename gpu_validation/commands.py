"""``overlapsim gpu …``: the real-device suite. Imports torch only inside a command; says so when it is missing."""

from __future__ import annotations

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
Starts = Annotated[int, typer.Option(min=1, max=20, help="Process starts, one after the other.")]
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
    missing = asked.held(raw) if measured else measure(asked, raw, budget, fresh)
    written = write_calibration(raw, program, name, target, {"command": _command()})
    for path in written:
        print(f"wrote {path}")
    _say_missing(missing)


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
    found = results(raw, source, device, algorithm, asked.load, _command())
    write_atomically(out / "results.json", json_text(found))
    print(f"wrote {write(found, out)}")
    verdicts = [claim["verdict"] for claim in found["claims"]]
    counts = {v: verdicts.count(v) for v in ("holds", "fails", "cannot_tell")}
    print(f"{len(verdicts)} claims: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
    _say_missing(missing)
    if counts["fails"]:
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
    write_atomically(out / "results.json", json_text(found))
    print(f"wrote {write(found, out)}")
    _say_missing(missing)
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


def _say_missing(missing: list[str]) -> None:
    """Ends with status 1 where the budget left something out."""
    if missing:
        print(f"not measured for want of time: {', '.join(missing)}; the same command goes on from there")
        raise typer.Exit(1)


def _command() -> str:
    return " ".join(["overlapsim", *sys.argv[1:]])
