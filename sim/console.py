"""What people see: input errors on standard error, tables on standard output."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sim.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

#: columns where the output is no terminal
WIDTH = 100


def print_input_error(error: InputError) -> None:
    """Every problem on a line of its own."""
    lines = [str(problem) for problem in error.problems]
    if len(lines) == 1:
        text = f"overlapsim: {lines[0]}"
    else:
        text = "\n  ".join([f"overlapsim: {len(lines)} problems", *lines])
    # A path on the command line may hold bytes that are no text.
    print(text.encode(errors="backslashreplace").decode(), file=sys.stderr)


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table no wider than the terminal, or than :data:`WIDTH` elsewhere: long cells take several lines."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=any(headers))
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def print_wrapped(text: str) -> None:
    """A sentence over as many lines as it needs, all but the first indented."""
    print(textwrap.fill(text, _console().width, subsequent_indent="   ", break_on_hyphens=False))


def _console() -> Console:
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=WIDTH)
