"""Two scenarios on the same luck and the same machine: the paired difference and what it says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from sim.config.checked import shown
from sim.config.resolve import Resolved
from sim.errors import InputError, Problem
from sim.result import RunResult
from sim.run import MOST_REPLICATIONS, simulate
from sim.stats.paired import Change, Paired, Verdict, paired, verdict


@dataclass(frozen=True)
class Comparison:
    """``b`` against ``a``: changes from a to b; that of the cycle is None for too short runs."""

    a: RunResult
    b: RunResult
    throughput: Paired
    cycle: Paired | None
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "throughput_tok_s": _json(self.throughput),
            "cycle_us": None if self.cycle is None else _json(self.cycle),
            "a": self.a.to_json(),
            "b": self.b.to_json(),
        }


def compare(a: Resolved, b: Resolved, *, until: float | None = None) -> Comparison:
    """Simulates both with the same seeds and as many replications of each.

    ``until``: replicate until the half-width of the relative change's ``ci95`` is at most this. Raises InputError if
    the two ask for different seeds or replications, or if ``until`` is out of reach.
    """
    _refuse_unpaired(a, b)
    while True:
        results = simulate(a), simulate(b)
        change = _paired(*results)
        if until is None:
            return change
        wide = _half_width(change.throughput.relative)
        count = a.scenario.run.replications
        if wide is not None and wide <= until:
            return change
        if count >= MOST_REPLICATIONS:
            raise InputError(
                Problem(
                    "--until",
                    f"a difference known to ± {wide:.3%} after {count} replications"
                    if wide
                    else "one replication",
                    "a half-width this workload can reach",
                    "Ask for a wider interval or simulate more requests.",
                )
            )
        # The half-width falls with the root of the number; a little more, since its estimate is itself uncertain.
        wanted = 2 * count if wide is None else math.ceil(1.2 * count * (wide / until) ** 2)
        a, b = (_with_replications(side, min(max(wanted, count + 1), MOST_REPLICATIONS)) for side in (a, b))


def _paired(a: RunResult, b: RunResult) -> Comparison:
    sides = a.to_json(), b.to_json()
    throughput = paired(*sides, "throughput_tok_s")
    assert throughput is not None
    return Comparison(a, b, throughput, paired(*sides, "cycle_us"), verdict(throughput.relative))


def _half_width(change: Change) -> float | None:
    return None if change.ci95 is None else (change.ci95[1] - change.ci95[0]) / 2


def _with_replications(resolved: Resolved, count: int) -> Resolved:
    run = resolved.scenario.run.model_copy(update={"replications": count})
    return replace(resolved, scenario=resolved.scenario.model_copy(update={"run": run}))


def _refuse_unpaired(a: Resolved, b: Resolved) -> None:
    problems = [
        Problem(
            f"run.{key}",
            f"{shown(ours)} in A and {shown(theirs)} in B",
            "one value: both sides are paired run by run",
            f"Give --{key}.",
        )
        for key in ("seed", "replications")
        if (ours := getattr(a.scenario.run, key)) != (theirs := getattr(b.scenario.run, key))
    ]
    if problems:
        raise InputError(problems)


def _json(pair: Paired) -> dict[str, Any]:
    return {"absolute": _change(pair.absolute, 4), "relative": _change(pair.relative, 8)}


def _change(change: Change, digits: int) -> dict[str, Any]:
    intervals = {"ci95": change.ci95, "pi95": change.pi95}
    rounded = {
        name: None if interval is None else [round(end, digits) for end in interval]
        for name, interval in intervals.items()
    }
    return {"mean": round(change.mean, digits), **rounded}
