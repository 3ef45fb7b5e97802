"""Host costs from the sections of calibration runs: a value a batch, and what a wake adds.

Which section is which cost is read off the model's own expansion of the step program: no name is written twice.
All times are taken at one speed of the host (:mod:`gpu_validation.observe.host_speed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_validation.calibrate.measure import MODES
from gpu_validation.calibrate.usual_speed import near, reference_us
from gpu_validation.configurations import CALIBRATED, CONFIGURATIONS, policies_of
from gpu_validation.observe.host_speed import witness, witnessed_us
from gpu_validation.observe.run_record import RunRecord
from gpu_validation.runtime.host_work import HostWork
from sim.capabilities import Relay
from sim.config.profile import Cost, at_batch
from sim.program.expand import Expander
from sim.program.policies import Situation
from sim.program.primitives import WAKE, Act, Primitive, first_launches
from sim.program.step_program import Kind, Phase, StepProgram
from sim.units import NS_PER_US

#: a section longer than this many times its median was disturbed from outside and counts for nothing
DISTURBED = 3.0
#: a synchronisation longer than this blocked: a met one takes a few microseconds, and shorter waits are rare
BLOCKED_US = 40.0
#: fewer passes than this near the reference are too few: then all count, moved to it from where they are
FEWEST = 3


class Place(NamedTuple):
    """Where a section is seen.

    ``woken_by``: the synchronisation that blocked before it in the same piece of the loop, "" for none;
    ``idle``: no graph was launched since, so that the device waits for this section; ``first``: it is the first
    kernel launch after a host section.
    """

    section: str
    cost: str
    batch: int
    woken_by: str
    idle: bool
    first: bool


#: µs of a section in the steady passes of one run, and of the witness in each
Passes = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Sample:
    """One section in one run, µs: mean and standard deviation over its steady passes at the reference speed, and the
    mean ``as_it_ran``, whatever the speed."""

    cost: str
    batch: int
    woken_by: str
    idle: bool
    first: bool
    mean: float
    sd: float
    as_it_ran: float


def sections_of(program: StepProgram, batch: int, run: dict[str, Any]) -> dict[Place, Passes]:
    """Every section of a run's steady passes."""
    record, names = RunRecord.from_json(run["record"]), witness(program)
    found: dict[Place, list[tuple[float, float]]] = defaultdict(list)
    for i in record.steady():
        sections = record.passes[i].sections
        speed = witnessed_us(sections, names)
        for piece in _pieces(program, run["mode"]):
            woken_by, idle = "", False
            firsts = first_launches(piece)
            for k, p in enumerate(piece):
                us = sections.get(p.name, 0) / NS_PER_US
                if p.act is Act.SYNC and us > BLOCKED_US:
                    woken_by, idle = p.name, True
                elif p.host is not None and p.name in sections:
                    found[Place(p.name, p.host, batch, woken_by, idle, k in firsts)].append((us, speed))
                if p.kind is Kind.GRAPH:
                    idle = False
    return {place: tuple(np.array(passes, dtype=float).T) for place, passes in found.items()}


def references(program: StepProgram, runs: Sequence[tuple[int, dict[str, Any]]]) -> dict[int, float]:
    """The witness that costs are stated at by batch, from (batch, raw run) of the calibrated policies: 0 for none.

    By batch, since the longer the host has slept in an iteration, the colder its caches are for everything after.
    """
    names = witness(program)
    found: dict[int, list[float]] = defaultdict(list)
    for batch, run in runs:
        record = RunRecord.from_json(run["record"])
        found[batch] += [witnessed_us(record.passes[i].sections, names) for i in record.steady()]
    return {batch: reference_us(us) for batch, us in found.items()}


def samples_of(
    runs: Sequence[dict[Place, Passes]], reference: dict[int, float], work: HostWork
) -> list[list[Sample]]:
    """The samples of each run, at the reference speed: all of a section but held work is as much slower or faster as
    the witness."""
    out = []
    for run in runs:
        samples = []
        for place, (us, speeds) in run.items():
            at, held = reference[place.batch], work.held_us(place.section, place.batch)
            there = us <= max(undisturbed(us.tolist()))
            quiet = there & near(speeds, at)
            kept = quiet if quiet.sum() >= FEWEST else there
            if kept.sum() < FEWEST:
                continue
            factor = at / float(speeds[kept].mean()) if at else 1.0
            moved = held + (us[kept] - held) * factor
            where = place.cost, place.batch, place.woken_by, place.idle, place.first
            samples.append(Sample(*where, float(moved.mean()), float(moved.std()), float(us[there].mean())))
        out.append(samples)
    return out


def undisturbed(values: Sequence[float]) -> list[float]:
    typical = median(values)
    # Differences of device times may be below zero where there is nothing to measure.
    return [v for v in values if v <= max(DISTURBED * typical, typical)]


