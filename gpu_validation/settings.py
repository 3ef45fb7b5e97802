"""What the suite runs, as data: models, load, graph batches, host work. Calibration and validation share it.

A run: C requests at once, all of one length, acceptance forced by the table of the truncated geometric model with
``MEAN_ACCEPTED`` accepted drafts a step.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_validation.runtime.host_work import HostWork
from gpu_validation.runtime.sizes import Sizes
from sim.randomness import RunKey
from sim.serving.workload import Lengths, Workload
from sim.spec.acceptance import PerPositionAcceptance, geometric_probability

MEAN_ACCEPTED = 5.4
SEED = 1
#: bytes hashed stand for the rest of a serving engine's host work; with them, the small models are bound by the host
#: at low concurrency and by the GPU at 32, the middle one changes sides, and the large one is bound by the GPU
WORK = HostWork(receive_kib=640, enter_kib=160, process_kib=800, per_row_kib=2)


@dataclass(frozen=True)
class Load:
    """Sizes of the runs: those of a device, or in little for the stand-in.

    ``validated``: model to concurrencies. ``block``: None for each algorithm's own.
    """

    prompt: int
    output: int
    batches: tuple[int, ...]
    work: HostWork
    validated: dict[str, tuple[int, ...]]
    block: int | None = None

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.batches[-1], self.prompt, self.output, self.batches)

    def workload(self, block: int, requests: int) -> Workload:
        """``requests`` requests of equal length with forced acceptance; the same as the validated scenarios'."""
        drafts = block - 1
        mean = min(MEAN_ACCEPTED, drafts)
        p = geometric_probability(mean, drafts) if drafts else 0.0
        acceptance = PerPositionAcceptance([p] * drafts, drafts)
        return Workload(
            requests, Lengths(fixed=self.prompt), Lengths(fixed=self.output), acceptance, RunKey(SEED, 0)
        )


#: graphs exist for the calibrated batches alone; other batches run padded, which puts the padding model to the test
DEVICE = Load(
    prompt=128,
    output=384,
    batches=(1, 4, 16, 64),
    work=WORK,
    validated={"8b": (1, 2, 8, 32, 64), "1.7b": (1, 8, 32), "0.6b": (1, 8, 32)},
)
#: the same in little, for machines without a device
STAND_IN = Load(
    prompt=8,
    output=24,
    batches=(1, 4),
    work=HostWork(receive_kib=4, enter_kib=1, process_kib=4, per_row_kib=1),
    validated={"tiny": (1, 2, 4)},
    block=3,
)
