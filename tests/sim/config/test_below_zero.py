"""No cost is below zero where it claims to be valid; where extending one leads there, the result says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.config import below_zero, paths
from sim.config.declarations import load_profile
from sim.config.loader import load_resolved
from sim.config.profile import Cost
from sim.errors import InputError
from sim.machine.costs import CostBook, Scales
from sim.maxplus import durations
from sim.maxplus.turn import Share
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Kind, Phase
from sim.randomness import RunKey
from sim.run import simulate

RANGE = "valid_range = { batch = [1, 8], context = [0, 1000] }"


def with_cost(configs: Path, text: str) -> None:
    profile = configs / "devices" / "small.toml"
    profile.write_text(profile.read_text() + f'"graph.x" = {{ {text} }}\n')


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("value = -3.0", "-3 us at batch 1, 0 tokens and context 0"),
        ("value = 3.0, per_batch = -1.0, " + RANGE, "-5 us at batch 8, 0 tokens and context 0"),
        ("value = [5.0, -1.0, 5.0], batch = [1, 4, 8], " + RANGE, "-1 us at batch 4, 0 tokens and context 0"),
        ("value = [5.0, -1.0], batch = [1, 4]", "-1 us at batch 4, 0 tokens and context 0"),
        ("value = [5.0, 3.0], batch = [1, 4], " + RANGE, "0.333333 us"),
        ("value = 3.0, per_context = -0.01, " + RANGE, "-7 us at batch 1, 0 tokens and context 1000"),
        (
            "value = [3.0, 9.0], batch = [1, 8], per_empty = [0.0, -2.0], " + RANGE,
            "-5 us at batch 8, 1 of them filled, 0 tokens and context 0",
        ),
        (
            "value = 1, unit = 'ms', per_token = -1, valid_range = { tokens = [1, 3] }",
            "-2 ms at batch 1, 3 tokens",
        ),
        ("value = 3.0, per_batch = -1.0", "per_batch below 0 and no valid_range of batch"),
        ("value = 3.0, per_token = -1.0", "per_token below 0 and no valid_range of tokens"),
        ("value = 3.0, per_context = -1.0", "per_context below 0 and no valid_range of context"),
    ],
)
def test_a_profile_is_refused_naming_the_cost_and_the_place(small_configs, text, found):
    with_cost(small_configs, text)
    if found == "0.333333 us":  # falls, but not below zero where it is valid
        load_profile("small")
        return
    with pytest.raises(InputError) as refused:
        load_profile("small")
    (problem,) = refused.value.problems
    assert problem.where == 'small.toml: costs."graph.x"'
    assert problem.found.startswith(found)
    assert "valid_range" in problem.expected


def test_every_shipped_profile_is_nowhere_below_zero():
    for name in paths.names("devices"):
        assert below_zero.problems(load_profile(name), name) == []


def test_rounding_is_no_negative_cost():
    assert below_zero.lowest(Cost(value=-1e-4)).value < 0
    assert (
        below_zero.problems(load_profile("toy").model_copy(update={"costs": {"x": Cost(value=-1e-4)}}), "x")
        == []
    )


def test_an_expression_below_zero_is_refused(small_configs):
    program = small_configs / "algorithms" / "block@e-1.toml"
    program.write_text(program.read_text().replace('cost = "verify"', 'cost = "3 - batch"'))
    with pytest.raises(InputError, match=r'"3 - batch", which is -61 us at batch 64.*max\(0, …\)'):
        load_resolved("good")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1e12 * batch", "a cost of 6.4e[+]13 us; expected one of at most 1e[+]09 us"),
        ("1e299 * 1e299", "a cost of (inf|nan) us|not linear"),
        ("ceil(1e299 * 1e299)", "arguments that stay finite"),
        ("1" * 400, "a whole number of .* bits; expected a finite number below 1e300"),
        ("1e999", "inf; expected a finite number below"),
    ],
)
def test_an_expression_too_large_is_refused(small_configs, text, found):
    program = small_configs / "algorithms" / "block@e-1.toml"
    program.write_text(program.read_text().replace('cost = "verify"', f'cost = "{text}"'))
    with pytest.raises(InputError, match=found):
        load_resolved("good")


def kernel(kind: Kind) -> Primitive:
    return Primitive(Act.LAUNCH, "k", Phase.FORWARD, stream="forward", host="host", device="cost", kind=kind)


@pytest.mark.parametrize(
    ("cost", "context"),
    [
        (Cost(value=3.0, per_batch=-1.0, valid_range={"batch": (1, 2)}), 0.0),
        (Cost(value=3.0, per_context=-0.01, valid_range={"context": (0, 100)}), 5000.0),
        (Cost(value=(3.0, 3.0), batch=(1, 2), per_empty=-1.0, valid_range={"batch": (1, 2)}), 0.0),
    ],
)
def test_both_solvers_count_it_as_nothing_outside_its_range(cost, context):
    batch, padded = 2, 8
    profile = load_profile("toy").model_copy(update={"costs": {"cost": cost, "host": Cost(value=1.0)}})
    book = CostBook(profile, Scales(), RunKey(1, 0))
    step = book.compile([kernel(Kind.GRAPH)], batch, padded, 1)
    if context:
        assert book.draw(step, 100, 0)[1] > 0
        assert book.clipped == set()
    assert book.draw(step, context, 0) == [1000, 0]
    assert book.clipped == {"cost"}
    share = Share("cost", 1.0, False, padded, padded, reading=batch / padded)
    base, slope = durations._value(profile, share)
    reading = durations.reading(profile, share)
    assert durations.rounded(np.array([base + slope * reading * context])) == [0]


def test_the_result_names_what_was_counted_as_nothing():
    resolved = load_resolved("toy_dT", {"run.replications": 1})
    name = next(op.cost for op in resolved.program.operations if op.kind is Kind.GRAPH)
    falling = Cost(value=1e-3, per_context=-1e-3, valid_range={"context": (0, 1)})
    costs = {**resolved.profile.costs, name: falling}
    changed = replace(resolved, profile=resolved.profile.model_copy(update={"costs": costs}))
    assert f"below 0 outside their valid range and counted as 0: {name}" in simulate(changed).notes
