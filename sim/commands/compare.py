"""``overlapsim compare``: what going from one scenario to another changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.commands.options import files_named, fraction
from sim.config.checked import Attempts
from sim.config.loader import load_resolved, parse_assignments
from sim.console import print_table, print_wrapped
from sim.errors import InputError
from sim.files import check_distinct, check_writable, json_text, write_atomically
from sim.hazards.text import harmful, line, verdict
from sim.report.text import microseconds, number, percent, percent_span
from sim.stats.paired import RESOLUTION

if TYPE_CHECKING:
    from sim.config.resolve import Resolved
    from sim.study.compare import Comparison

Assignments = list[str] | None


def command(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A scenario: a path or a name from `list scenarios`.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The scenario to compare with it.")],
    assignments: Annotated[
        Assignments, typer.Option("--set", metavar="KEY=VALUE", help="Replace one key of both scenarios.")
    ] = None,
    of_a: Annotated[
        Assignments, typer.Option("--set-a", metavar="KEY=VALUE", help="Replace one key of A alone.")
    ] = None,
    of_b: Annotated[
        Assignments, typer.Option("--set-b", metavar="KEY=VALUE", help="Replace one key of B alone.")
    ] = None,
    replications: Annotated[int | None, typer.Option(metavar="N", help="Replaces run.replications.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Replaces run.seed.")] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="0.2%", help="Replicate until the change's ci95 is within this many points."),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the comparison.")] = None,
    fail_on_hazard: Annotated[
        bool,
        typer.Option("--fail-on-hazard", help="Exit with 1 on a harmful conflict over a shared buffer in B."),
    ] = False,
) -> None:
    """Compare two scenarios on common random numbers, with an interval and a verdict."""
    options = {"run.replications": ("--replications", replications), "run.seed": ("--seed", seed)}
    given = {key: (option, value) for key, (option, value) in options.items() if value is not None}
    names = {key: option for key, (option, _) in given.items()}
    attempts = Attempts()

    def load(name: str, own: Assignments, option: str) -> Resolved | None:
        overrides: dict[str, object] = {}
        where = dict(names)
        for text, said in [*((t, "--set") for t in assignments or []), *((t, option) for t in own or [])]:
            new = attempts.call(parse_assignments, [text]) or {}
            overrides |= new
            where |= {key: f"{said} {key}" for key in new if said != "--set"}
        overrides |= {key: value for key, (_, value) in given.items()}
        return attempts.call(load_resolved, name, overrides, where)

    first, second = load(a, of_a, "--set-a"), load(b, of_b, "--set-b")
    half_width = attempts.call(fraction, until)
    attempts.call(check_writable, json, "--json")
    attempts.call(check_distinct, {"--json": json}, files_named({"A": a, "B": b}))
    if attempts.problems or first is None or second is None:
        raise InputError(dict.fromkeys(attempts.problems))

    from sim.study.compare import compare  # after the checks: a wrong input is answered without the engine

    comparison = compare(first, second, until=half_width)
    if json:  # first: whoever reads the table may stop reading
        write_atomically(json, json_text(comparison.to_json()))
    print_comparison(comparison)
    if fail_on_hazard and harmful(comparison.b.hazards):
        raise typer.Exit(1)


def print_comparison(comparison: Comparison) -> None:
    """The two sides, the change, the verdict in a sentence."""
    rows = []
    a, b = comparison.a.to_json(), comparison.b.to_json()
    for label, key, pair in (
        ("throughput, tok/s", "throughput_tok_s", comparison.throughput),
        ("cycle, µs", "cycle_us", comparison.cycle),
    ):
        if pair is None:
            rows.append([label, *(number(side[key]["mean"]) for side in (a, b)), "too short a run", "", ""])
            continue
        rows.append(
            [
                label,
                *(number(side[key]["mean"]) for side in (a, b)),
                f"{percent(pair.relative.mean)} ({microseconds(pair.absolute.mean)})",
                percent_span(pair.relative.ci95),
                percent_span(pair.relative.pi95),
            ]
        )
    safety = [verdict(side["hazards"]).split(":")[0] for side in (a, b)]
    rows.append(["shared buffers", *safety, "", "", ""])
    print_table(["", "A", "B", "change", "ci95 of the mean", "pi95 of a new boot"], rows)
    for name, side in (("A", a), ("B", b)):
        for found in harmful(side["hazards"]):
            print_wrapped(f"{name} is unsafe: {line(found)}")
    print(f"verdict: {sentence(comparison)}")


def sentence(comparison: Comparison) -> str:
    """``B is slower: −3.1 % (ci95 −3.2 … −3.0 %, pi95 −4.8 … −2.5 %)``."""
    change = comparison.throughput.relative
    if comparison.verdict == "cannot tell":
        if change.ci95 is None:
            return "cannot tell: one replication gives no interval"
        lead = f"cannot tell: the change in throughput may be 0, or less than {RESOLUTION:.2%}"
    else:
        lead = f"B is {comparison.verdict}"
    spans = [
        f"{name} {percent_span(interval)}"
        for name, interval in (("ci95", change.ci95), ("pi95", change.pi95))
        if interval is not None
    ]
    return f"{lead}: {percent(change.mean)} ({', '.join(spans)})"