def expected_sections(program: StepProgram, mode: str) -> set[str]:
    """Names of the host's sections in every steady pass of a run in ``mode``."""
    return {p.name for piece in _pieces(program, mode) for p in piece if p.host is not None}


def _pieces(program: StepProgram, mode: str) -> tuple[tuple[Primitive, ...], ...]:
    """The decode iteration that a run in ``mode`` repeats while its batch stays full, as a loop runs it."""
    policies = policies_of(CONFIGURATIONS[MODES[mode]])
    expander = Expander(program, policies)
    iteration = expander.expand(
        Situation(
            gathered=policies.relay is Relay.UNIFIED,
            read_end_recorded=expander.records_read_end,
            fence_recorded=expander.records_fence,
        )
    )
    return iteration.receive, iteration.launch, iteration.process


def first_in_prefill(program: StepProgram) -> set[str]:
    """Costs of the kernel launches of a prefill that are the first after a host section."""
    expander = Expander(program, policies_of(CONFIGURATIONS[CALIBRATED]))
    launch = expander.expand(Situation(prefill=True)).launch
    return {launch[i].host or "" for i in first_launches(launch)}


def first_launch_us(runs: Sequence[Sequence[Sample]]) -> float | None:
    """What a kernel launch costs more as the first after a host section: the median over the sections and batches
    seen both as the first and not, without a wake; None where none is."""
    seen: dict[tuple[str, int], dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    for s in (s for samples in runs for s in samples):
        if not s.woken_by:
            seen[s.cost, s.batch][s.first].append(s.mean)
    both = [fmean(means[True]) - fmean(means[False]) for means in seen.values() if len(means) == 2]
    return max(0.0, median(both)) if both else None


def behind_others(runs: Sequence[Sequence[Sample]], first_us: float) -> list[list[Sample]]:
    """The samples as if no launch was the first after a host section."""
    return [
        [
            replace(s, mean=s.mean - first_us, as_it_ran=s.as_it_ran - first_us) if s.first else s
            for s in samples
        ]
        for samples in runs
    ]


def host_costs(program: StepProgram, runs: Sequence[Sequence[Sample]], source: str) -> dict[str, Cost]:
    """A cost a name; ``runs`` are the samples of each run.

    A section is stated as it is when the host was not woken just before, where that was seen.
    """
    unbatched = {op.cost for op in program.operations if op.phase is Phase.RECEIVE}
    by_cost: dict[str, list[Sample]] = defaultdict(list)
    for sample in (s for samples in runs for s in samples):
        by_cost[sample.cost].append(sample)
    out = {}
    for name, found in sorted(by_cost.items()):
        by_batch = {batch: [s for s in at if not s.woken_by] or at for batch, at in _grouped(found).items()}
        base = [s for at in by_batch.values() for s in at]
        batches = tuple(sorted(by_batch))
        if name in unbatched or len(batches) == 1:
            value: float | tuple[float, ...] = round(fmean(s.mean for s in base), 3)
        else:
            value = tuple(round(fmean(s.mean for s in by_batch[b]), 3) for b in batches)
        out[name] = Cost(
            value=value,
            batch=batches if isinstance(value, tuple) else None,
            # A section shorter than the clock can see has no scatter to speak of.
            within_sd=round(median(s.sd / s.mean if s.mean > 0 else 0.0 for s in base), 4),
            valid_range={"batch": (batches[0], batches[-1])},
            status="measured",
            source=source,
        )
    return out


def _grouped(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    out: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        out[sample.batch].append(sample)
    return out


def stated_us(costs: dict[str, Cost], sample: Sample) -> float:
    """What :func:`host_costs` says of a sample's section at its batch."""
    cost = costs[sample.cost]
    return at_batch(cost.value, cost.batch, sample.batch)


def added_by_wakes(costs: dict[str, Cost], runs: Sequence[Sequence[Sample]]) -> dict[str, dict[int, float]]:
    """By synchronisation and batch: microseconds that the sections behind its wake cost more than :func:`host_costs`
    says, up to the first graph launched, from where on the device has work and the host has time.

    The longer a host slept, the colder its caches; how long it sleeps follows the batch. The median over runs.
    """
    added: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for samples in runs:
        by_wait: dict[tuple[str, int], float] = defaultdict(float)
        for s in samples:
            if s.woken_by and s.idle:
                by_wait[s.woken_by, s.batch] += s.mean - stated_us(costs, s)
        for (wait, batch), us in by_wait.items():
            added[wait][batch].append(us)
    return {
        f"{WAKE}.{wait}": {batch: max(0.0, median(us)) for batch, us in sorted(by_batch.items())}
        for wait, by_batch in added.items()
    }
