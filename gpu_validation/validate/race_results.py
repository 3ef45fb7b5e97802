"""What the race runs found beside what the model says of the same load: verdicts, results and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_validation import settings
from gpu_validation.calibrate.fit import fit
from gpu_validation.calibrate.profile_file import ENGINE, pieces
from gpu_validation.configurations import CONFIGURATIONS
from gpu_validation.spec.declared import declared
from gpu_validation.validate.races import Run, race_runs
from sim.config.profile import DeviceProfile
from sim.config.resolve import Resolved, resolve
from sim.config.scenario import Scenario
from sim.errors import InputError, Problem
from sim.files import write_atomically
from sim.hazards.text import harmful
from sim.ingest.files import write_profile, write_program
from sim.report import markdown
from sim.report.document import Document, Section, Table
from sim.run import simulate
from sim.version import package_version

#: steps that a configuration which the model calls safe must run without a torn read or a wrong token
STEPS = 10_000
#: the write and the read that race: a new request's row, and the page table of the verification
WRITE, READ = "prefill.assign", "verify.metadata"


def results(raw: Path, algorithm: str, load: settings.RaceLoad, command: str, folder: Path) -> dict[str, Any]:
    """Judges the finished race runs in ``raw``; what the model is given is written into ``folder``, which exists.

    Raises InputError if there are none.
    """
    found = pieces(raw, "races")
    by_name = {key: p for p in found for key in ("samples", "batches") if key in p}
    runs = {Run(p["configuration"], p["requests"], p["held_us"]): p for p in found if "torn" in p}
    if len(by_name) < 2 or not runs:
        problem = Problem(
            f"{raw}", "no finished race run", "one", "Run `overlapsim gpu races` again with more time."
        )
        raise InputError(problem)
    primitives = by_name["samples"]
    program = declared(algorithm, load.block, ENGINE)
    profile = fit("races", program, [by_name["batches"]], [primitives], {})
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
    resolved = _resolved(run["configuration"], folder, load, run["requests"])
    predicted = simulate(
        replace(resolved, profile=_delayed(resolved.profile, run["held_us"])), new_boots=False
    )
    conflicts = [
        h
        for h in harmful(predicted.hazards)
        if h["first"]["operation"] == READ and h["second"]["operation"] == WRITE
    ]
    met, realised = (sum(h[key] for h in conflicts) for key in ("count", "realised"))
    safe = not harmful(predicted.hazards)
    clean = not run["torn"] and not run["wrong_requests"]
    if not safe:
        verdict = "holds"  # "unordered" promises nothing about one machine
    elif not clean:
        verdict = "fails"
    else:
        verdict = "holds" if run["steps"] >= STEPS else "cannot_tell"
    kept = ("configuration", "requests", "held_us", "steps", "recycled", "torn", "wrong_requests")
    return {
        **{key: run[key] for key in kept},
        "torn_share": _share(run["torn"], run["recycled"]),
        "predicted_safe": safe,
        "predicted_conflicts": met,
        "predicted_torn": realised,
        "predicted_torn_share": _share(realised, met),
        "predicted_margin_us": min((h["margin_us"] for h in conflicts), default=None),
        "verdict": verdict,
    }


def _delayed(profile: DeviceProfile, held_us: float) -> DeviceProfile:
    """The same machine with more host work on each result."""
    process = profile.costs["host.process"]
    assert isinstance(process.value, float)
    later = process.model_copy(update={"value": process.value + held_us})
    return profile.model_copy(update={"costs": {**profile.costs, "host.process": later}})


def _resolved(configuration: str, folder: Path, load: settings.RaceLoad, requests: int) -> Resolved:
    keys = {
        "device": str(folder / "profile.toml"),
        "algorithm": str(folder / "program.toml"),
        **CONFIGURATIONS[configuration],
        "serving": {
            "max_running_requests": load.concurrency,
            "graph_batches": list(load.calibration.batches),
        },
        "workload": {
            "concurrency": load.concurrency,
            "requests": requests,
            "prompt_tokens": {"values": load.prompts},
            "output_tokens": {"values": load.outputs},
        },
        "acceptance": {"model": "truncated_geometric", "mean_accepted_drafts": load.mean_accepted},
        "run": {"seed": settings.SEED, "replications": 1},
    }
    return resolve(Scenario.model_validate(keys))


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
    window = [r for r in runs if r["configuration"] == "unguarded"]
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
                    "The unguarded configuration with more and more host work before a row is rewritten: the later "
                    "the write, the fewer reads it meets. The model predicts each from its own timeline.",
                    _window(window),
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


def _window(runs: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            f"{r['held_us']:g}",
            _text(r["torn_share"]),
            _text(r["predicted_torn_share"]),
            "–" if r["predicted_margin_us"] is None else f"{r['predicted_margin_us']:.0f}".replace("-", "−"),
        ]
        for r in runs
    ]
    headers = [
        "host work added, µs",
        "torn, measured",
        "torn, predicted",
        "predicted margin at the closest, µs",
    ]
    return Table(headers, rows)


def _text(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"
