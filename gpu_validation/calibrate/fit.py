"""From the raw data of all process starts to the cost profile of one model.

Medians, means and straight lines over the calibrated configuration's own runs, at one speed of the host; nothing is
adjusted to a cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from gpu_validation.calibrate.complete import check_complete, own_sections
from gpu_validation.calibrate.device_costs import (
    between_starts,
    event_us,
    forward_costs,
    prefill_costs,
    side_costs,
)
from gpu_validation.calibrate.host_costs import (
    Passes,
    Place,
    Sample,
    added_by_wakes,
    behind_others,
    first_in_prefill,
    first_launch_us,
    host_costs,
    references,
    samples_of,
    sections_of,
    stated_us,
)
from gpu_validation.calibrate.measure import HOLD_US, MODES, TIMED
from gpu_validation.configurations import CALIBRATED
from gpu_validation.observe.run_record import RunRecord
from gpu_validation.runtime.host_work import HostWork
from sim.config.profile import Cost, DeviceProfile, HostState
from sim.program.policies import PLATFORMS
from sim.program.primitives import FIRST_LAUNCH, WAKE
from sim.program.step_program import StepProgram


def fit(
    name: str,
    program: StepProgram,
    models: Sequence[dict[str, Any]],
    primitives: Sequence[dict[str, Any]],
    provenance: dict[str, str],
    batches: Sequence[int],
) -> DeviceProfile:
    """``models`` and ``primitives``: one raw piece a process start (:mod:`gpu_validation.calibrate.measure`);
    ``batches``: those that are calibrated. Raises InputError where a piece lacks what the program asks for."""
    check_complete(program, models, batches)
    starts = f"{len(models)} process starts"
    runs: dict[int, list[tuple[str, float, RunRecord]]] = defaultdict(list)
    sections: list[dict[Place, Passes]] = []
    unwoken: list[tuple[int, dict[str, Any]]] = []
    alone: dict[int, list[dict[str, list[float]]]] = defaultdict(list)
    segments: list[dict[int, list[RunRecord]]] = []
    for model in models:
        segments.append(defaultdict(list))
        for text, content in model["batches"].items():
            batch = int(text)
            alone[batch].append(content["alone"])
            for run in content["runs"]:
                record = RunRecord.from_json(run["record"])
                runs[batch].append((run["mode"], run.get("held_us", HOLD_US), record))
                if run["mode"] == "segments":
                    segments[-1][batch].append(record)
                if run["mode"] not in TIMED:
                    sections.append(sections_of(program, batch, run))
                if MODES[run["mode"]] == CALIBRATED and run["mode"] not in TIMED:
                    unwoken.append((batch, run))
    work = HostWork(**models[0].get("work", {}))
    sampled = samples_of(sections, references(program, unwoken), work)
    first_us = first_launch_us(sampled)
    sampled = behind_others(sampled, first_us or 0.0)
    full, roomy, paused = (_of_mode(runs, wanted) for wanted in TIMED)
    event = event_us([r for records in full.values() for r in records])
    costs = host_costs(program, sampled, f"section of the loop, mean over runs, {starts}")
    costs |= machine_costs(primitives, f"primitive, median, {starts}")
    if first_us is not None:
        source = f"launches seen both first after a host section and behind another one, median, {starts}"
        costs[FIRST_LAUNCH] = Cost(value=round(first_us, 3), status="measured", source=source)
    costs |= wake_costs(costs, added_by_wakes(costs, sampled), sorted(runs), starts)
    costs |= forward_costs(
        program, full, roomy, paused, event, f"segment between timing events ({event:.2f} us each), {starts}"
    )
    costs |= side_costs(alone, f"timed alone, {starts}")
    prefill = prefill_costs(runs, own_sections(program), f"the first iteration of every run, {starts}")
    # What a first launch costs more has a cost of its own.
    for launch in first_in_prefill(program) & set(prefill):
        value = tuple(max(0.0, round(us - (first_us or 0.0), 2)) for us in _values(prefill[launch]))
        prefill[launch] = prefill[launch].model_copy(update={"value": value})
    costs |= prefill
    platform = primitives[0]["device"]["platform"]
    return DeviceProfile(
        name=name,
        description=f"the suite's own loop, {models[0]['model']} shapes, batches {sorted(runs)}",
        status="measured",
        # The stand-in is of no platform; its calls do what the plain ones do.
        platform=platform if platform in PLATFORMS else "cuda",
        engine="suite",
        provenance=provenance,
        host_state=host_state(sampled, costs),
        device_boot_sd=round(between_starts(segments), 5),
        costs=costs,
    )


def _values(cost: Cost) -> tuple[float, ...]:
    return cost.value if isinstance(cost.value, tuple) else (cost.value,)


def _of_mode(runs: dict[int, list[tuple[str, float, RunRecord]]], wanted: str) -> dict[int, list[RunRecord]]:
    by_batch = {batch: [r for mode, _, r in found if mode == wanted] for batch, found in runs.items()}
    return {batch: found for batch, found in by_batch.items() if found}


def wake_costs(
    costs: dict[str, Cost], added: dict[str, dict[int, float]], batches: Sequence[int], starts: str
) -> dict[str, Cost]:
    """The machine's wake and what each wait adds to it, by batch; where a wait never blocked, as at the nearest batch
    where it did."""
    machine = costs[WAKE].value
    assert isinstance(machine, float)
    out = {}
    for wake, by_batch in added.items():
        nearest = [min(by_batch, key=lambda seen: abs(seen - batch)) for batch in batches]
        out[wake] = Cost(
            value=tuple(round(machine + by_batch[seen], 3) for seen in nearest),
            batch=tuple(batches),
            status="measured",
            source=f"{WAKE} and what the sections behind it cost more than without a wake, {starts}",
        )
    return out


def machine_costs(primitives: Sequence[dict[str, Any]], source: str) -> dict[str, Cost]:
    """Launch latency, wake, hop between streams and pageable copies, from single calls.

    A launch and a wake are seen together only; polling for the end of a kernel shows the first and a query.
    """

    def typical(name: str) -> float:
        return median(median(p["samples"][name]) for p in primitives)

    launch = max(0.0, typical("known_by_polling") - typical("query_met"))
    values = {
        WAKE: max(0.0, typical("known_by_blocking") - launch),
        "hop.launch": launch,
        "hop.cross_stream": max(0.0, typical("hop")),
        "call.pageable_copy": max(0.0, typical("copy_h2d_pageable") - typical("copy_h2d_pinned")),
    }
    return {name: Cost(value=round(us, 3), status="measured", source=source) for name, us in values.items()}


def host_state(sampled: Sequence[Sequence[Sample]], costs: dict[str, Cost]) -> HostState:
    """How host costs of single runs, as they ran, lie about the stated ones: runs of one start, and of several,
    alike."""
    factors = []
    for samples in sampled:
        unwoken = [s for s in samples if not s.woken_by]
        if unwoken:
            stated = sum(stated_us(costs, s) for s in unwoken)
            factors.append(sum(s.as_it_ran for s in unwoken) / stated)
    low, high = np.quantile(factors, [0.025, 0.975])
    return HostState(
        quantiles={"0.025": round(float(low), 4), "0.5": 1.0, "0.975": round(float(high), 4)},
        source=f"sections not behind a wake against the stated costs, {len(factors)} runs, "
        f"mean {fmean(factors):.3f}",
    )
