"""``overlapsim explain``: what limits a scenario, and what each cost would buy."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.commands.options import files_named
from sim.config.checked import Attempts
from sim.config.loader import load_resolved, parse_assignments
from sim.console import print_table
from sim.errors import InputError, Problem
from sim.files import check_distinct, check_writable, json_text, write_atomically
from sim.hazards.text import line as hazard_line
from sim.hazards.text import verdict

#: costs in the printed table; the JSON file has all of them
_COSTS = 12
#: columns of running text
_WIDTH = 110


def command(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A path, or a name from `list scenarios`.")
    ],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace one key of the scenario.")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Mean tokens a request to evaluate at; default: the middle of an output."
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the explanation.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="Draw the critical cycle (.svg or .png).")
    ] = None,
) -> None:
    """Say which cycle limits the steady state of a full batch, and what cutting each cost would gain."""
    attempts = Attempts()
    overrides: dict[str, object] = {}
    for assignment in assignments or []:
        overrides |= attempts.call(parse_assignments, [assignment]) or {}
    resolved = attempts.call(load_resolved, scenario, overrides)
    at = attempts.call(_context, context)
    attempts.call(check_writable, json, "--json")
    attempts.call(check_writable, figure, "--figure")
    attempts.call(check_distinct, {"--json": json, "--figure": figure}, files_named({"SCENARIO": scenario}))
    attempts.call(_check_format, figure)
    if attempts.problems or resolved is None:
        raise InputError(attempts.problems)

    # after the checks: a wrong input is answered at once
    from sim.device_clock import settled_idle_share
    from sim.hazards.check import merged as findings
    from sim.maxplus.explanation import explain
    from sim.replication import Replication

    explanation = explain(resolved, at)
    check = Replication(resolved, 0, hazards=True, idle_share=settled_idle_share(resolved)).run().hazards
    explanation["hazards"] = findings([check] if check else [])
    if json:  # files first: whoever reads the text may stop reading
        write_atomically(json, json_text(explanation))
    if figure:
        from sim.report.figures.loop import write

        write(explanation, figure)
    print_explanation(explanation)


def _context(text: str | None) -> float | None:
    """Tokens, at least 1. Raises InputError."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < 2**31:
        raise InputError(Problem("--context", f'"{text}"', "a number of tokens a request, 1 or more"))
    return value


def _check_format(figure: Path | None) -> None:
    if figure is not None and figure.suffix not in (".svg", ".png"):
        raise InputError(Problem("--figure", f'"{figure}"', "a file name that ends in .svg or .png"))


def print_explanation(explanation: dict[str, Any]) -> None:
    """The explanation in a screenful."""
    from sim.maxplus import words

    for line in words.lines(explanation):
        print(textwrap.fill(line, _WIDTH, subsequent_indent="   " if line[:1] in "-123456789" else ""))
    hazards = explanation["hazards"]
    print(f"Shared buffers: {verdict(hazards)}.")
    for found in hazards:
        print(textwrap.fill(f"- {hazard_line(found)}", _WIDTH, subsequent_indent="   "))
    print_table(
        ["cost", "side", "status", "µs a step", "µs a µs", "gain of −10 µs", "gain of −10 %"],
        _rows(explanation["costs"]),
        title="What cutting a cost gains, µs a step",
    )


def _rows(costs: list[dict[str, Any]]) -> list[list[str]]:
    from sim.maxplus.words import number

    def cell(value: float | None) -> str:
        return "" if value is None else number(value)

    single = [c for c in costs if c["derivative"] is not None]
    gaining = [c for c in single if max(c["gain_10us"], c["gain_10pct"]) >= 0.05]
    rows = [
        [
            c["name"],
            "host" if c["host"] else "device",
            c["status"],
            cell(c["us_per_step"]),
            "" if c["derivative"] is None else f"{c['derivative']:.2f}",
            cell(c["gain_10us"]),
            cell(c["gain_10pct"]),
        ]
        for c in [*gaining[:_COSTS], *(c for c in costs if c["derivative"] is None)]
    ]
    more = len(gaining) - len(gaining[:_COSTS])
    rest = len(single) - len(gaining)
    if more:
        rows.append([f"{more} more that gain less", "", "", "", "", "", ""])
    if rest:
        rows.append([f"{rest} others, no gain", "", "", "", "", "0.0", "0.0"])
    return rows
