"""What can be wrong with a case as a whole: its scenarios, the programs it edits and the costs it states.

The schema sees one file's keys; here both sides are put together as for a prediction, without running anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product

from sim.cases.edit import REPLICATIONS, resolved_side
from sim.cases.schema import Case, Side
from sim.config import below_zero, unread
from sim.config.checked import Attempts, did_you_mean, dotted, shown
from sim.config.consistent import problems as inconsistencies
from sim.config.expressions import names_in
from sim.config.profile import Cost
from sim.config.resolve import Resolved
from sim.errors import InputError, Problem
from sim.program.expand import Expander
from sim.program.policies import Situation, policies_of
from sim.program.primitives import FIRST_LAUNCH, Act

#: costs of the machine itself, which no operation names
_MACHINE = ("call.wake", "hop.cross_stream", "hop.launch", FIRST_LAUNCH)


def problems(case: Case, name: str) -> list[Problem]:
    """Everything wrong with ``case``, located in ``name``; a case without a scenario is predicted by nobody."""
    found = [
        problem
        for key, side in (("both", case.both), ("before", case.before), ("after", case.after))
        for check in (below_zero.problems_of, unread.problems)
        for problem in check(side.costs, f"{name}: {key}.costs")
    ]
    found += _overruled(case, name)
    if not case.scenario:
        return found
    sides: dict[str, Resolved] = {}
    attempts: dict[str, list[Problem]] = {}
    for which, side in (("before", case.before), ("after", case.after)):
        attempt = Attempts()
        resolved = attempt.call(resolved_side, case, side, f"{name}: {which}")
        if resolved is not None:
            sides[which] = resolved
            attempt.problems += inconsistencies(resolved.program, f"{name}: {which}")
            attempt.problems += _missing(case, side, resolved, f"{name}: {which}")
        attempts[which] = attempt.problems
    found += _once(attempts, name)
    if len(sides) == 2:
        found += _unused(case, sides, name)
    return found


def checked(case: Case, name: str) -> Case:
    """``case``. Raises InputError with everything wrong with it."""
    found = problems(case, name)
    if found:
        raise InputError(found)
    return case


def _overruled(case: Case, name: str) -> Iterator[Problem]:
    """What a case states and no prediction would follow."""
    sides = {"both": case.both, "before": case.before, "after": case.after}
    if not case.scenario:
        for key in (key for key, side in sides.items() if side != Side()):
            expected = f"no {key}, or a table scenario: without one nothing is predicted"
            yield Problem(f"{name}: {key}", "a table of a case without a scenario", expected)
    for key, stated in (
        ("scenario", case.scenario),
        *((f"{k}.scenario", s.scenario) for k, s in sides.items()),
    ):
        if case.fit is not None and case.fit.parameter in stated:
            parameter = case.fit.parameter
            expected = f"no {parameter}: it is the one fitted"
            yield Problem(f"{name}: {key}.{parameter}", shown(stated[parameter]), expected)
        run = stated.get("run")
        if isinstance(run, dict) and "replications" in run:
            expected = f"no replications: every prediction has {REPLICATIONS}"
            yield Problem(f"{name}: {key}.run.replications", shown(run["replications"]), expected)


def _once(attempts: Mapping[str, list[Problem]], name: str) -> list[Problem]:
    """Problems of both sides, which mostly share what they are made of: what both have is said once."""
    common = f"{name}: before and after"
    out: dict[Problem, None] = {}
    alike = [{_moved(p, f"{name}: {which}", common): p for p in found} for which, found in attempts.items()]
    shared = set.intersection(*map(set, alike))
    for of_side in alike:
        out |= {moved if moved in shared else own: None for moved, own in of_side.items()}
    return list(out)


def _moved(problem: Problem, place: str, to: str) -> Problem:
    where = re.sub(f"^{re.escape(place)}(?=$|:)", to, problem.where)
    return Problem(where, problem.found, problem.expected, problem.remedy)


def _missing(case: Case, side: Side, resolved: Resolved, where: str) -> Iterator[Problem]:
    """Costs that an inserted operation names and nothing states."""
    costs = resolved.profile.costs
    for insertion in side.over(case.both).insert:
        for operation in insertion.operations:
            for key, name in (("cost", operation.cost), ("host", operation.host)):
                if name is not None and name not in costs:
                    yield Problem(
                        f"{where}: insert {shown(operation.name)}: {key}",
                        f"no cost {shown(name)}",
                        f"a cost of profile {resolved.profile.name} or of the case",
                        did_you_mean(name, costs),
                    )


def _unused(case: Case, sides: Mapping[str, Resolved], name: str) -> Iterator[Problem]:
    """Costs stated by the case that neither side, or not the side that states them, ever asks for."""
    stated: list[tuple[str, Mapping[str, Cost], tuple[str, ...]]] = [
        ("both", case.both.costs, ("before", "after")),
        ("before", case.before.costs, ("before",)),
        ("after", case.after.costs, ("after",)),
    ]
    for key, costs, of in stated:
        if not costs:
            continue
        known = set().union(*(_asked_for(sides[side]) for side in of))
        for cost in sorted(set(costs) - known):
            yield Problem(
                f"{name}: {key}.{dotted(('costs', cost))}",
                f"a cost that nothing {' or '.join(of)} the change uses",
                "the name of one that an operation or a policy has",
                did_you_mean(cost, known),
            )


def _asked_for(resolved: Resolved) -> set[str]:
    """Names of every cost a run may ask for, whatever becomes of its batch."""
    expander = Expander(resolved.program, policies_of(resolved), resolved.scenario.serving.page_size)
    names = set(_MACHINE)
    for facts in product((False, True), repeat=6):
        iteration = expander.expand(Situation(*facts))
        for p in (*iteration.receive, *iteration.launch, *iteration.process):
            names |= {n for n in (p.host, p.device) if n is not None}
            if p.act is Act.SYNC:
                names.add(p.own_wake)
    return names.union(*map(names_in, names))
