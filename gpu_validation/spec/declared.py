"""A worker's step program without a device: what it declares depends on no weights."""

from __future__ import annotations

from gpu_validation.device.stand_in import StandIn
from gpu_validation.runtime.build import Built
from gpu_validation.runtime.shapes import shape_named
from gpu_validation.runtime.sizes import Sizes
from gpu_validation.spec.program import step_program
from sim.program.step_program import StepProgram


def declared(algorithm: str, block: int | None, engine: str) -> StepProgram:
    """The program of ``algorithm`` with this block (None: its own). Raises InputError for an unknown one."""
    built = Built(StandIn(), shape_named("tiny"), algorithm, Sizes(1, 8, 8, (1,)), block)
    return step_program(built.worker, engine)
