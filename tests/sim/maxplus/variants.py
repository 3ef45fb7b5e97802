"""Every variant the loader accepts, with costs drawn for it; shared by the tests of the second solver."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.errors import InputError
from sim.program.primitives import FIRST_LAUNCH

PROGRAMS = [
    ("none", "toy-0.5.15"),
    ("standalone", "toy-0.5.15"),
    ("eagle", "toy-0.5.15"),
    ("eagle3", "toy-0.5.15"),
    ("ngram", "toy-0.5.15"),
    ("dflash", "toy-0.5.14"),
    ("dflash", "toy-0.5.15"),
]
AXES = {
    "relay": ("direct_carry", "unified"),
    "host_lengths": ("none", "bound", "exact", "exact_deferred"),
    "barrier": ("unguarded", "coarse", "read_done", "self_fence"),
    "barrier_placement": ("loop_top", "after_launch"),
    "prep_stream": ("schedule", "plan"),
    "platform": ("cuda", "hip"),
}
#: what a runtime may do differently (:class:`sim.program.policies.PlatformSemantics`)
RUNTIME_FLAGS = ("stream_wait_holds_host", "graph_launch_holds_host", "record_joins_streams")
PROMPT = 16
#: drafts accepted in every step, so that every context of a run is known beforehand
ACCEPTED = 3

#: the keys that make a variant
Variant = tuple[tuple[str, str], ...]

BASE = {
    "workload.requests": "2",
    "workload.concurrency": "2",
    "workload.prompt_tokens": str(PROMPT),
    "workload.output_tokens": "100000",
    "serving.graph_batches": "[4]",
    "acceptance.mean_accepted_drafts": str(ACCEPTED),
}


def _candidates() -> Iterator[dict[str, str]]:
    for (algorithm, engine), values in itertools.product(PROGRAMS, itertools.product(*AXES.values())):
        yield {"algorithm": algorithm, "engine": engine, **dict(zip(AXES, values, strict=True))}
    for algorithm, engine in PROGRAMS:
        yield {"algorithm": algorithm, "engine": engine, "overlap": "false"}
        yield {"algorithm": algorithm, "engine": engine, "pinned": "false", "host_lengths": "exact"}
        yield {"algorithm": algorithm, "engine": engine, "d2h_stream": "schedule", "host_lengths": "exact"}


@cache
def legal() -> tuple[Variant, ...]:
    """Every variant the loader accepts."""
    out = []
    for candidate in _candidates():
        try:
            variant(tuple(candidate.items()))
        except InputError:
            continue
        out.append(tuple(candidate.items()))
    return tuple(out)


@cache
def variant(keys: Variant) -> Resolved:
    return load_resolved("toy_dF", {**BASE, **dict(keys)})


#: wakes that may cost something else than the others (:attr:`sim.program.primitives.Primitive.own_wake`)
OWN_WAKES = ("call.wake.lengths.synchronize", "call.wake.fence.synchronize", "call.wake.result.synchronize")


def names(resolved: Resolved) -> list[str]:
    return sorted(resolved.profile.costs)


def with_costs(resolved: Resolved, costs: dict[str, Cost]) -> Resolved:
    return replace(resolved, profile=resolved.profile.model_copy(update={"costs": costs}))


def without_noise(resolved: Resolved) -> Resolved:
    """The central costs: nothing varies from iteration to iteration."""
    profile = resolved.profile
    costs = {name: cost.model_copy(update={"within_sd": 0.0}) for name, cost in profile.costs.items()}
    quiet = profile.host_state.model_copy(update={"within_sd": 0.0})
    return replace(resolved, profile=profile.model_copy(update={"costs": costs, "host_state": quiet}))


def drawn(resolved: Resolved, seed: int) -> Resolved:
    """Costs of every size from zero up, some growing with batch or context, and now and then a runtime whose waits
    or graph launches hold the host; keyed by ``seed``."""
    random = np.random.default_rng(seed)
    costs = {}
    for name in names(resolved):
        # A common scale by seed makes which side is slower change from draw to draw.
        ns = int(random.integers(0, 10 ** random.integers(1, 6)))
        if name.startswith(("graph", "kernel")) and seed % 2:
            ns *= 10
        slope = float(random.integers(0, 4)) if random.random() < 0.2 else 0.0
        costs[name] = Cost(
            value=ns,
            unit="ns",
            per_batch=float(random.integers(0, 9)),
            per_context=slope,
            context_floor=float(random.integers(0, 5)) / 4,
            per_empty=float(random.integers(0, 50)),
            status="exact",
        )
    for name in (*OWN_WAKES, FIRST_LAUNCH):
        if random.random() < 0.3:
            ns, per_batch = int(random.integers(0, 10**5)), float(random.integers(0, 9))
            costs[name] = Cost(value=ns, per_batch=per_batch, unit="ns", status="exact")
    semantics = {flag: True for flag in RUNTIME_FLAGS if random.random() < 0.1}
    resolved = with_costs(resolved, costs)
    return replace(resolved, profile=resolved.profile.model_copy(update={"semantics": semantics}))


def contexts(resolved: Resolved, turns: int) -> tuple[list[float], list[float]]:
    """Mean context at the launch of each turn, and when it processes the result that is due."""
    block = resolved.scenario.block_size
    assert block is not None
    step = min(ACCEPTED, block - 1) + 1
    late = [float(PROMPT + 1 + k * step) for k in range(turns)]
    return [float(PROMPT), *late][:turns], late
