"""From the raw data of all process starts to the cost profile of one model.

Medians, means and straight lines over the calibrated configuration's own runs; nothing is adjusted to a cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from gpu_validation.calibrate.device_costs import event_us, forward_costs, prefill_costs, side_costs
from gpu_validation.calibrate.host_costs import Sample, added_by_wakes, host_costs, samples_of
from gpu_validation.calibrate.measure import TIMED
from gpu_validation.observe.run_record import RunRecord, quiet_limit_ns
from sim.config.profile import Cost, DeviceProfile, HostState
from sim.program.policies import PLATFORMS
from sim.program.primitives import WAKE
from sim.program.step_program import Kind, StepProgram


def fit(
    name: str,
    program: StepProgram,
    models: Sequence[dict[str, Any]],
    primitives: Sequence[dict[str, Any]],
    provenance: dict[str, str],
) -> DeviceProfile:
    """``models`` and ``primitives``: one raw piece a process start (:mod:`gpu_validation.calibrate.measure`)."""
    starts = f"{len(models)} process starts"
    runs: dict[int, list[tuple[str, RunRecord]]] = defaultdict(list)
    sampled: list[list[Sample]] = []
    alone: dict[int, list[dict[str, list[float]]]] = defaultdict(list)
    limits = quiet_limits(models)
    for model in models:
        for text, content in model["batches"].items():
            batch = int(text)
            alone[batch].append(content["alone"])
            for run in content["runs"]:
                runs[batch].append((run["mode"], RunRecord.from_json(run["record"])))
                if run["mode"] not in TIMED:
                    sampled.append(samples_of(program, batch, run, limits[batch, run["mode"]]))
    full, roomy = (
        {batch: [r for mode, r in found if mode == wanted] for batch, found in runs.items()}
        for wanted in TIMED
    )
    event = event_us([r for records in full.values() for r in records])
    costs = host_costs(program, sampled, f"section of the loop, mean over runs, {starts}")
    costs |= machine_costs(primitives, f"primitive, median, {starts}")
    for wake, us in added_by_wakes(costs, sampled).items():
        value = costs[WAKE].value
        assert isinstance(value, float)
        source = f"{WAKE} and what the sections behind it cost more than without a wake, {starts}"
        costs[wake] = Cost(value=round(value + us, 3), status="measured", source=source)
    costs |= forward_costs(
        program, full, roomy, event, f"segment between timing events ({event:.2f} us each), {starts}"
    )
    costs |= side_costs(alone, f"timed alone, {starts}")
    own = [op.name for op in program.prefill if op.host == f"host.{op.name}" or op.kind is Kind.HOST]
    shared = {op.name for op in program.operations}
    costs |= prefill_costs(
        runs, [n for n in own if n not in shared], f"the first iteration of every run, {starts}"
    )
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
        costs=costs,
    )


def quiet_limits(models: Sequence[dict[str, Any]]) -> dict[tuple[int, str], float]:
    """Slowest pace of a quiet host by batch and mode; after a long sleep any host is slower for a moment."""
    paces: dict[tuple[int, str], list[int]] = defaultdict(list)
    for model in models:
        for text, content in model["batches"].items():
            for run in content["runs"]:
                paces[int(text), run["mode"]] += [
                    p.pace_ns for p in RunRecord.from_json(run["record"]).passes
                ]
    return {key: quiet_limit_ns(found) for key, found in paces.items()}


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
    """How host costs of single runs lie about the stated ones: runs of one start, and of several, alike."""
    factors = []
    for samples in sampled:
        quiet = [s for s in samples if not s.woken_by]
        if not quiet:  # the host was slow throughout
            continue
        stated = sum(_at(costs[s.cost], s.batch) for s in quiet)
        factors.append(sum(s.mean for s in quiet) / stated)
    low, high = np.quantile(factors, [0.025, 0.975])
    return HostState(
        quantiles={"0.025": round(float(low), 4), "0.5": 1.0, "0.975": round(float(high), 4)},
        source=f"sections not behind a wake against the stated costs, {len(factors)} runs, "
        f"mean {fmean(factors):.3f}",
    )


def _at(cost: Cost, batch: int) -> float:
    assert isinstance(cost.value, float)
    return cost.value + cost.per_batch * batch
