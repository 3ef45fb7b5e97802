"""Keys of a cost that no solver reads where the cost stands, so that whoever states one is told.

A key that is taken and ignored looks like a modelled effect. What the cost's name alone shows is a problem of the
profile. What shows only beside a program is refused when a scenario joins the two, or noted where the same profile
may serve another program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.config.checked import did_you_mean, dotted, shown
from sim.config.expressions import names_in
from sim.config.profile import Cost, DeviceProfile, is_host_cost
from sim.errors import Problem
from sim.program.primitives import FIRST_LAUNCH, WAKE
from sim.program.step_program import Kind, Operation, StepProgram

#: host waits that policies insert, by the names :attr:`~sim.program.primitives.Primitive.own_wake` goes by
POLICY_WAITS = ("fence.synchronize", "lengths.synchronize", "resolve.wait_publish", "result.synchronize")
#: device costs of what policies launch, none of it a graph
POLICY_LAUNCHES = ("lengths.copy", "relay.gather_lengths")
#: host waits of a runtime whose calls hold the host, behind any wait or graph
_HELD = ".held"
#: constants of the machine, which knows neither batch nor context
_MACHINE = (WAKE, "hop.cross_stream", "hop.launch")
_OF_A_STEP = ("per_context", "within_sd", "boot_sd")
_OF_A_BATCH = ("batch", "per_batch", "per_token")
#: of the padded rows of a graph
_OF_GRAPHS = ("context_floor", "per_empty", "relief")
_LAUNCHED = (Kind.KERNEL, Kind.COPY, Kind.PUBLISH, Kind.STASH)


def problems(costs: Mapping[str, Cost], where: str) -> list[Problem]:
    """Keys that nothing reads whatever the program, in the costs at ``where`` (``"file.toml: costs"``)."""
    return [problem for name, cost in costs.items() for problem in _of(name, cost, where)]


def _of(name: str, cost: Cost, where: str) -> Iterator[Problem]:
    keys: tuple[str, ...]
    if name in _MACHINE:
        keys, reason = (*_OF_A_STEP, *_OF_A_BATCH, *_OF_GRAPHS), "one number of the machine"
    elif name.startswith(f"{WAKE}."):
        keys, reason = (*_OF_A_STEP, "per_token", *_OF_GRAPHS), "a wake follows the batch alone"
    elif name == FIRST_LAUNCH:
        keys = (*_OF_A_STEP, *_OF_GRAPHS)
        reason = "it is added to a launch, whose own context and spread count"
    elif is_host_cost(name):
        keys, reason = _OF_GRAPHS, "only graphs, which run on the device, have it"
    else:
        return
    for key in keys:
        if _stated(cost, key):
            found = f"{key} = {shown(getattr(cost, key))}, which nothing reads"
            yield Problem(f"{where}.{dotted((name,))}", found, f"no {key}: {reason}")


def _stated(cost: Cost, key: str) -> bool:
    value = getattr(cost, key)
    if key == "batch":
        return isinstance(cost.value, tuple) and len(set(cost.value)) > 1
    return any(value) if isinstance(value, tuple) else bool(value)


def beside(profile: DeviceProfile, program: StepProgram) -> list[Problem]:
    """Costs with ``relief`` that the program or a policy launches by themselves: a clock follows graphs."""
    relieved = {name for name, cost in profile.costs.items() if _stated(cost, "relief")}
    if not relieved:
        return []
    where = f"device profile {profile.name}: costs"
    users = {name: f"the policies launch as a kernel or copy ({name})" for name in POLICY_LAUNCHES}
    users |= {
        op.cost: f"{program.algorithm}@{program.engine} launches as {op.kind} {shown(op.name)}"
        for op in _operations(program)
        if op.kind in _LAUNCHED and op.cost is not None
    }
    return [
        Problem(
            f"{where}.{dotted((name,))}",
            f"relief on a cost that {users[name]}",
            "relief on costs of graphs alone",
            "Give what is no graph a cost of its own.",
        )
        for name in sorted(relieved & set(users))
    ]


def notes(profile: DeviceProfile, program: StepProgram) -> list[str]:
    """What of the profile does not count with this program, though it may with another."""
    return [*_wakes(profile, program), *_lost_relief(profile, program)]


def _wakes(profile: DeviceProfile, program: StepProgram) -> Iterator[str]:
    """Wakes for waits that neither the program nor any policy has."""
    stated = {name.removeprefix(f"{WAKE}."): name for name in profile.costs if name.startswith(f"{WAKE}.")}
    if not stated:
        return
    own = {op.name for op in _operations(program) if op.kind is Kind.SYNCHRONIZE}
    known = sorted({*POLICY_WAITS, *own})
    for wait, name in sorted(stated.items()):
        if wait not in known and not wait.endswith(_HELD):
            remedy = did_you_mean(wait, known) or f"Its waits: {', '.join(known)}."
            yield (
                f"{name} of profile {profile.name} counts nowhere: {program.algorithm}@{program.engine} has no wait "
                f"{shown(wait)}. {remedy}"
            )


def _lost_relief(profile: DeviceProfile, program: StepProgram) -> Iterator[str]:
    """Expressions over relieved costs: an expression has no relief."""
    relieved = {name for name, cost in profile.costs.items() if _stated(cost, "relief")}
    for text in sorted({op.cost for op in _operations(program) if op.cost} - set(profile.costs)):
        lost = sorted(relieved & names_in(text))
        if lost:
            yield f"the cost {shown(text)} is taken without the relief of {', '.join(lost)}"


def _operations(program: StepProgram) -> tuple[Operation, ...]:
    return (*program.operations, *program.prefill)
