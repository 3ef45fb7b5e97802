"""What the race runs found beside what the model says of the same load: verdicts, results and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from gpu_validation import settings
from gpu_validation.calibrate.fit import fit
from gpu_validation.calibrate.profile_file import ENGINE, pieces
from gpu_validation.spec.declared import declared
from gpu_validation.validate.race_model import given, piece_us, taken_over, window
from gpu_validation.validate.races import FEWER, Run, race_runs
from sim.errors import InputError, Problem
from sim.files import write_atomically
from sim.ingest.files import write_profile, write_program
from sim.report import markdown
from sim.report.document import Document, Section, Table
from sim.version import package_version

#: steps that a configuration which the model calls safe must run without a torn read or a wrong token
STEPS = 10_000
#: of margins, in results
QUANTILES = (0.05, 0.5, 0.95)
#: the events that time a read and a write stand behind both; nearer than this they do not tell which came first
BLURRED_US = 10.0


def results(raw: Path, algorithm: str, load: settings.RaceLoad, command: str, folder: Path) -> dict[str, Any]:
    """Judges the finished race runs in ``raw``; what the model is given is written into ``folder``, which exists.

    Raises InputError where there are none, or not what they are compared with.
    """
    found = pieces(raw, "races")
    by_name = {key: p for p in found for key in ("samples", "batches") if key in p}
    runs = {Run(p["configuration"], p["requests"], p["held_us"]): p for p in found if "torn" in p}
    lacking = [
        *(["primitives"] if "samples" not in by_name else []),
        *(["calibration"] if "batches" not in by_name else []),
        *(["race run"] if not runs else []),
    ]
    if lacking:
        problem = Problem(
            f"{raw}",
            " and ".join(f"no finished {piece}" for piece in lacking),
            "one of each",
            "Run `overlapsim gpu races` again with more time; finished pieces are kept.",
        )
        raise InputError(problem)
    others = [p for run, p in runs.items() if run not in race_runs(load)]
    if others:
        expected = f"{load.requests} requests, or that over {FEWER} where a race shows"
        remedy = "Delete the file and measure again; the other pieces are kept."
        raise InputError(
            [Problem(p["file"], f"a run of {p['requests']} requests", expected, remedy) for p in others]
        )
    primitives = by_name["samples"]
    program = declared(algorithm, load.block, ENGINE)
    calibration = by_name["batches"]
    profile = fit("races", program, [calibration], [primitives], {}, load.calibration.batches)
    # Runs that record the rows taken over had their requests made beforehand.
    made_before = all(p.get("taken_over") for p in runs.values())
    profile, program = given(profile, program, None if made_before else piece_us(calibration))
    write_profile(folder / "profile.toml", profile)
    write_program(folder / "program.toml", program)
    return {
        "command": command,
        "version": package_version(),
        "device": primitives["device"],
        "date": primitives["date"],
        "runs": [_judged(runs[run], folder, load) for run in race_runs(load) if run in runs],
    }


def _judged(run: Mapping[str, Any], folder: Path, load: settings.RaceLoad) -> dict[str, Any]:
    predicted = window(folder, load, run)
    clean = not run["torn"] and not run["wrong_requests"]
    if not predicted.safe:
        verdict = "holds"  # "unordered" promises nothing about one machine
    elif not clean:
        verdict = "fails"
    else:
        verdict = "holds" if run["steps"] >= STEPS else "cannot_tell"
    kept = ("configuration", "requests", "held_us", "steps", "recycled", "torn", "wrong_requests", "seconds")
    rows, shares = taken_over(run), predicted.shares
    return {
        **{key: run[key] for key in kept},
        "torn_share": _share(run["torn"], run["recycled"]),
        "margin_us": _quantiles([row["margin_us"] for row in rows]),
        "torn_out_of_order": _out_of_order(rows),
        "predicted_safe": predicted.safe,
        "predicted_meetings": predicted.meetings,
        "predicted_torn_share": None if shares is None else round(fmean(shares), 4),
        "predicted_torn_share_by_host": None if shares is None else [round(s, 4) for s in shares],
        "predicted_margin_us": _quantiles([m for margins in predicted.margins_us for m in margins]),
        "predicted_seconds_by_host": [round(s, 3) for s in predicted.seconds],
        "host_states": list(predicted.states),
        "host_states_of": "run" if rows else "calibration",
        "verdict": verdict,
    }


def _quantiles(values: Sequence[float]) -> list[float] | None:
    """The 5, 50 and 95 % quantiles."""
    return [round(float(q), 1) for q in np.quantile(values, QUANTILES)] if values else None


def _out_of_order(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Rows whose read was torn although the write came after it, or the other way round, on the device's clock."""
    if not rows:
        return None
    clear = [row for row in rows if abs(row["margin_us"]) > BLURRED_US]
    return sum(row["torn"] != (row["margin_us"] < 0) for row in clear)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def write(results: Mapping[str, Any], folder: Path) -> Path:
    """The report into ``folder``, which exists; returns it."""
    path = folder / "report.md"
    write_atomically(path, markdown.render(build(results)))
    return path


