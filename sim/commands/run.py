"""``overlapsim run``: one scenario, a short table, and the files asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.commands.options import files_named, fraction
from sim.config.checked import Attempts
from sim.config.loader import load_resolved, parse_assignments
from sim.console import print_table, print_wrapped
from sim.errors import InputError
from sim.files import check_distinct, check_writable, json_text, write_atomically
from sim.hazards.text import harmful, line, verdict

#: what a prediction at a known host state shows
CONDITIONED = (
    "throughput_tok_s",
    "cycle_us",
    "steps_per_s",
    "tpot_ms",
    "gpu_busy_fraction",
    "exposed_host_us_per_step",
    "idle_us_per_step",
    "critical_side",
)


def command(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A path, or a name from `list scenarios`.")
    ],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace one key of the scenario.")
    ] = None,
    replications: Annotated[int | None, typer.Option(metavar="N", help="Replaces run.replications.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Replaces run.seed.")] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="0.2%", help="Replicate until the throughput's ci95 is within this share."),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result.")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write a Perfetto trace.")
    ] = None,
    host_state_from: Annotated[
        Path | None,
        typer.Option(
            "--host-state-from",
            metavar="TIMINGS",
            help="Also predict at the host state of one boot, from its unprofiled timings (CSV).",
        ),
    ] = None,
    fail_on_hazard: Annotated[
        bool, typer.Option("--fail-on-hazard", help="Exit with 1 on a harmful conflict over a shared buffer.")
    ] = False,
) -> None:
    """Simulate one scenario and print a short table."""
    options = {"run.replications": ("--replications", replications), "run.seed": ("--seed", seed)}
    given = {key: (option, value) for key, (option, value) in options.items() if value is not None}
    attempts = Attempts()
    overrides: dict[str, object] = {}
    for assignment in assignments or []:
        overrides |= attempts.call(parse_assignments, [assignment]) or {}
    overrides |= {key: value for key, (_, value) in given.items()}
    resolved = attempts.call(load_resolved, scenario, overrides, {key: o for key, (o, _) in given.items()})
    half_width = attempts.call(fraction, until)
    attempts.call(check_writable, json, "--json")
    attempts.call(check_writable, trace, "--trace")
    read = {**files_named({"SCENARIO": scenario}), "--host-state-from": host_state_from}
    attempts.call(check_distinct, {"--json": json, "--trace": trace}, read)
    reading = None
    if host_state_from is not None and resolved is not None:
        from sim.ingest.condition import read_state

        reading = attempts.call(read_state, resolved, host_state_from)
    if attempts.problems or resolved is None:
        raise InputError(attempts.problems)

    from sim.run import simulate  # after the checks: a wrong input is answered without loading the engine

    result = simulate(resolved, until=half_width, trace=trace).to_json()
    if reading is not None:
        from sim.ingest.condition import at_state

        known = simulate(at_state(resolved, reading.state), hazards=False).to_json()
        result["conditioned"] = {
            "host_state": reading.state,
            "read_from": reading.text,
            **{key: known[key] for key in CONDITIONED},
        }
    if json:  # first: whoever reads the table may stop reading
        write_atomically(json, json_text(result))
    print_summary(result)
    if fail_on_hazard and harmful(result["hazards"]):
        raise typer.Exit(1)


def print_summary(result: dict[str, Any]) -> None:
    """The result in a screenful; every figure is from the JSON form, in its units."""
    device = result["device"]
    known = result.get("conditioned")
    state = "" if known is None else f" at host state {known['host_state']:.3f}"
    print_table(
        ["", "mean", "ci95 of the mean", "pi95 of a new boot"],
        [
            row
            for where, figures in (("", result), (state, known))
            if figures is not None
            for row in (
                _interval_row(f"throughput{where}, tok/s", figures["throughput_tok_s"]),
                _interval_row(f"cycle{where}, µs", figures["cycle_us"]),
                [f"TPOT{where}, ms", _number(_mean(figures["tpot_ms"])), "", ""],
            )
        ],
        title=f"{result['program']} on {device['name']}",
    )
    idle = {cause: us for cause, us in result["idle_us_per_step"].items() if us}
    shares = {status: share for status, share in result["cost_share_by_status"].items() if share}
    rows = [
        ["critical side", str(result["critical_side"])],
        ["GPU idle, µs a step", ", ".join(f"{cause} {_number(us)}" for cause, us in idle.items()) or "none"],
        ["costs by status", ", ".join(f"{status} {share:.1%}" for status, share in shares.items())],
    ]
    if known is not None:
        rows.append(["host state", known["read_from"]])
    if result["extrapolated"]:
        rows.append(["extrapolated", ", ".join(result["extrapolated"])])
    rows.append(["shared buffers", verdict(result["hazards"])])
    rows += [["note", note] for note in result["notes"]]
    print_table(["", ""], rows)
    for found in result["hazards"] or []:
        print_wrapped(f"- {line(found)}")


def _interval_row(name: str, quantity: dict[str, Any] | None) -> list[str]:
    if quantity is None or quantity["mean"] is None:
        return [name, "too short a run", "", ""]
    intervals = [quantity.get(key) for key in ("ci95", "pi95")]
    return [name, _number(quantity["mean"]), *(_span(interval) for interval in intervals)]


def _span(interval: list[float] | None) -> str:
    return "–" if interval is None or None in interval else " … ".join(_number(end) for end in interval)


def _mean(quantity: dict[str, Any] | None) -> float | None:
    return None if quantity is None else quantity["mean"]


def _number(value: float | None) -> str:
    """Four significant digits, without exponents for the sizes that occur."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
