"""Which launches are the first after a host section, and what they cost more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.program.primitives import FIRST_LAUNCH, Act, Primitive, first_launches
from sim.program.step_program import Kind, Phase
from sim.run import simulate


def host(name: str, cost: str | None = None) -> Primitive:
    return Primitive(Act.HOST, name, Phase.PREPARE, host=cost or f"host.{name}")


def launch(name: str, kind: Kind = Kind.KERNEL) -> Primitive:
    return Primitive(
        Act.LAUNCH, name, Phase.FORWARD, stream="forward", host="call.launch", device=name, kind=kind
    )


def named(*primitives: Primitive) -> list[str]:
    return [primitives[i].name for i in sorted(first_launches(primitives))]


def test_the_first_kernel_after_each_host_section_is_found() -> None:
    assert named(host("rows"), launch("a"), launch("b"), host("isolate"), launch("c"), launch("d")) == [
        "a",
        "c",
    ]
    assert named(launch("a"), launch("b")) == ["a"]  # a piece of the loop begins after host work
    assert named(host("rows"), host("isolate"), launch("a", Kind.STASH), launch("b", Kind.PUBLISH)) == ["a"]


def test_graphs_and_copies_are_launched_another_way() -> None:
    assert named(launch("draft", Kind.GRAPH), launch("copy", Kind.COPY), launch("a")) == ["a"]


def test_bookkeeping_of_lengths_leaves_the_caches_as_they_are() -> None:
    mirror = host("lengths.mirror", "host.lengths.mirror")
    assert named(launch("a"), mirror, launch("b")) == ["a"]
    assert named(host("rows"), mirror, launch("a")) == ["a"]


def test_a_relay_s_own_launch_spares_the_next_one() -> None:
    """Both relays have one first launch behind the entry; the unified one's extra gather costs what it costs behind
    another launch, as long as the host bounds the loop."""
    us = 7.0

    def cycle(relay: str, first_us: float) -> float:
        keys = {"relay": relay, "host_lengths": "bound", "run.replications": 1, "host_scale": 50.0}
        r = load_resolved("toy_dF", keys)
        costs = {**r.profile.costs}
        if first_us:
            costs[FIRST_LAUNCH] = Cost(value=first_us / 50, status="exact")
        mean = simulate(replace(r, profile=r.profile.model_copy(update={"costs": costs}))).cycle_us.mean
        assert mean is not None
        return mean

    for relay in ("unified", "direct_carry"):
        added = cycle(relay, us) - cycle(relay, 0.0)
        assert added / us == pytest.approx(round(added / us), abs=0.02)
        assert added > 0
