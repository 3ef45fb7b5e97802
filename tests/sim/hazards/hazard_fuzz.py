"""Random legal step programs, run under the product's check and the oracle at once.

Legal: what a list waits for was recorded before it in that list, or (decode lists) in the prefill that comes
before any decode. Run as a script for many: ``python tests/sim/hazards/hazard_fuzz.py 10000``.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from hazard_lab import program, resolved, with_costs
from hazard_oracle import Both, Oracle

from sim.capabilities import (
    Barrier,
    BarrierPlacement,
    HostLengths,
    LengthSource,
    PrepStream,
    ReadEnd,
    Relay,
)
from sim.config.profile import DeviceProfile
from sim.program.step_program import Kind, Mark, Operation, Phase, StepProgram, StreamName
from sim.replication import Replication

STREAMS = ("schedule", "forward", "copy", "plan", "aux", "prep", "d2h")
BUFFERS = (
    "req_to_token[0:seq]",
    "req_to_token[seq:seq+B]",
    "req_to_token[0:seq+B]",
    "req_to_token[allocated:committed+2B]",
    "req_to_token[0:prompt]",
    "kv[seq:seq+B]",
    "kv[0:seq]",
    "swa_map[0:committed]",
    "future_map.new_seq_lens[rows]",
    "future_map.tokens[rows]",
    "batch.seq_lens",
    "allocator",
    "pinned_mirror",
    "staging",
)
EVENTS = ("e0", "e1", "e2")
MIDDLE = (Phase.SCHEDULE, Phase.PREPARE, Phase.RESOLVE, Phase.ENTER, Phase.FORWARD, Phase.COPY, Phase.QUEUE)


def random_program(rng: random.Random, base: StepProgram) -> StepProgram:
    """A program with random operations between the few that every engine has."""
    published = rng.random() < 0.7
    prefill, recorded = _operations(rng, published, True, set())
    decode, _ = _operations(rng, published, False, recorded)
    capabilities = base.capabilities.model_copy(
        update={
            "length_source": LengthSource.PUBLISHED if published else LengthSource.HOST_KNOWN,
            "read_end": rng.choice(list(ReadEnd)),
        }
    )
    return base.model_copy(
        update={"operations": tuple(decode), "prefill": tuple(prefill), "capabilities": capabilities}
    )


def _operations(
    rng: random.Random, published: bool, prefill: bool, recorded: set[str]
) -> tuple[list[Operation], set[str]]:
    known = set(recorded)
    out: list[Operation] = []
    for phase in MIDDLE:
        for n in range(rng.choice((0, 0, 1, 1, 2, 3))):
            op = _operation(rng, f"{phase}.{n}", phase, known)
            if op is not None:
                out.append(op)
        if phase is Phase.ENTER and rng.random() < 0.7:
            out.append(
                _op(phase, "join", Kind.WAIT, stream=StreamName.FORWARD, on=StreamName(rng.choice(STREAMS)))
            )
        if phase is Phase.FORWARD and published:
            out.append(
                _op(
                    phase,
                    "publish",
                    Kind.PUBLISH,
                    stream=StreamName.FORWARD,
                    cost="kernel.small",
                    writes=("future_map.new_seq_lens[rows]",),
                )
            )
        if phase is Phase.COPY:
            stream = StreamName(rng.choice(("forward", "copy", "copy", "aux")))
            if rng.random() < 0.8:
                out.append(_op(phase, "copy.join", Kind.WAIT, stream=stream, on=StreamName.FORWARD))
            out.append(_op(phase, "copy.done", Kind.RECORD, stream=stream, event="copy_done"))
    process = {"stream": StreamName.SCHEDULE} if rng.random() < 0.5 else {}
    out.append(_op(Phase.PROCESS, "process", Kind.HOST, cost="host.process", **process, **_accesses(rng)))
    if rng.random() < 0.2:
        out.append(_op(Phase.PROCESS, "late", Kind.SYNCHRONIZE, event="copy_done"))
    return out, known


def _op(phase: Phase, name: str, kind: Kind, **more: Any) -> Operation:
    return Operation(phase=phase, name=name, kind=kind, **more)


def _accesses(rng: random.Random) -> dict[str, tuple[str, ...]]:
    reads = tuple(rng.sample(BUFFERS, rng.choice((0, 0, 1, 2))))
    writes = tuple(rng.sample(BUFFERS, rng.choice((0, 0, 1))))
    return {"reads": reads, "writes": writes}


def _operation(rng: random.Random, name: str, phase: Phase, known: set[str]) -> Operation | None:
    kind = rng.choice(
        [Kind.KERNEL] * 3 + [Kind.GRAPH, Kind.COPY, Kind.HOST, Kind.RECORD, Kind.WAIT, Kind.SYNCHRONIZE]
    )
    stream = StreamName(rng.choice(STREAMS))
    if kind is Kind.HOST:
        on = {"stream": stream} if rng.random() < 0.3 else {}
        return _op(phase, name, kind, cost="host.enter", **on, **_accesses(rng))
    if kind is Kind.RECORD:
        event = rng.choice(EVENTS)
        known.add(event)
        return _op(phase, name, kind, stream=stream, event=event)
    if kind in (Kind.WAIT, Kind.SYNCHRONIZE):
        if rng.random() < 0.4 or not known:
            on = StreamName(rng.choice(STREAMS))
            return _op(phase, name, kind, stream=stream if kind is Kind.WAIT else None, on=on)
        event = rng.choice(sorted(known))
        return _op(phase, name, kind, stream=stream if kind is Kind.WAIT else None, event=event)
    cost = rng.choice(("kernel.small", "graph.draft", "graph.target", "copy.small"))
    choices = (Mark.LAST_SHARED_READ, Mark.SELF_FENCE, Mark.DRAFT)
    marks = tuple(rng.sample(choices, rng.choice((0, 0, 1)))) if phase is Phase.FORWARD else ()
    return _op(phase, name, kind, stream=stream, cost=cost, marks=marks, **_accesses(rng))


def random_costs(rng: random.Random, profile: DeviceProfile) -> DeviceProfile:
    """Whole microseconds, some zero, some far larger than the others: what provokes an overlap."""
    return with_costs(
        profile, {name: float(rng.choice((0, 1, 3, 10, 30, 100, 300, 1000))) for name in profile.costs}
    )


def one(seed: int) -> tuple[Counter[Any], Counter[Any], list[Any], int]:
    """Runs random program ``seed``: the product's findings, the oracle's, ordered pairs that overlap in time, and
    conflicting pairs tried."""
    rng = random.Random(seed)
    altered = random_program(rng, program())
    r = resolved(
        altered,
        {"workload.requests": "4", "workload.output_tokens": "{ values = [4, 9, 6, 12] }", "block_size": "4"},
    )
    published = altered.capabilities.length_source is LengthSource.PUBLISHED
    overlap = rng.random() < 0.9
    scenario = r.scenario.model_copy(
        update={
            "relay": rng.choice(list(Relay)) if overlap else None,
            "host_lengths": rng.choice(list(HostLengths)) if published else HostLengths.NONE,
            "barrier": rng.choice(list(Barrier)) if overlap else None,
            "barrier_placement": rng.choice(list(BarrierPlacement)),
            "prep_stream": rng.choice(list(PrepStream)) if overlap else None,
            "platform": rng.choice(("cuda", "hip")),
            "overlap": overlap,
            "pinned": rng.random() < 0.8,
        }
    )
    r = replace(r, scenario=scenario, profile=random_costs(rng, r.profile))
    replication = Replication(r, 0, hazards=True)
    check = replication.hazards
    both = Both(check, Oracle(replication.block_size))
    replication.machine.watcher = both
    replication.hazards = both  # type: ignore[assignment]
    replication.run()
    assert check is not None
    product: Counter[Any] = Counter()
    for finding in check.findings.values():
        if str(finding.kind) != "late_event":
            first, second = finding.operations
            product[finding.buffer, str(finding.kind), first.name, second.name] += finding.count
    conflicts = both.oracle.conflicts()
    return product, both.oracle.unordered(), both.oracle.overlapping_in_time(), len(conflicts)


def many(seeds: range) -> tuple[int, int, int]:
    """(programs, conflicting pairs, unordered cells); raises AssertionError on the first disagreement."""
    pairs = unordered = 0
    for seed in seeds:
        product, oracle, overlapping, conflicts = one(seed)
        assert not overlapping, (seed, overlapping[0])
        assert product == oracle, (seed, product - oracle, oracle - product)
        pairs += conflicts
        unordered += sum(oracle.values())
    return len(seeds), pairs, unordered


if __name__ == "__main__":
    began = time.time()
    programs, pairs, unordered = many(range(int(sys.argv[1])))
    print(
        f"{programs} programs, {pairs} conflicting pairs of accesses, {unordered} cells unordered and all found, "
        f"{time.time() - began:.0f} s"
    )
