"""Host costs from the sections of calibration runs: straight lines over the batch, and what a wake adds.

Which section is which cost is read off the model's own expansion of the step program: no name is written twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev
from typing import Any

import numpy as np

from gpu_validation.calibrate.measure import MODES
from gpu_validation.configurations import CONFIGURATIONS, policies_of
from gpu_validation.observe.run_record import RunRecord
from sim.capabilities import Relay
from sim.config.profile import Cost
from sim.program.expand import Expander
from sim.program.policies import Situation
from sim.program.primitives import WAKE, Act, Primitive
from sim.program.step_program import Kind, Phase, StepProgram
from sim.units import NS_PER_US

#: a section longer than this many times its median was disturbed from outside and counts for nothing
DISTURBED = 3.0
#: a synchronisation longer than this blocked: a met one takes a few microseconds, and shorter waits are rare
BLOCKED_US = 40.0


@dataclass(frozen=True)
class Sample:
    """One section in one run: mean and standard deviation over its steady passes, µs.

    ``woken_by``: the synchronisation that blocked before it in the same piece of the loop, "" for none;
    ``idle``: no graph was launched since, so that the device waits for this section.
    """

    cost: str
    batch: int
    woken_by: str
    idle: bool
    mean: float
    sd: float


def samples_of(program: StepProgram, batch: int, run: dict[str, Any], limit_ns: float) -> list[Sample]:
    """Every section of a run's steady passes while the host was quiet."""
    record = RunRecord.from_json(run["record"])
    found: dict[tuple[str, str, str, bool], list[float]] = defaultdict(list)
    for i in record.steady(limit_ns):
        sections = record.passes[i].sections
        for piece in _pieces(program, run["mode"]):
            woken_by, idle = "", False
            for p in piece:
                us = sections.get(p.name, 0) / NS_PER_US
                if p.act is Act.SYNC and us > BLOCKED_US:
                    woken_by, idle = p.name, True
                elif p.host is not None and p.name in sections:
                    found[p.name, p.host, woken_by, idle].append(us)
                if p.kind is Kind.GRAPH:
                    idle = False
    out = []
    for (_, cost, woken_by, idle), values in found.items():
        kept = undisturbed(values)
        if len(kept) >= 3:
            out.append(Sample(cost, batch, woken_by, idle, fmean(kept), pstdev(kept)))
    return out


def undisturbed(values: Sequence[float]) -> list[float]:
    typical = median(values)
    # Differences of device times may be below zero where there is nothing to measure.
    return [v for v in values if v <= max(DISTURBED * typical, typical)]


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


def host_costs(program: StepProgram, runs: Sequence[Sequence[Sample]], source: str) -> dict[str, Cost]:
    """A cost a name, and one for each wake that was seen; ``runs`` are the samples of each run.

    A section is stated as it is when the host was not woken just before, where that was seen.
    """
    unbatched = {op.cost for op in program.operations if op.phase is Phase.RECEIVE}
    by_cost: dict[str, list[Sample]] = defaultdict(list)
    for sample in (s for samples in runs for s in samples):
        by_cost[sample.cost].append(sample)
    out = {}
    for name, found in sorted(by_cost.items()):
        base = [s for s in found if not s.woken_by] or found
        value, per_batch = _line(base, name not in unbatched)
        out[name] = Cost(
            value=round(value, 3),
            per_batch=round(per_batch, 5),
            within_sd=round(median(s.sd / s.mean for s in base), 4),
            valid_range={"batch": (min(s.batch for s in base), max(s.batch for s in base))},
            status="measured",
            source=source,
        )
    return out


def added_by_wakes(costs: dict[str, Cost], runs: Sequence[Sequence[Sample]]) -> dict[str, float]:
    """By synchronisation: microseconds that the sections behind its wake cost more than :func:`host_costs` says, up
    to the first graph launched, from where on the device has work and the host has time. The median over runs."""
    added: dict[str, list[float]] = defaultdict(list)
    for samples in runs:
        by_wait: dict[str, float] = defaultdict(float)
        for s in samples:
            if s.woken_by and s.idle:
                stated = costs[s.cost]
                assert isinstance(stated.value, float)
                by_wait[s.woken_by] += s.mean - stated.value - stated.per_batch * s.batch
        for wait, us in by_wait.items():
            added[wait].append(us)
    return {f"{WAKE}.{wait}": max(0.0, median(values)) for wait, values in added.items()}


def _line(samples: Sequence[Sample], batched: bool) -> tuple[float, float]:
    """Value and slope over the batch through the means of the runs at each batch, all batches alike."""
    by_batch: dict[int, list[float]] = defaultdict(list)
    for s in samples:
        by_batch[s.batch].append(s.mean)
    means = [fmean(values) for _, values in sorted(by_batch.items())]
    if len(means) == 1 or not batched:
        return fmean(means), 0.0
    slope, value = np.polyfit(sorted(by_batch), means, 1)
    return float(value), float(slope)