def build(results: Mapping[str, Any]) -> Document:
    runs: Sequence[Mapping[str, Any]] = results["runs"]
    policies = [r for r in runs if not r["held_us"]]
    unsafe = [r for r in runs if r["predicted_torn_share"] is not None]
    safe = [r for r in policies if r["predicted_safe"]]
    torn = [r for r in policies if not r["predicted_safe"] and r["torn"]]
    return Document(
        title=f"Races on {results['device']['device']}",
        question="Does a policy let a recycled request row be rewritten under a forward that still reads it, and "
        "does the model say which?",
        verdict=[
            f"{sum(r['verdict'] == 'holds' for r in safe)} of {len(safe)} configurations that the model calls safe "
            f"ran at least {STEPS:,} steps without a torn read or a wrong token",
            f"{len(torn)} configurations that it calls unsafe were caught: "
            + ", ".join(
                f"`{r['configuration']}` ({r['torn']} torn reads, {r['wrong_requests']} wrong requests)"
                for r in torn
            ),
        ],
        sections=[
            Section("Policies", [_policies(policies)]),
            Section(
                "The window",
                [
                    "Where the write of a recycled row comes to lie against the read of the forward that still "
                    "carries its former owner, without and with more host work before it. The two are a few hundred "
                    "microseconds apart, which a slow host takes up: the share that is torn is mostly a matter of "
                    "how fast the host is. The model goes through "
                    + _states(unsafe)
                    + ": from the slowest to the fastest of these, and their mean.",
                    _window(unsafe),
                    *_order(runs),
                ],
            ),
        ],
        provenance=[
            ("command", f"`{results['command']}`"),
            *((f"device: {k}", v) for k, v in results["device"].items()),
            ("date", results["date"]),
            ("version", f"overlapsim {results['version']}"),
        ],
    )


def _policies(runs: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            r["configuration"],
            "safe" if r["predicted_safe"] else "unsafe",
            f"{r['steps']:,}",
            str(r["recycled"]),
            str(r["torn"]),
            f"{r['wrong_requests']} of {r['requests']}",
            r["verdict"].replace("_", " "),
        ]
        for r in runs
    ]
    headers = [
        "configuration",
        "the model says",
        "steps",
        "rows taken over in flight",
        "torn reads",
        "requests with wrong tokens",
        "claim",
    ]
    return Table(headers, rows)


def _states(runs: Sequence[Mapping[str, Any]]) -> str:
    """Which host states were gone through."""
    count = len(runs[0]["host_states"]) if runs else 0
    if all(r["host_states_of"] == "run" for r in runs):
        return f"the host's own states in each run, {count} equally likely ones"
    factors = [state for r in runs for state in r["host_states"]]
    spread = f" (factors {min(factors):.2f} to {max(factors):.2f})" if factors else ""
    return f"the host states that the calibration met, {count} equally likely ones{spread}"


def _order(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether what was torn is what was overtaken."""
    known = [r for r in runs if r["torn_out_of_order"] is not None]
    if not known:
        return []
    taken, wrong = sum(r["recycled"] for r in known), sum(r["torn_out_of_order"] for r in known)
    return [
        f"Of {taken:,} rows taken over in flight, {wrong} were torn although the device's clock has the write later "
        f"than the read, or whole although it has it earlier, by more than {BLURRED_US:g} µs."
    ]


def _window(runs: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            r["configuration"],
            f"{r['held_us']:g}",
            _text(r["torn_share"]),
            _text(r["predicted_torn_share"]),
            f"{_text(r['predicted_torn_share_by_host'][-1])} … {_text(r['predicted_torn_share_by_host'][0])}",
            _margin(r["margin_us"]),
            _margin(r["predicted_margin_us"]),
        ]
        for r in runs
    ]
    headers = [
        "configuration",
        "host work added, µs",
        "torn, measured",
        "torn, predicted",
        "on the slowest … fastest host",
        "write after read, measured, µs",
        "write after read, predicted, µs",
    ]
    return Table(headers, rows)


def _margin(quantiles: Sequence[float] | None) -> str:
    if quantiles is None:
        return "–"
    low, middle, high = (f"{q:.0f}".replace("-", "−") for q in quantiles)
    return f"{middle} ({low} … {high})"


def _text(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"
