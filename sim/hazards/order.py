"""Which accesses of a run nothing orders: happens-before from host program order, streams and events.

An operation on a stream happens after those before it on that stream, after the events its stream waited for and
after everything the host knew of when it launched it; the host knows of what it waited for. Times play no part, so
what is found holds for every draw of the costs.

Knowledge is a set of accesses still *held*, as bits: one set for the host, one for each stream, one for each event.
An access the host knows of is dropped, because everything launched later happens after it. What is left after a
piece of an iteration has only finitely many forms, and the next form depends on this one and on the piece alone, so
both are numbered and every step is looked up: in a steady state checking the order costs one dictionary access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from sim.program.buffers import Access, Column, parse_access
from sim.program.expand import COPY_DONE, RESULT_READY
from sim.program.primitives import Act, Primitive
from sim.program.step_program import Kind, Phase

#: pieces of iterations (a launch, a result processed) after which an access that the host never learned of is
#: forgotten; the loops run one iteration ahead, so programs whose results are waited for stay far below
HORIZON = 24

#: remembered states; real programs have some dozens
MOST_STATES = 4096

HOST = "host"
#: the event whose record ends the reads a scheduler's barrier waits for
READ_DONE = "read_done"
#: the buffer whose preparation writes move a row's `allocated`
ALLOCATED_IN = "req_to_token"


class HazardKind(StrEnum):
    WRITE_AFTER_READ = "write_after_read"  # written anew while a read that came first may still be to come
    READ_BEFORE_PUBLISH = "read_before_publish"  # read while the write that came first may still be to come
    WRITE_AFTER_WRITE = "write_after_write"  # two writes in either order
    REUSE_BEFORE_COPY = "reuse_before_copy"  # memory a copy reads is filled again before the copy has run
    LATE_EVENT = "late_event"  # a wait meets a later record of a reused event than the one it is for


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a piece that touches shared buffers (or, in result processing, waits for a named event)."""

    name: str
    lane: str
    phase: Phase
    #: the event it waits for, "" if none
    event: str
    copies: bool
    #: accesses with whether they write
    accesses: tuple[tuple[Access, bool], ...]
    #: it comes after its forward recorded the end of its shared reads
    after_read_done: bool
    #: equal operations of one check have one number, which is quicker to look up by
    number: int = field(default=-1, compare=False)


class Content(NamedTuple):
    """What a primitive list means to the checker; lists of equal content are one piece."""

    operations: tuple[Operation, ...]
    #: (act, index of the operation or −1, stream or host, event)
    acts: tuple[tuple[Act, int, str, str], ...]
    #: a launch of an iteration, or the processing of a result
    launches: bool


@dataclass(frozen=True, slots=True)
class Piece:
    number: int
    operations: tuple[Operation, ...]
    acts: tuple[tuple[Act, int, str, str], ...]
    launches: bool
    #: whether any access is by row, and where in ``req_to_token`` the last preparation write of a row ends
    by_row: bool
    allocates_to: Column | None


class Unordered(NamedTuple):
    """Operation ``first`` of the piece ``age`` pieces ago, issued before ``second`` of this one; none ordered."""

    age: int
    first: int
    second: int
    #: (access of first, access of second, kind)
    conflicts: tuple[tuple[Access, Access, HazardKind], ...]


class _Held(NamedTuple):
    age: int
    piece: int
    operation: int


class _State(NamedTuple):
    held: tuple[_Held, ...]
    #: lane → what operations issued on it from here on happen after
    known: tuple[tuple[str, int], ...]
    #: event → what a wait for it brings, launches since its record
    events: tuple[tuple[str, int, int], ...]
    #: `copy_done` of launches whose results are not processed
    results: tuple[int, ...]


class Step(NamedTuple):
    state: int
    unordered: tuple[Unordered, ...]
    #: operations that wait for a later record than theirs
    late: tuple[int, ...]


