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
#: stands for the rest of a serving engine's host work. With it, a step costs the suite's host about what it costs
#: SGLang 0.5.15's: at one row phase by phase, the sections of configs/devices/h200_sglang.toml (before the batch is
#: entered; from there to the draft's launch; all later ones) less the suite's own of those phases as first measured
#: on an H200; what each row adds is all held on processing. Its own sections take more between these longer holds:
#: 7 % more than SGLang's step in all
WORK = HostWork(receive_us=370, enter_us=680, process_us=1740, per_row_us=45)


@dataclass(frozen=True)
class Load:
    """Sizes of the runs: those of a device, or in little for the stand-in.

    ``validated``: model to concurrencies. ``visited_s``: configurations of a cell are visited again while that ends
    within so many seconds. ``block``: None for each algorithm's own.
    """

    prompt: int
    output: int
    batches: tuple[int, ...]
    work: HostWork
    validated: dict[str, tuple[int, ...]]
    visited_s: float = 5.0
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


@dataclass(frozen=True)
class RaceLoad:
    """Runs that provoke races: every other prompt is short, the others begin with a shared prefix that is longer than
    a short request ever gets; a pool row for each client and no more."""

    model: str
    short: int
    prefix: int
    suffix: int
    #: output tokens of request 0, 1, …, starting over
    outputs: tuple[int, ...]
    concurrency: int
    mean_accepted: float
    requests: int
    #: more and more host work before a row is rewritten
    held_us: tuple[float, ...]
    block: int | None = None

    @property
    def prompts(self) -> tuple[int, ...]:
        """Prompt tokens of request 0, 1, …, starting over."""
        return self.prefix + self.suffix, self.short

    @property
    def calibration(self) -> Load:
        """A load to calibrate the same engine with."""
        return Load(
            prompt=max(self.prompts),
            output=4 * max(self.outputs),
            batches=(1, self.concurrency),
            work=HostWork(),
            validated={},
            block=self.block,
        )

    def workload(self, block: int, requests: int) -> Workload:
        drafts = block - 1
        p = geometric_probability(min(self.mean_accepted, drafts), drafts)
        acceptance = PerPositionAcceptance([p] * drafts, drafts)
        prompts, outputs = Lengths(listed=list(self.prompts)), Lengths(listed=list(self.outputs))
        return Workload(requests, prompts, outputs, acceptance, RunKey(SEED, 0))


#: graphs exist for the calibrated batches alone; other batches run padded, which puts the padding model to the test
DEVICE = Load(
    prompt=64,
    output=256,
    batches=(1, 4, 16, 64),
    work=WORK,
    validated={"8b": (1, 2, 8, 32, 64), "1.7b": (1, 8, 32), "0.6b": (1, 8, 32)},
)
#: the same in little, for machines without a device
STAND_IN = Load(
    prompt=8,
    output=51,
    batches=(1, 4),
    work=HostWork(receive_us=4, enter_us=1, process_us=4, per_row_us=1),
    validated={"tiny": (1, 2, 4)},
    visited_s=1.0,
    block=3,
)
RACES = RaceLoad(
    model="race",
    short=8,
    prefix=256,
    suffix=16,
    outputs=(61, 47, 73, 59, 67),
    concurrency=4,
    mean_accepted=1.5,
    requests=1800,
    held_us=(100, 200, 300, 400, 600),
)
STAND_IN_RACES = RaceLoad(
    model="tiny",
    short=3,
    prefix=40,
    suffix=4,
    outputs=(11, 7, 13),
    concurrency=2,
    mean_accepted=1.0,
    requests=64,
    held_us=(5000,),
    block=3,
)


def load_of(backend: str) -> Load:
    """The load of a backend, by its name on the command line."""
    return DEVICE if backend == "torch" else STAND_IN


def races_of(backend: str) -> RaceLoad:
    return RACES if backend == "torch" else STAND_IN_RACES
