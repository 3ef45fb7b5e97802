"""The composition root: a resolved scenario becomes a machine, policies, a loop and books; then a result.

One *replication* is one run of the workload with its own luck. Replications run at the host state the costs are
stated at; the spread between boots enters ``pi95`` through two extra runs of the first replication, at the ends
of the profile's host-state range.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sim.config.profile import NEW_BOOT
from sim.config.resolve import Resolved
from sim.device_clock import settled_idle_share
from sim.errors import InputError, Problem
from sim.hazards.check import Finding, Occurrence, merged
from sim.hazards.rules import Severity
from sim.replication import PREFILL_TOKENS, Replication
from sim.result import RunResult
from sim.stats.intervals import mean_interval
from sim.summary import summarise
from sim.trace import chrome
from sim.trace.metrics import FEWEST
from sim.trace.recorder import Recorder
from sim.units import NS_PER_US

#: most replications `until` may ask for
MOST_REPLICATIONS = 400


def simulate(
    resolved: Resolved,
    *,
    until: float | None = None,
    trace: Path | None = None,
    new_boots: bool = True,
    hazards: bool = True,
) -> RunResult:
    """Runs a resolved scenario.

    ``until``: go on replicating until the half-width of the throughput's ``ci95`` is at most this share of it.
    ``trace``: write the first replication there as Chrome/Perfetto JSON (gzipped if it ends in .gz).
    ``new_boots``: also run at other host states, which ``pi95`` needs; without, ``pi95`` is None.
    ``hazards``: check every replication's shared accesses; without, the result's ``hazards`` is None.
    Raises InputError when ``until`` is set and the run is too short for a cycle or the replications run out,
    WaitError when the step program waits for an event that nothing records.
    """
    began = time.perf_counter()
    scenario = resolved.scenario
    wanted = scenario.run.replications
    recorder = None if trace is None else Recorder()
    idle = settled_idle_share(resolved)
    runs = [
        Replication(
            resolved, r, recorder=recorder if r == 0 else None, hazards=hazards, idle_share=idle
        ).run()
        for r in range(wanted)
    ]
    if until is not None:
        _refuse_short(runs, resolved)
        while not _narrow(runs, until):
            if len(runs) >= MOST_REPLICATIONS:
                raise InputError(
                    Problem(
                        "--until",
                        f"still wider than {until:.3%} after {MOST_REPLICATIONS} replications",
                        "a half-width this workload can reach",
                        "Ask for a wider interval or simulate more requests.",
                    )
                )
            runs.append(Replication(resolved, len(runs), hazards=hazards, idle_share=idle).run())
    nodes = _at_other_host_states(resolved, idle) if new_boots else None
    result = summarise(resolved, runs, nodes, time.perf_counter() - began)
    if trace is not None and recorder is not None:
        chrome.write(trace, recorder.records, program=resolved.program_name)
    return result


class Meetings(NamedTuple):
    """``hazards``: as results list them. ``margins_us``: of every harmful meeting of the two operations asked for,
    from the end of the first to the start of the second; below zero they overlapped or came in the wrong order.
    ``seconds``: from the first arrival to the last completion."""

    hazards: list[dict[str, Any]]
    margins_us: list[float]
    seconds: float


def meetings(
    resolved: Resolved,
    operations: tuple[str, str],
    host_factor: float = 1.0,
    prefill_tokens: int = PREFILL_TOKENS,
) -> Meetings:
    """How near two operations of the first replication came, each time that nothing ordered them.

    ``host_factor``: the boot's host state. ``prefill_tokens``: prompt tokens one prefill takes; a longer prompt runs
    alone.
    """
    margins: list[float] = []

    def met(finding: Finding, place: Occurrence) -> None:
        if finding.severity is Severity.HARMFUL and tuple(op.name for op in finding.operations) == operations:
            margins.append(place.margin / NS_PER_US)

    replication = Replication(
        resolved,
        0,
        host_factor=host_factor,
        hazards=True,
        prefill_tokens=prefill_tokens,
        idle_share=settled_idle_share(resolved),
    )
    assert replication.hazards is not None
    replication.hazards.on_meeting = met
    replication.run()
    seconds = replication.books.output_tokens / replication.throughput
    return Meetings(merged([replication.hazards]), margins, seconds)


def _at_other_host_states(resolved: Resolved, idle_share: float) -> list[Replication]:
    """The first replication's luck at both ends of the host states a boot may be in.

    Cycle and throughput are monotone in the host factor, so the ends of the states give the ends of the answer.
    """
    quantiles = resolved.profile.host_state.quantiles
    ends = {factor for probability, factor in quantiles.items() if float(probability) in NEW_BOOT}
    return [
        Replication(resolved, 0, host_factor=factor, idle_share=idle_share).run()
        for factor in sorted(ends - {1.0})
    ]


def _refuse_short(runs: Sequence[Replication], resolved: Resolved) -> None:
    full = resolved.scenario.workload.concurrency
    if full is not None and any(r.cycle is None for r in runs):
        fewest = min(r.books.cycles.count for r in runs)
        raise InputError(
            Problem(
                "workload",
                f"a run with only {fewest} full-batch cycles",
                f"at least {FEWEST} of them for --until",
                "Raise workload.requests or workload.output_tokens, or lower workload.concurrency.",
            )
        )


def _narrow(runs: Sequence[Replication], until: float) -> bool:
    interval = mean_interval([r.throughput for r in runs])
    if interval is None:
        return False
    low, high = interval
    return (high - low) / 2 <= until * (high + low) / 2