@dataclass(slots=True)
class Order:
    """Numbers pieces and states and remembers every step between states."""

    _pieces: list[Piece] = field(default_factory=list)
    _by_content: dict[Content, Piece] = field(default_factory=dict)
    _operations: dict[Operation, Operation] = field(default_factory=dict)
    _states: list[_State] = field(default_factory=lambda: [_State((), (), (), ())])
    _numbers: dict[_State, int] = field(default_factory=lambda: {_State((), (), (), ()): 0})
    _steps: dict[tuple[int, int], Step] = field(default_factory=dict)
    #: lists seen before, by identity; the list is kept, so that the identity stays its own
    _seen: dict[int, tuple[Sequence[Primitive], tuple[Piece, frozenset[int]] | None]] = field(
        default_factory=dict
    )

    def piece(self, primitives: Sequence[Primitive]) -> tuple[Piece, frozenset[int]] | None:
        """The piece of a list, and the indices of the primitives it wants timed, one an operation.

        None where the list neither accesses buffers nor orders anything.
        """
        seen = self._seen.get(id(primitives))
        if seen is None:
            seen = self._seen[id(primitives)] = (primitives, self._read(primitives))
        return seen[1]

    def _read(self, primitives: Sequence[Primitive]) -> tuple[Piece, frozenset[int]] | None:
        acts: list[tuple[Act, int, str, str]] = []
        operations: list[Operation] = []
        timed: list[int] = []
        read_done = False
        for i, p in enumerate(primitives):
            lane = p.stream or HOST
            named_wait = p.act is Act.SYNC and p.phase is Phase.PROCESS and p.event != RESULT_READY
            if p.reads or p.writes or named_wait:
                timed.append(i)
                accesses = [(parse_access(text), False) for text in p.reads]
                accesses += [(parse_access(text), True) for text in p.writes]
                acts.append((p.act, len(operations), lane, p.event or ""))
                operations.append(
                    Operation(
                        p.name, lane, p.phase, p.event or "", p.kind is Kind.COPY, tuple(accesses), read_done
                    )
                )
            elif p.act in (Act.RECORD, Act.WAIT, Act.SYNC):
                acts.append((p.act, -1, lane, p.event or ""))
            if p.act is Act.RECORD and p.event == READ_DONE:
                read_done = True
        if not acts:
            return None
        launches = any(p.act is Act.ENTER for p in primitives)
        return self._shared(Content(tuple(operations), tuple(acts), launches)), frozenset(timed)

    def _shared(self, content: Content) -> Piece:
        piece = self._by_content.get(content)
        if piece is None:
            accesses = [(op, access, writes) for op in content.operations for access, writes in op.accesses]
            ends = [
                access.high
                for op, access, writes in accesses
                if writes and op.phase is Phase.PREPARE and access.buffer == ALLOCATED_IN and access.high
            ]
            piece = Piece(
                len(self._pieces),
                tuple(self._numbered(op) for op in content.operations),
                content.acts,
                content.launches,
                by_row=any(access.by_row for _, access, _ in accesses),
                allocates_to=ends[-1] if ends else None,
            )
            self._pieces.append(piece)
            self._by_content[content] = piece
        return piece

    def _numbered(self, operation: Operation) -> Operation:
        numbered = replace(operation, number=len(self._operations))
        return self._operations.setdefault(operation, numbered)

    def step(self, state: int, piece: Piece) -> Step:
        """What running ``piece`` in ``state`` leads to, and the conflicts in it that nothing orders."""
        step = self._steps.get((state, piece.number))
        if step is None:
            if len(self._states) >= MOST_STATES:
                state = self._forget_all_but(state)
            step = self._steps[state, piece.number] = self._take(self._states[state], piece)
        return step

    def _forget_all_but(self, state: int) -> int:
        self._states = [self._states[state]]
        self._numbers = {self._states[0]: 0}
        self._steps.clear()
        return 0

    def _take(self, state: _State, piece: Piece) -> Step:
        held = [h._replace(age=h.age + 1) for h in state.held]
        known = dict(state.known)
        events = {name: (mask, age + piece.launches) for name, mask, age in state.events}
        results = list(state.results)
        #: launches since the one whose result this piece processes
        lag = 0
        if not piece.launches and results:
            events[RESULT_READY] = (results.pop(0), 0)
            lag = len(results)
        unordered: list[Unordered] = []
        late: list[int] = []
        for act, k, lane, event in piece.acts:
            before = known.get(lane, 0) | known.get(HOST, 0)
            if act is Act.RECORD:
                events[event] = (before, 0)
            elif act in (Act.WAIT, Act.SYNC):
                mask, age = events.get(event, (0, lag))
                waiter = lane if act is Act.WAIT else HOST
                known[waiter] = known.get(waiter, 0) | mask
                if k >= 0 and age < lag:
                    late.append(k)
            else:
                unordered += self._conflicts(piece, k, held, before)
                if lane != HOST:
                    known[lane] = before | 1 << len(held)
                    held.append(_Held(0, piece.number, k))
        if piece.launches:
            results.append(events.get(COPY_DONE, (0, 0))[0])
        return Step(self._number(held, known, events, results), tuple(unordered), tuple(late))

    def _conflicts(self, piece: Piece, k: int, held: list[_Held], before: int) -> list[Unordered]:
        out = []
        second = piece.operations[k]
        for bit, h in enumerate(held):
            if before >> bit & 1:
                continue
            first = (piece if h.piece == piece.number else self._pieces[h.piece]).operations[h.operation]
            conflicts = tuple(
                (a, b, _kind(first, a_writes, b_writes))
                for a, a_writes in first.accesses
                for b, b_writes in second.accesses
                if a.buffer == b.buffer and (a_writes or b_writes)
            )
            if conflicts:
                out.append(Unordered(h.age, h.operation, k, conflicts))
        return out

    def _number(
        self,
        held: list[_Held],
        known: dict[str, int],
        events: dict[str, tuple[int, int]],
        results: list[int],
    ) -> int:
        """The number of the state, with what the host knows of (or the horizon hides) dropped."""
        host = known.pop(HOST, 0)
        kept = [bit for bit, h in enumerate(held) if not host >> bit & 1 and h.age <= HORIZON]

        def packed(mask: int) -> int:
            return sum((mask >> bit & 1) << i for i, bit in enumerate(kept))

        state = _State(
            tuple(held[bit] for bit in kept),
            tuple(sorted((lane, packed(mask)) for lane, mask in known.items() if packed(mask))),
            tuple(sorted((name, packed(mask), min(age, 2)) for name, (mask, age) in events.items())),
            tuple(packed(mask) for mask in results),
        )
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
        return number


def _kind(first: Operation, first_writes: bool, second_writes: bool) -> HazardKind:
    if first_writes:
        return HazardKind.WRITE_AFTER_WRITE if second_writes else HazardKind.READ_BEFORE_PUBLISH
    return HazardKind.REUSE_BEFORE_COPY if first.copies else HazardKind.WRITE_AFTER_READ
