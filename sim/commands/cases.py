"""``overlapsim cases``: predicts every published before/after pair and prints the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.config.checked import Attempts
from sim.console import print_table
from sim.errors import InputError
from sim.files import check_folder, check_writable, json_text, write_atomically


def command(
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the ledger.")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="Write report, figure and ledger there.")
    ] = None,
) -> None:
    """Predict every published before/after pair and print the ledger."""
    attempts = Attempts()
    attempts.call(check_writable, json, "--json")
    attempts.call(check_folder, report, "--report", ("report.md", "cases.json"), ("figures",))
    if attempts.problems:
        raise InputError(attempts.problems)

    from sim.cases import ledger  # after the checks: a wrong input is answered without loading the engine

    predicted = ledger.predictions()
    rows = [
        [
            name,
            ledger.percent_or_dash(p.case.change_percent),
            ledger.percent_or_dash(p.change_percent),
            str(p.verdict) if p.case.decidable else f"{p.verdict}: {p.case.because}",
        ]
        for name, p in predicted.items()
    ]
    print_table(["case", "published", "predicted", "verdict"], rows)
    agree, decidable = ledger.agreement(predicted)
    print(
        f"{agree} of {decidable} decidable cases agree in sign and magnitude; {len(predicted)} cases in all"
    )
    if json:
        write_atomically(json, json_text(ledger.to_json(predicted)))
    if report:
        print(f"report: {ledger.write_report(predicted, report)}")
