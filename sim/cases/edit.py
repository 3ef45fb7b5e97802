"""One side of a case as a resolved scenario: the common keys, its own over them, program and profile edited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.cases.schema import Case, Side
from sim.config.checked import Origin, did_you_mean, shown, validated
from sim.config.declarations import load_profile
from sim.config.expressions import with_expressions
from sim.config.profile import is_model_cost
from sim.config.resolve import Resolved, resolve
from sim.config.scenario import Scenario
from sim.errors import InputError, Problem
from sim.program.step_program import Operation, StepProgram

#: replications of a prediction, and of every run of its fit: with few requests the luck of one moves throughput
REPLICATIONS = 3
NO_SCALES: Mapping[str, float] = {}


def resolved_side(case: Case, side: Side, where: str, scales: Mapping[str, float] = NO_SCALES) -> Resolved:
    """The scenario of one side with its program and profile edited; ``scales`` are those of a fit.

    Expressions of the program are of the edited costs. Raises InputError, located at ``where``.
    """
    origin = Origin(where)
    side = side.over(case.both)
    model = scales.get("model_scale", 1.0)
    keys = _over(case.scenario, side.scenario)
    keys = _over(keys, {k: v for k, v in scales.items() if k != "model_scale"})
    keys = _over(keys, {"run": {"replications": REPLICATIONS}})
    resolved = resolve(validated(Scenario, keys, origin), origin)
    profile = load_profile(resolved.scenario.device)
    costs = {
        name: cost.scaled(model) if is_model_cost(name) else cost
        for name, cost in {**profile.costs, **side.costs}.items()
    }
    profile = profile.model_copy(
        update={"costs": costs, "semantics": {**profile.semantics, **side.semantics}}
    )
    program = _edited(resolved.program, side, where)
    block, serving = resolved.scenario.block_size, resolved.scenario.serving
    assert block is not None
    largest = max(*serving.graph_batches, serving.max_running_requests)
    profile = with_expressions(profile, program, block, largest, where)
    return replace(resolved, profile=profile, program=program)


def _over(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` over ``common``, tables merged key by key."""
    out = dict(common)
    for key, value in own.items():
        inner = out.get(key)
        out[key] = _over(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return out


def _edited(program: StepProgram, side: Side, where: str) -> StepProgram:
    """The program with a side's insertions and omissions in its decode list. Raises InputError on unknown names."""
    known = {op.name for op in program.operations}
    wrong = [x for x in (*side.drop, *(i.before for i in side.insert)) if x not in known]
    if wrong:
        raise InputError(
            Problem(
                where,
                f"no operation {shown(x)}",
                f"an operation of {program.algorithm}@{program.engine}",
                did_you_mean(x, known),
            )
            for x in dict.fromkeys(wrong)
        )
    if not side.insert and not side.drop:
        return program
    operations: list[Operation] = []
    for op in program.operations:
        for insertion in side.insert:
            if insertion.before == op.name:
                operations += insertion.operations * insertion.times
        if op.name not in side.drop:
            operations.append(op)
    return program.model_copy(update={"operations": tuple(operations)})
