"""Host times at one speed of the host: what calibration states and what validation measures mean the same host.

A shared machine's host changes speed by up to two within seconds, and all host code with it. How fast it is in a turn
is told by the *witness*: the launches of the forward's operations behind its first graph, but for graphs, whose
launch depends on the model. Every policy makes them alike, none waits shortly before or among them, and the device
has work meanwhile, so that no prediction is about them. Their calibrated cost is the reference; which turns count,
and how far their times are moved, follows from the witness alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sim.config.profile import DeviceProfile, at_batch
from sim.program.step_program import Kind, Phase, StepProgram
from sim.units import NS_PER_US


def witness(program: StepProgram) -> tuple[str, ...]:
    """Names of the sections that tell the host's speed, in launch order; none where the forward is one graph with
    nothing behind it."""
    operations = [op for op in program.operations if op.phase in (Phase.FORWARD, Phase.COPY)]
    first = next((i for i, op in enumerate(operations) if op.kind is Kind.GRAPH), len(operations))
    launches = (Kind.KERNEL, Kind.PUBLISH, Kind.STASH, Kind.COPY)
    return tuple(op.name for op in operations[first + 1 :] if op.kind in launches)


def witnessed_us(sections: Mapping[str, int], names: Sequence[str]) -> float:
    """Microseconds of the witness in a turn, NaN where a section is not there; ``sections``: ns by name."""
    return sum(sections.get(name, np.nan) for name in names) / NS_PER_US


def stated_us(profile: DeviceProfile, program: StepProgram, batch: int) -> float:
    """What a profile says the witness takes at a batch."""
    names = witness(program)
    costs = [profile.costs[op.host] for op in program.operations if op.name in names and op.host]
    return sum(at_batch(c.value, c.batch, batch) + c.per_batch * batch for c in costs)
