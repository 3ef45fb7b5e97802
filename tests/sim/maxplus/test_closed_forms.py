"""A third witness: the periods of semantics section 7.2 in closed form.

They are sums and maxima over segments of one iteration, written for the four block-drafting variants: cP and cN
(direct carry, fenced by the worker on the plan stream or by a host wait), dT and dF (unified relay with and without
exact lengths on the host). They leave out what a wait costs where it blocks or does not, and the copy that the host
of dT waits for even when the host is the slower side; the comparison allows for just that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from variants import variant, with_costs

from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.maxplus.steady import SteadyGraph
from sim.maxplus.turn import FixedBatch
from sim.program.primitives import Act

VARIANTS = {
    "cP": {"engine": "toy-0.5.14", "prep_stream": "plan"},
    "cN": {"engine": "toy-0.5.14"},
    "dT": {"engine": "toy-0.5.15", "host_lengths": "exact"},
    "dF": {"engine": "toy-0.5.15"},
}


def priors(resolved: Resolved, seed: int) -> Resolved:
    """Costs in the ranges of semantics 2.2 (µs, here in ns); a small or a large model decides which
    side is slower."""
    random = np.random.default_rng(seed)
    ranges = {
        "call.wake": (5, 15), "call.synchronize": (1, 2), "call.launch": (2, 10), "call.graph": (3, 20),
        "call.copy": (3, 8), "call.record": (1, 5), "call.wait": (1, 5), "hop.cross_stream": (2, 5),
        "hop.launch": (0, 0), "host.receive": (20, 150), "host.schedule": (50, 200), "host.prepare": (100, 300),
        "host.enter": (100, 250), "host.process": (100, 700), "host.queue": (10, 20), "host.barrier": (2, 5),
        "host.relay.resolve": (10, 20), "host.lengths.resolve": (2, 5), "host.lengths.mirror": (10, 20),
        "lengths.copy": (3, 8), "relay.gather_lengths": (3, 6), "relay.gather_tokens": (3, 6),
        "copy.small": (3, 10), "kernel.small": (4, 60), "kernel.append": (60, 400), "kernel.head": (40, 120),
        "graph.draft": (20, 100) if seed % 2 else (100, 900),
        "graph.target": (50, 300) if seed % 2 else (300, 4000),
    }  # fmt: skip
    costs = dict(resolved.profile.costs)
    for name, (low, high) in ranges.items():
        costs[name] = Cost(value=int(random.integers(1000 * low, 1000 * high + 1)), unit="ns", status="exact")
    return with_costs(resolved, costs)


@dataclass
class Segments:
    """The symbols of section 7.1, ns, read off one turn."""

    F: int  # all of the forward stream
    C: int  # all host work, waits counted as calls
    after_publish: int  # r
    after_fence: int  # q
    before_prepare: int  # host work from the fence wait to the end of preparation
    from_lengths: int  # host work from the wait for the lengths to the entry of the forward
    from_prepare: int  # the same from the end of preparation
    lag_to_publish: int  # M(pub), counted from the entry of the forward
    lag_to_fence: int  # M(vd)
    prepare: int  # device time of decode preparation
    gather: int
    copy: int
    hop: int
    wake: int
    call: int


def segments(resolved: Resolved) -> Segments:
    graph = SteadyGraph(FixedBatch(resolved))
    durations = graph.vector(0.0).tolist()
    primitives = graph.graph.turn.primitives
    n = len(primitives)
    host, device = durations[:n], durations[n : 2 * n]
    at = {p.name: i for i, p in enumerate(primitives)}
    forward = [i for i, p in enumerate(primitives) if p.act is Act.LAUNCH and p.stream == "forward"]
    first = forward[0]

    def lag(last: str) -> int:
        """M: how far launching lags behind execution, up to the operation ``last``."""
        launched = executed = 0
        worst = 0
        for i in range(first, at[last] + 1):
            launched += host[i]
            if i in forward:
                worst = max(worst, launched - executed)
                executed += device[i]
        return worst

    def between(a: str, b: int) -> int:
        return sum(host[at[a] + 1 : b]) if a in at else 0

    entered = first
    costs = resolved.profile.costs
    return Segments(
        F=sum(device[i] for i in forward),
        C=sum(host),
        after_publish=sum(device[i] for i in forward if i > at["publish"]),
        after_fence=sum(device[i] for i in forward if i > at["append"]),
        before_prepare=between("fence.synchronize", at["prepare.assign"] + 1),
        from_lengths=between("lengths.synchronize", entered),
        from_prepare=sum(host[at["prepare.assign"] + 1 : entered]),
        lag_to_publish=lag("publish"),
        lag_to_fence=lag("append"),
        prepare=sum(device[i] for i, p in enumerate(primitives) if p.name.startswith("prepare.")),
        gather=int(costs["relay.gather_lengths"].value),
        copy=int(costs["lengths.copy"].value),
        hop=int(costs["hop.cross_stream"].value),
        wake=int(costs["call.wake"].value),
        call=int(costs["call.synchronize"].value),
    )


def closed_form(name: str, s: Segments) -> int:
    if name == "cP":
        return max(s.F + max(3 * s.hop + s.prepare - s.after_fence, 0), s.C)
    if name == "cN":
        exposed = s.wake + s.before_prepare + s.from_prepare + s.lag_to_fence - s.after_fence
        return max(s.F + max(exposed, 0), s.wake + s.C)
    if name == "dT":
        exposed = s.hop + s.copy + s.wake + s.from_lengths + s.lag_to_publish - s.after_publish
        return max(s.F + max(exposed, 0), s.wake + s.C)
    return max(s.F + max(2 * s.hop + s.gather - s.after_publish, 0), s.C)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_cycle_time_is_the_closed_form_within_what_that_omits(name: str) -> None:
    sides = set()
    for seed in range(60):
        resolved = priors(variant(tuple({"algorithm": "dflash", **VARIANTS[name]}.items())), seed)
        state, s = SteadyGraph(FixedBatch(resolved)).at(0.0), segments(resolved)
        omitted = 2 * (s.wake + s.call) + (s.copy + s.hop if name == "dT" else 0)
        assert abs(closed_form(name, s) - state.cycle_ns) <= omitted, (seed, s, float(state.cycle_ns))
        sides.add(state.critical.side)
    assert len(sides) > 1, f"the draws leave one side critical in all of them: {sides}"
