"""The SimPy model and the recurrence, written apart from each other, agree to the nanosecond."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from variants import (
    ACCEPTED,
    BASE,
    PROGRAMS,
    PROMPT,
    Variant,
    contexts,
    drawn,
    legal,
    names,
    variant,
    with_costs,
    without_noise,
)

from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.errors import WaitError
from sim.maxplus.attribution import Attribution
from sim.maxplus.recurrence import run
from sim.maxplus.turn import FixedBatch
from sim.program.step_program import Kind, Operation, Phase
from sim.replication import Replication
from sim.trace.record import HOST_LANE
from sim.trace.recorder import Recorder

#: (name, lane, start, end, cause of the idle time before it)
Event = tuple[str, str, int, int, str]

#: three turns until every turn is alike, and three of those
TURNS = 6


class _Full(Exception):
    """Ends a run that has been recorded for long enough."""


class _Stopping(Recorder):
    """A recorder that ends the run at the turn after the last one wanted."""

    def __init__(self, turns: int):
        super().__init__()
        self._left = turns

    def begin(self, iteration: int, batch: int, prefill: bool) -> None:
        if batch == 0:  # the host polls: a turn begins
            if self._left == 0:
                raise _Full
            self._left -= 1
        super().begin(iteration, batch, prefill)


def simulated(resolved: Resolved, turns: int) -> list[Event]:
    """Every event of the first turns of the SimPy model, in host order."""
    recorder = _Stopping(turns)
    with pytest.raises(_Full):
        Replication(resolved, 0, recorder=recorder).run()
    return [(r.name, r.lane, r.start, r.end, r.cause) for r in recorder.records]


def recurred(resolved: Resolved, turns: int) -> list[Event]:
    """The same from the recurrence."""
    events: list[Event] = []
    attribution = Attribution()
    now = 0
    ends: dict[str, int] = {}
    for turn in run(FixedBatch(resolved, prompt_tokens=PROMPT), *contexts(resolved, turns)):
        starts, _ = attribution.turn(turn.weighted, turn.values)
        for j, node in enumerate(turn.weighted.graph.nodes):
            end = turn.weighted.time(turn.values, j)
            if node.lane == HOST_LANE:
                if node.act != "enter":  # takes no time and leaves no record
                    events.append((node.name, node.lane, now, end, ""))
                now = end
            elif node.act == "device":
                start, cause = starts[j]
                idle = start > ends.get(node.lane, 0)
                events.append((node.name, node.lane, start, end, str(cause) if idle else ""))
                ends[node.lane] = end
            elif node.act == "event":
                events.append((node.name, node.lane, end, end, ""))
    return events


def numbered(program: tuple[str, str]) -> list[tuple[int, Variant]]:
    """The variants of a program, each with a number of its own."""
    return [
        (k, keys)
        for k, keys in enumerate(legal())
        if (dict(keys)["algorithm"], dict(keys)["engine"]) == program
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids="@".join)
def test_every_variant_agrees_on_every_event_time(program: tuple[str, str]) -> None:
    for k, keys in numbered(program):
        resolved = drawn(variant(keys), seed=k)
        assert recurred(resolved, TURNS) == simulated(resolved, TURNS), keys


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, int(os.environ.get("OVERLAPSIM_ORACLE_DRAWS", "3")) + 1))
def test_every_variant_agrees_under_many_draws_and_for_longer(seed: int) -> None:
    for k, keys in enumerate(legal()):
        resolved = drawn(variant(keys), seed=seed * len(legal()) + k)
        assert recurred(resolved, 60) == simulated(resolved, 60), keys


@settings(max_examples=60, deadline=None)
@given(data=st.data(), keys=st.sampled_from(legal()))
def test_any_costs_agree_on_every_event_time(data: st.DataObject, keys: Variant) -> None:
    resolved = variant(keys)
    scale = data.draw(st.sampled_from([3, 100, 10**6]), "largest cost, ns")
    ns = st.integers(0, scale)
    drawn_ns = data.draw(st.lists(ns, min_size=len(names(resolved)), max_size=len(names(resolved))))
    costs = {
        name: Cost(value=value, unit="ns", status="exact")
        for name, value in zip(names(resolved), drawn_ns, strict=True)
    }
    resolved = with_costs(resolved, costs)
    assert recurred(resolved, TURNS) == simulated(resolved, TURNS)


SHIPPED = ["h200_dflash", "h200_dflash_exact", "h200_dflash_0514_default", "h200_dflash_0514_plan"]


@pytest.mark.parametrize("concurrency", [1, 3, 32])
@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_programs_agree_with_their_costs_and_growing_context(name: str, concurrency: int) -> None:
    overrides = {
        **BASE,
        "workload.requests": concurrency,
        "workload.concurrency": concurrency,
        "acceptance": {"model": "match_expected", "mean_accepted_drafts": ACCEPTED},
    }
    resolved = without_noise(load_resolved(name, overrides))
    assert recurred(resolved, 40) == simulated(resolved, 40)


def test_a_wait_that_nothing_satisfies_is_the_same_error_in_both() -> None:
    resolved = variant(())
    program = resolved.program
    orphan = Operation(phase=Phase.PREPARE, name="orphan", kind=Kind.SYNCHRONIZE, event="never")
    operations = (orphan, *program.operations)
    resolved = replace(resolved, program=program.model_copy(update={"operations": operations}))
    with pytest.raises(WaitError) as ours:
        list(run(FixedBatch(resolved), [0.0] * 3))
    with pytest.raises(WaitError) as theirs:
        Replication(resolved, 0).run()
    assert str(ours.value) == str(theirs.value)
