"""What can be wrong with a step program as a whole; the schema sees one operation at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.capabilities import LengthSource
from sim.config.checked import did_you_mean, listed, shown
from sim.errors import Problem
from sim.program.buffers import FRESH, parse_access
from sim.program.events import RECORDERS
from sim.program.step_program import Kind, Operation, Phase, StepProgram

#: buffers an engine has, whoever writes them: the program, the scheduler or the policies
ENGINE_BUFFERS = ("req_to_token", "kv", "draft_kv", "swa_map", "allocator", "pinned_mirror", "weights")
FUTURE_MAP = "future_map."
LENGTHS = FUTURE_MAP + "new_seq_lens"
#: buffers of the FutureMap whatever the worker relays
_RELAYED = ("new_seq_lens", "tokens")
_LISTS = ("operations", "prefill")


def problems(program: StepProgram, file: str) -> list[Problem]:
    """Everything inconsistent in ``program``, located in ``file``."""
    found: list[Problem] = []
    if not program.operations:
        found.append(Problem(f"{file}: operations", "an empty list", "the operations of a decode step"))
    for name, operations in zip(_LISTS, (program.operations, program.prefill), strict=True):
        found += _buffers(program, operations, f"{file}: {name}")
        found += _read_before_written(operations, f"{file}: {name}")
        found += _without_cost(operations, f"{file}: {name}")
        found += _never_stashed(program, operations, f"{file}: {name}")
    found += _publishing(program, file)
    found += _events(program, file)
    return found


def _buffers(program: StepProgram, operations: Sequence[Operation], where: str) -> Iterator[Problem]:
    """Buffers that are read though the engine has none of that name and nothing in the program writes one."""
    written = {parse_access(a).buffer for op in (*program.operations, *program.prefill) for a in op.writes}
    fields = {FUTURE_MAP + field for field in (*_RELAYED, *program.capabilities.relay_schema)}
    known = sorted({*written, *fields, *ENGINE_BUFFERS})
    for op in operations:
        for access in op.reads:
            buffer = parse_access(access).buffer
            # A fresh buffer has the other rule; parts of an engine's buffer (kv.draft) are the engine's.
            if buffer in known or buffer.startswith(FRESH) or buffer.split(".", 1)[0] in ENGINE_BUFFERS:
                continue
            yield Problem(
                f"{where} {shown(op.name)}: reads",
                f"an unknown buffer {shown(buffer)}",
                f"one that an operation writes, or {listed(sorted({*fields, *ENGINE_BUFFERS}))}",
                did_you_mean(buffer, known),
            )


def _read_before_written(operations: Sequence[Operation], where: str) -> Iterator[Problem]:
    """Buffers made anew in every iteration (``batch.…``) that are read before anything in the list wrote them."""
    written: set[str] = set()
    for op in operations:
        for access in op.reads:
            buffer = parse_access(access).buffer
            if buffer.startswith(FRESH) and buffer not in written and _written_by(operations, buffer):
                first = next(o.name for o in operations if buffer in _writes(o))
                yield Problem(
                    f"{where} {shown(op.name)}: reads",
                    f"{shown(buffer)} before anything wrote it: {shown(first)} comes later",
                    "an earlier operation that writes it",
                    "Move the reader behind the writer.",
                )
            elif buffer.startswith(FRESH) and buffer not in written:
                yield Problem(
                    f"{where} {shown(op.name)}: reads",
                    f"{shown(buffer)}, which nothing writes in this iteration",
                    "an earlier operation that writes it",
                )
        written |= _writes(op)


def _never_stashed(program: StepProgram, operations: Sequence[Operation], where: str) -> Iterator[Problem]:
    """Fields of the FutureMap that are gathered though a step before leaves nothing in them.

    A decode step follows another one or, for a new request, its prefill: both have to stash what it gathers.
    """
    for op in operations:
        for buffer in sorted({parse_access(access).buffer for access in op.reads}):
            if not buffer.startswith(FUTURE_MAP):
                continue
            silent = [
                name
                for name, step in zip(_LISTS, (program.operations, program.prefill), strict=True)
                if step and not any(_leaves(other, buffer) for other in step)
            ]
            if silent:
                yield Problem(
                    f"{where} {shown(op.name)}: reads",
                    f"{shown(buffer)}, which nothing in {' or '.join(silent)} writes",
                    "a field that every step stashes or publishes before",
                    "Write it there, or gather nothing.",
                )


def _leaves(op: Operation, buffer: str) -> bool:
    """Whether ``op`` leaves something in a field of the FutureMap; what a publish is for goes without saying."""
    return buffer in _writes(op) or (op.kind is Kind.PUBLISH and buffer == LENGTHS)


def _writes(op: Operation) -> set[str]:
    return {parse_access(access).buffer for access in op.writes}


def _written_by(operations: Sequence[Operation], buffer: str) -> bool:
    return any(buffer in _writes(op) for op in operations)


def _without_cost(operations: Sequence[Operation], where: str) -> Iterator[Problem]:
    for op in operations:
        timed = (Kind.HOST, Kind.KERNEL, Kind.GRAPH, Kind.COPY, Kind.PUBLISH, Kind.STASH)
        if op.kind in timed and op.cost is None:
            yield Problem(f"{where} {shown(op.name)}: cost", "nothing", f"a cost, as every {op.kind} has one")
        if op.kind not in (Kind.HOST, Kind.SYNCHRONIZE) and op.stream is None:
            yield Problem(
                f"{where} {shown(op.name)}: stream", "nothing", f"a stream, as every {op.kind} has one"
            )


def _publishing(program: StepProgram, file: str) -> Iterator[Problem]:
    if program.capabilities.length_source is not LengthSource.PUBLISHED:
        return
    for name, operations in zip(_LISTS, (program.operations, program.prefill), strict=True):
        if operations and not any(op.kind is Kind.PUBLISH for op in operations):
            yield Problem(
                f"{file}: {name}",
                "no operation of kind publish, so that the lengths of the next step never come",
                'one, as capabilities.length_source is "published"',
            )


def _events(program: StepProgram, file: str) -> Iterator[Problem]:
    """Waits for events that nothing records, or only what itself stands behind the wait."""
    recorded_in_prefill = {op.event for op in program.prefill if op.kind is Kind.RECORD}
    for name, operations in zip(_LISTS, (program.operations, program.prefill), strict=True):
        recorded: set[str | None] = set()
        later = {op.event for op in operations if op.kind is Kind.RECORD}
        for op in operations:
            if op.kind in (Kind.WAIT, Kind.SYNCHRONIZE):
                yield from _wait(op, f"{file}: {name} {shown(op.name)}", recorded, later, recorded_in_prefill)
            if op.kind is Kind.RECORD:
                recorded.add(op.event)
        if operations and "copy_done" not in later:
            yield Problem(
                f"{file}: {name}",
                'no operation of kind record with event "copy_done", so that no result is ever processed',
                f'one in phase "{Phase.COPY}", after the result\'s copies',
            )


def _wait(
    op: Operation, where: str, recorded: set[str | None], later: set[str | None], in_prefill: set[str | None]
) -> Iterator[Problem]:
    if (op.event is None) == (op.on is None):
        found = "neither event nor on" if op.event is None else "both event and on"
        yield Problem(where, found, "one of the two")
    elif op.event is None or op.event in recorded or op.event in RECORDERS:
        return
    elif op.event not in later and op.event not in in_prefill:
        yield Problem(
            where,
            f"a wait for event {shown(op.event)}, which nothing records",
            "an earlier operation of kind record with this event",
            did_you_mean(op.event, [str(e) for e in later]),
        )
    elif op.event not in in_prefill:
        yield Problem(
            where,
            f"a circle: it waits for event {shown(op.event)}, which is recorded only behind it",
            "an event recorded before the wait, or in the prefill for the first iteration",
        )
