"""Runs of altered step programs under the hazard check: what the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sim.config.declarations import load_program
from sim.config.loader import load_resolved
from sim.config.profile import Cost, DeviceProfile
from sim.config.resolve import Resolved
from sim.hazards.check import merged
from sim.program.step_program import Operation, StepProgram
from sim.replication import Replication

#: two clients, and a pool that recycles each row at once; the first request of a row is short, the next long, so
#: that the new owner's prompt reaches beyond what a forward still reads for the old one
SMALL = {
    "device": "toy",
    "engine": "toy-0.5.15",
    "workload.concurrency": "2",
    "workload.requests": "6",
    "workload.prompt_tokens": "{ values = [16, 16, 200, 200] }",
    "workload.output_tokens": "{ values = [9, 17, 13, 30] }",
    "serving.max_running_requests": "2",
    "serving.min_free_slots": "0",
}


def program(name: str = "dflash", engine: str = "toy-0.5.15") -> StepProgram:
    return load_program(name, engine)


def edited(
    base: StepProgram,
    *,
    change: Mapping[str, dict[str, Any]] | None = None,
    drop: Iterable[str] = (),
    before: Mapping[str, list[Operation]] | None = None,
    prefill: bool = True,
    decode: bool = True,
) -> StepProgram:
    """``base`` with operations of a name changed, dropped or preceded by others, in the lists named."""

    def edit(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        out: list[Operation] = []
        for op in operations:
            out += (before or {}).get(op.name, [])
            if op.name not in set(drop):
                out.append(op.model_copy(update=(change or {}).get(op.name, {})))
        return tuple(out)

    return base.model_copy(
        update={
            "operations": edit(base.operations) if decode else base.operations,
            "prefill": edit(base.prefill) if prefill else base.prefill,
        }
    )


def resolved(
    altered: StepProgram | None = None,
    overrides: Mapping[str, str] | None = None,
    costs: Mapping[str, float] | None = None,
) -> Resolved:
    """A resolved scenario on the toy profile, with its program and some costs (µs) replaced."""
    r = load_resolved("toy_dF", {**SMALL, **(overrides or {})})
    profile = r.profile if costs is None else with_costs(r.profile, costs)
    return replace(r, profile=profile, program=altered or r.program)


def with_costs(profile: DeviceProfile, costs: Mapping[str, float]) -> DeviceProfile:
    changed = {
        name: Cost(value=costs[name], status="exact") if name in costs else cost
        for name, cost in profile.costs.items()
    }
    return profile.model_copy(update={"costs": changed})


def findings(
    altered: StepProgram | None = None,
    overrides: Mapping[str, str] | None = None,
    costs: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    replication = Replication(resolved(altered, overrides, costs), 0, hazards=True).run()
    assert replication.hazards is not None
    return merged([replication.hazards])


def short(found: list[dict[str, Any]]) -> set[tuple[str, str, str, str]]:
    """(buffer, kind, severity, reason) of each finding."""
    return {(f["buffer"], f["kind"], f["severity"], f["reason"]) for f in found}


def harmful(found: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(f["buffer"], f["kind"], f["reason"]) for f in found if f["severity"] == "harmful"}
