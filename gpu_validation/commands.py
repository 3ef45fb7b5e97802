"""``overlapsim gpu …``: the real-device suite. Imports torch only inside a command, and says so when it is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal

import typer

from sim.console import print_table
from sim.errors import InputError, Problem

app = typer.Typer(
    no_args_is_help=True,
    help="Measure this machine's device, calibrate the model on it and check the model against it.",
)

Backend = Annotated[
    Literal["torch", "cpu"],
    typer.Option(help="torch: the device torch sees; cpu: the ordered stand-in, for trying things out."),
]


def need_torch() -> None:
    """Raises InputError naming the extra to install."""
    if find_spec("torch") is None:
        raise InputError(
            Problem(
                "overlapsim gpu",
                "no torch in this environment",
                "the extra that has it",
                'Install it with: pip install "overlapsim[gpu]" (for a GPU, a build of torch for its driver).',
            )
        )


@app.command("probe")
def probe_command(backend: Backend = "torch") -> None:
    """Print what the device and its runtime can do, and how each fact was found."""
    need_torch()
    from gpu_validation.device import open_backend
    from gpu_validation.device.probe import probe

    found = probe(open_backend(backend))
    print_table(["fact", "value", "how it was found"], [[f.name, f.value, f.how] for f in found])
