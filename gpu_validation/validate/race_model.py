"""What the model says of a race run: whether it is safe, and where the write of a recycled row comes to lie against
the read that may still be to come.

The window is short against what moves it, so the prediction has what the run has: a prefill of one request at a time;
host work that is held by the clock and therefore not slower on a slow host; the calls of a prefill in their steady
state; the making of the next request where the run's own host did that; and the states of the host, each of which
puts the write elsewhere. None of it is taken from what was torn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gpu_validation import settings
from gpu_validation.configurations import CONFIGURATIONS
from gpu_validation.validate.races import READ, WRITE
from sim.config.profile import Cost, DeviceProfile, HostState, at_batch
from sim.config.resolve import Resolved, resolve
from sim.config.scenario import Scenario
from sim.hazards.text import harmful
from sim.program.step_program import Kind, Operation, Phase, StepProgram
from sim.run import Meetings, meetings

#: host states a prediction goes through, equally likely
STATES = 10
#: how long the suite's host takes to make the next request, in units of the piece of work that
#: gpu_validation.observe.host_state times: 242 µs against 226 µs, medians over 64 requests of the race load on a host
#: without a device
REQUEST_PIECES = 1.07
MAKE, HELD = "client.request", "process.held"


@dataclass(frozen=True)
class Window:
    """``margins_us``: by host state, fastest first, from the end of the read to the start of the write of every
    recycled row; below zero the read is torn."""

    safe: bool
    states: tuple[float, ...]
    margins_us: tuple[tuple[float, ...], ...]
    #: length of the run by host state
    seconds: tuple[float, ...]

    @property
    def meetings(self) -> int:
        """Rows taken over in flight whose write nothing orders after the read."""
        return len(self.margins_us[0])

    @property
    def shares(self) -> list[float] | None:
        """Torn share of the meetings by host state."""
        if not self.meetings:
            return None
        return [sum(m < 0 for m in margins) / len(margins) for margins in self.margins_us]


def given(
    profile: DeviceProfile, program: StepProgram, host_us: float | None
) -> tuple[DeviceProfile, StepProgram]:
    """The calibration as race runs need it.

    ``host_us``: the host's time for its piece of work, for runs whose requests were made while they ran; None where
    they were made before.
    """
    costs = dict(profile.costs)
    for name in ("copy", "assign"):
        steady = costs[f"host.prepare.{name}"]
        source = f"host.prepare.{name}: the same call, and a recycled row's prefill is never a run's first iteration"
        costs[f"host.prefill.{name}"] = steady.model_copy(update={"source": source})
    if host_us is not None:
        source = (
            f"{REQUEST_PIECES} times the host's piece of work, {host_us:.0f} us: the client's next request"
        )
        costs[f"host.{MAKE}"] = Cost(value=round(REQUEST_PIECES * host_us, 2), status="scaled", source=source)
        program = program.model_copy(
            update={"prefill": _before(program.prefill, "prefill.rows", _host(Phase.PREPARE, MAKE))}
        )
    return profile.model_copy(update={"costs": costs}), program


def window(folder: Path, load: settings.RaceLoad, run: Mapping[str, Any]) -> Window:
    """``folder`` holds ``profile.toml`` and ``program.toml``; ``run`` is a race run as measured."""
    resolved = _resolved(run["configuration"], folder, load, run["requests"])
    states = host_states(resolved.profile, resolved.program, run)
    first = _once(resolved, run["held_us"], states[0])
    safe = not harmful(first.hazards)
    if safe:  # order does not depend on times
        states = states[:1]
    runs = [first, *(_once(resolved, run["held_us"], state) for state in states[1:])]
    return Window(safe, states, tuple(tuple(r.margins_us) for r in runs), tuple(r.seconds for r in runs))


def host_states(profile: DeviceProfile, program: StepProgram, run: Mapping[str, Any]) -> tuple[float, ...]:
    """Host factors of a run, :data:`STATES` equally likely ones, fastest first.

    Those of the run itself where it says how long its forwards took to launch: that work lies before what races.
    Otherwise those of the calibration.
    """
    at = (np.arange(STATES) + 0.5) / STATES
    rows = taken_over(run)
    if rows:
        forward = [op for op in program.operations if op.phase is Phase.FORWARD and op.host is not None]
        costs = [profile.costs[str(op.host)] for op in forward]
        factors = [r["forward_us"] / sum(_at(cost, r["rows"]) for cost in costs) for r in rows]
        return tuple(float(f) for f in np.quantile(factors, at).round(4))
    return tuple(float(f) for f in _interpolated(profile.host_state, at).round(4))


def taken_over(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows taken over in flight, if the run recorded them."""
    recorded = run.get("taken_over")
    if recorded is None:
        return []
    return [dict(zip(recorded["columns"], row, strict=True)) for row in recorded["rows"]]


def piece_us(calibration: Mapping[str, Any]) -> float:
    """The host's time for its piece of work while it was calibrated: the median over the runs."""
    return median(
        us for batch in calibration["batches"].values() for r in batch["runs"] for us in r["host_us"]
    )


def _interpolated(state: HostState, at: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    known = sorted((float(p), factor) for p, factor in state.quantiles.items())
    return np.interp(at, [p for p, _ in known], [factor for _, factor in known])


def _at(cost: Cost, batch: int) -> float:
    return at_batch(cost.value, cost.batch, batch) + cost.per_batch * batch


def _once(resolved: Resolved, held_us: float, factor: float) -> Meetings:
    """One run at a host factor; as the race runs, with one request a prefill."""
    return meetings(_held(resolved, held_us, factor), (READ, WRITE), factor, prefill_tokens=1)


def _held(resolved: Resolved, held_us: float, factor: float) -> Resolved:
    """With the host held for so long on each result: by the clock, so the host's factor is taken out again."""
    if not held_us:
        return resolved
    cost = Cost(value=held_us / factor, status="exact", source="held by the clock")
    profile = resolved.profile.model_copy(update={"costs": {**resolved.profile.costs, f"host.{HELD}": cost}})
    program, held = resolved.program, _host(Phase.PROCESS, HELD)
    program = program.model_copy(
        update={"operations": (*program.operations, held), "prefill": (*program.prefill, held)}
    )
    return replace(resolved, profile=profile, program=program)


def _host(phase: Phase, name: str) -> Operation:
    return Operation(phase=phase, name=name, kind=Kind.HOST, cost=f"host.{name}")


def _before(operations: Sequence[Operation], name: str, new: Operation) -> tuple[Operation, ...]:
    k = next(i for i, op in enumerate(operations) if op.name == name)
    return (*operations[:k], new, *operations[k:])


def _resolved(configuration: str, folder: Path, load: settings.RaceLoad, requests: int) -> Resolved:
    keys = {
        "device": str(folder / "profile.toml"),
        "algorithm": str(folder / "program.toml"),
        **CONFIGURATIONS[configuration],
        "serving": {
            "max_running_requests": load.concurrency,
            "graph_batches": list(load.calibration.batches),
        },
        "workload": {
            "concurrency": load.concurrency,
            "requests": requests,
            "prompt_tokens": {"values": load.prompts},
            "output_tokens": {"values": load.outputs},
        },
        "acceptance": {"model": "truncated_geometric", "mean_accepted_drafts": load.mean_accepted},
        "run": {"seed": settings.SEED, "replications": 1},
    }
    return resolve(Scenario.model_validate(keys))
