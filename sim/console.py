"""What people see: input errors on standard error, tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from sim.errors import InputError

_UNWRAPPED = 1000  # columns: wider than any table, which takes only the columns it needs


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
    """A table; on a terminal wrapped to it, else as wide as its content."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers, title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=any(headers))
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=_UNWRAPPED)
    console.print(table)
