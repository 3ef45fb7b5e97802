"""Small engines for the tests: a tiny model, few requests of unequal length, every policy combination."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gpu_validation.device.stand_in import Chooser, StandIn
from gpu_validation.runtime.build import Built, Sizes, tokens_of
from gpu_validation.runtime.server import RunOptions
from gpu_validation.runtime.shapes import SHAPES
from sim.capabilities import Barrier, BarrierPlacement, HostLengths, LengthSource, PrepStream, Relay
from sim.program.policies import PLATFORMS, Policies
from sim.randomness import RunKey
from sim.serving.workload import Lengths, Workload
from sim.spec.acceptance import PerPositionAcceptance

#: algorithm and a block small enough for a tiny run
ALGORITHMS = {"none": 1, "eagle": 3, "dflash": 5}


def policies(
    relay: Relay = Relay.UNIFIED,
    host_lengths: HostLengths = HostLengths.NONE,
    barrier: Barrier = Barrier.READ_DONE,
    placement: BarrierPlacement = BarrierPlacement.LOOP_TOP,
    prep_stream: PrepStream = PrepStream.SCHEDULE,
    overlap: bool = True,
    pinned: bool = True,
    platform: str = "cuda",
) -> Policies:
    return Policies(
        relay, host_lengths, barrier, placement, prep_stream, overlap, PLATFORMS[platform], pinned
    )


def engine(
    algorithm: str,
    chooser: Chooser | None = None,
    temperature: float = 0.0,
    graph_batches: tuple[int, ...] = (1, 2, 4),
    log: list | None = None,
) -> Built:
    return Built(
        StandIn(chooser, log),
        SHAPES["tiny"],
        algorithm,
        Sizes(4, 16, 32, graph_batches),
        block=ALGORITHMS[algorithm],
        temperature=temperature,
    )


def workload(block: int, requests: int = 5, p: float = 0.6, seed: int = 7) -> Workload:
    """Requests of unequal length that join and leave; drafts are accepted with probability ``p`` each."""
    acceptance = PerPositionAcceptance([p] * (block - 1), block - 1)
    prompts, outputs = Lengths(listed=[5, 9, 7]), Lengths(listed=[14, 7, 18, 10])
    return Workload(requests, prompts, outputs, acceptance, RunKey(seed, 0))


def tokens(
    built: Built, chosen: Policies, *, forced: bool = True, debug: bool = False, concurrency: int = 3
) -> list[list[int]]:
    options = RunOptions(concurrency, forced=forced, debug=debug)
    server, _ = built.run(chosen, workload(built.setting.block), options)
    return list(tokens_of(server))


def combinations(source: LengthSource, platform: str = "cuda") -> Iterator[Policies]:
    """Every combination of policies that a scenario may ask for, memory pinned."""
    axes = itertools.product(Relay, HostLengths, Barrier, BarrierPlacement, PrepStream)
    for relay, lengths, barrier, placement, stream in axes:
        chosen = policies(relay, lengths, barrier, placement, stream, platform=platform)
        if source is LengthSource.HOST_KNOWN and (
            relay is Relay.DIRECT_CARRY or lengths is not HostLengths.NONE or barrier is Barrier.SELF_FENCE
        ):
            continue
        yield chosen
    yield policies(barrier=Barrier.UNGUARDED, overlap=False, platform=platform)


def safe(chosen: Policies) -> bool:
    """Whether the policies order every write to shared buffers after the reads it could disturb.

    ``self_fence`` covers decode preparation only, so recycled rows are not ordered; ``unguarded`` orders nothing.
    """
    return not chosen.overlap or chosen.barrier in (Barrier.COARSE, Barrier.READ_DONE)
