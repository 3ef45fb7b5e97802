"""A calibrated profile for a host of another speed: all host code takes as many times longer as the launches that
tell the speed, held work as long as ever."""

from __future__ import annotations

from gpu_validation.runtime.host_work import HostWork
from sim.config.profile import Cost, DeviceProfile, is_host_cost
from sim.program.step_program import StepProgram


def at_speed(profile: DeviceProfile, program: StepProgram, work: HostWork, speed: float) -> DeviceProfile:
    """``speed``: the witness over the one that ``profile`` is stated at; above 1 slower."""
    sections = {
        cost: op.name for op in (*program.operations, *program.prefill) for cost in (op.host, op.cost) if cost
    }
    costs = {
        name: _slower(cost, sections.get(name, ""), work, speed) if is_host_cost(name) else cost
        for name, cost in profile.costs.items()
    }
    return profile.model_copy(update={"costs": costs})


def _slower(cost: Cost, section: str, work: HostWork, speed: float) -> Cost:
    def at(value: float, rows: int) -> float:
        held = work.held_us(section, rows)
        return held + (value - held) * speed

    # What was calibrated at one batch alone is stated there.
    rows = cost.batch or (round(cost.valid_range.get("batch", (1, 1))[0]),)
    values = cost.value if isinstance(cost.value, tuple) else (cost.value,)
    scaled = tuple(at(value, n) for value, n in zip(values, rows, strict=True))
    return cost.model_copy(
        update={
            "value": scaled if isinstance(cost.value, tuple) else scaled[0],
            "per_batch": cost.per_batch * speed,
        }
    )
