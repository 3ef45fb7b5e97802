"""The program ``overlapsim``: finds the command typed and imports that one alone, so that it starts fast."""

from __future__ import annotations

import importlib
import io
import sys
from importlib.util import find_spec
from typing import Annotated, Any, NoReturn

import typer

from sim.console import print_input_error
from sim.errors import InputError, WaitError

#: exit status of a program ended by Ctrl-C
INTERRUPTED = 130
#: command -> module whose `command` (a function) or `app` (several of them) it is
COMMANDS = {
    "run": "sim.commands.run",
    "compare": "sim.commands.compare",
    "explain": "sim.commands.explain",
    "study": "sim.commands.study",
    "ingest": "sim.commands.ingest",
    "overlay": "sim.commands.overlay",
    "cases": "sim.commands.cases",
    "list": "sim.commands.list",
    "gpu": "gpu_validation.commands",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        from sim.version import package_version

        print(package_version())
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Predicts what a scheduling change does to speculative decoding before anyone pays for the GPU time."""


def build(arguments: list[str]) -> typer.Typer:
    """The application with the command that ``arguments`` name; with all of them for help and for typos."""
    app = typer.Typer(
        name="overlapsim",
        callback=_options,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    typed = next((word for word in arguments if not word.startswith("-")), None)
    for name in [typed] if typed in COMMANDS else COMMANDS:
        if find_spec(COMMANDS[name]) is None:
            continue
        module = importlib.import_module(COMMANDS[name])
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(module.command)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Ends with SystemExit: 0 done, 1 a requested check failed, 2 the input was wrong."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without µ or − shows what stands for it
            stream.reconfigure(errors="backslashreplace")
    try:
        code = build(arguments)(args=arguments, prog_name="overlapsim", standalone_mode=False)
        if code == INTERRUPTED:  # what some versions of the library make of Ctrl-C, others raise
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except InputError as error:
        print_input_error(error)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        print("overlapsim: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:  # a full disk, a folder that vanished: what was being written is not there
        print(f"overlapsim: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
    except WaitError as error:  # a step program that can never go on
        print(f"overlapsim: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        if not hasattr(
            error, "format_message"
        ):  # no refusal of the command-line library: a bug, which travels
            raise
        _refuse_usage(error, arguments)


def _refuse_usage(error: Any, arguments: list[str]) -> NoReturn:
    """Says what is wrong with the command line as such; a value of the wrong kind as any other wrong input."""
    from sim.commands import usage

    problem = usage.problem(error, arguments)
    if problem is not None:
        print_input_error(InputError(problem))
    else:
        error.show()
    sys.exit(2)


if __name__ == "__main__":
    main()
