"""The modelled machine: one host thread, in-order streams, events. The only folder that imports simpy.

A stream needs no process: operations are enqueued in host order, so the end of each is known when it is launched
(a running maximum of its launch, the end of the one before it and the events its stream waits for). The host is a
process: it advances a local clock while it only works and launches, and yields to the event loop where it may
block or where it looks at the outside world. All times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import simpy

from sim.errors import WaitError
from sim.machine.costs import CostBook, CostedStep
from sim.program.events import never_recorded
from sim.program.primitives import WAKE, Act, Primitive
from sim.program.step_program import Mark
from sim.trace.record import CAUSES, HOST_LANE, Cause
from sim.trace.recorder import Recorder

_CODE = {cause: i for i, cause in enumerate(CAUSES)}
_LAUNCH_LAG, _PREFILL, _OTHER = _CODE[Cause.LAUNCH_LAG], _CODE[Cause.PREFILL], _CODE[Cause.OTHER]
_INHERIT = -1

FORWARD = 0
STREAMS = ("forward", "schedule", "copy", "d2h", "plan", "aux")
_STREAM = {name: i for i, name in enumerate(STREAMS)}


class EventState(NamedTuple):
    """The latest record of an event: when it is met, on which stream, what held that stream up, record serial."""

    time: int
    stream: int
    cause: int
    serial: int


#: bits of a primitive's mark: it defines the launch lead; a watcher wants its times
_LEAD, _TIMED = 1, 2
#: act of host work whose times a watcher wants, beside those of :class:`Act`
_TIMED_HOST = 6


class Watcher(Protocol):
    """Who checks what runs. Host work that names a stream enqueues there: its time is when that would run."""

    def piece(self, primitives: Sequence[Primitive]) -> tuple[Any, frozenset[int]] | None: ...
    def ran(self, piece: Any, times: Sequence[tuple[int, int]]) -> None: ...


@dataclass(slots=True)
class CompiledStep:
    """A primitive list ready to run: (act, index, stream, event, cause, mark) per primitive, and its costs."""

    code: list[tuple[int, int, int, str, int, int]]
    primitives: Sequence[Primitive]
    costs: CostedStep
    #: wakes with a cost of their own, ns by index
    wakes: dict[int, int]
    #: what the watcher calls this list; None: nobody watches
    piece: Any = None


@dataclass(slots=True)
class StepTimes:
    """What one launch leaves for the metrics; times in nanoseconds."""

    entered: int = 0  # host enters run_batch
    blocked: int = 0  # host time spent blocked until then, ns
    mark_issued: int = 0  # end of the launch of the marked (draft) operation
    mark_started: int = 0
    forward_before: int = 0  # end of the forward stream before this step


class Machine:
    """Executes compiled steps; see the module docstring for the rules.

    Attributes
    ----------
    now: host clock, ns. idle: idle time of the forward stream by cause index (``CAUSES``), ns.
    exposed: idle time of the forward stream that a late launch ended, ns. blocked: host time spent blocked, ns.
    free: end of the last operation of each stream, ns.
    """

    def __init__(
        self,
        env: simpy.Environment,
        costs: CostBook,
        recorder: Recorder | None = None,
        watcher: Watcher | None = None,
    ):
        self.env = env
        self.costs = costs
        self.recorder = recorder
        self.watcher = watcher
        self.now = 0
        self.free = [0] * len(STREAMS)
        self.idle = [0] * len(CAUSES)
        self.exposed = 0
        self.busy = 0
        self.blocked = 0
        self.times = StepTimes()
        self.forward_started: int | None = None
        self._floor = [0] * len(STREAMS)
        self._floor_cause = [_OTHER] * len(STREAMS)
        self._floor_link = [-1] * len(STREAMS)
        self._tail_cause = [_LAUNCH_LAG] * len(STREAMS)
        self._events: dict[str, EventState] = {}
        #: why the host last blocked, and how much of the delay no idle time has been given to yet, ns
        self._host_cause = _OTHER
        self._owed = 0
        self._wake = costs.scalar(WAKE, host=True)
        self._hop = costs.scalar("hop.cross_stream", host=False)
        self._launch = costs.scalar("hop.launch", host=False)

    # -- compiling ---------------------------------------------------------------------------------------

    def compile(
        self,
        primitives: Sequence[Primitive],
        batch: int,
        padded: int,
        block_size: int,
        tokens: int | None = None,
        prefill: bool = False,
    ) -> CompiledStep:
        """Prepares a list for :meth:`run`; in a prefill every idle cause is `prefill`."""
        marked = _marked(primitives)
        watched = None if self.watcher is None else self.watcher.piece(primitives)
        piece, timed = watched or (None, frozenset[int]())
        code = []
        for i, p in enumerate(primitives):
            cause = _INHERIT if p.cause is None else _CODE[p.cause]
            if prefill and p.cause is not Cause.COPY_DONE:  # the wait for a result belongs to its processing
                cause = _PREFILL
            stream = -1 if p.stream is None else _STREAM[p.stream]
            mark = (_LEAD if i == marked else 0) | (_TIMED if i in timed else 0)
            act = _TIMED_HOST if p.act is Act.HOST and i in timed else int(p.act)
            code.append((act, i, stream, p.event or "", cause, mark))
        costs = self.costs.compile(primitives, batch, padded, block_size, tokens)
        return CompiledStep(code, primitives, costs, self.costs.wakes(primitives, batch), piece)

    # -- running -----------------------------------------------------------------------------------------

    def run(self, step: CompiledStep, context: float, iteration: int) -> Generator[simpy.Event, None, None]:
        """Executes a step: host work and launches in order; blocks where a synchronisation is not met.

        Raises :class:`WaitError` when the program waits for an event that was never recorded.
        """
        durations = self.costs.draw(step.costs, context, iteration)
        n = len(step.code)
        free, floor, floor_cause, tail_cause = self.free, self._floor, self._floor_cause, self._tail_cause
        events, idle, launch_latency, hop = self._events, self.idle, self._launch, self._hop
        recorder = self.recorder
        timed: list[tuple[int, int]] = []
        now = self.now
        for act, i, s, name, cause, mark in step.code:
            before = now
            if act == 1:  # LAUNCH
                now += durations[i]
                end_before = free[s]
                start = now + launch_latency
                why = cause
                if cause == _INHERIT:
                    why = self._host_cause if self._owed else _LAUNCH_LAG
                if end_before >= start:
                    start, why = end_before, tail_cause[s]
                if floor[s] > start:
                    start = floor[s]
                    why = floor_cause[s] if cause == _INHERIT else cause
                if s == FORWARD:
                    if self.forward_started is None:
                        self.forward_started = start
                    elif start > end_before:
                        late = start - end_before
                        if start == now + launch_latency:
                            self.exposed += late
                            if cause == _INHERIT:
                                owed = min(late, self._owed)
                                self._owed -= owed
                                idle[self._host_cause] += owed
                                late -= owed
                                idle[_LAUNCH_LAG] += late
                            else:
                                idle[why] += late
                        else:
                            idle[why] += late
                    self.busy += durations[n + i]
                free[s] = end = start + durations[n + i]
                tail_cause[s] = why
                if mark:
                    if mark & _LEAD and s == FORWARD:
                        times = self.times
                        times.mark_issued, times.mark_started = now, start
                        times.forward_before = end_before
                    if mark & _TIMED:
                        timed.append((start, end))
                if recorder is not None:
                    self._record_launch(
                        recorder, step.primitives[i], before, now, start, end, end_before, why
                    )
            elif act == 0:  # HOST
                now += durations[i]
                if recorder is not None:
                    self._record_host(recorder, step.primitives[i], before, now)
            elif act == 2:  # RECORD
                now += durations[i]
                tail, why = free[s], tail_cause[s]
                if floor[s] > tail:
                    tail, why = floor[s], floor_cause[s]
                serial = -1
                if recorder is not None:
                    serial = self._record_event(recorder, step.primitives[i], before, now, tail)
                events[name] = EventState(tail, s, why, serial)
            elif act == 3:  # WAIT
                now += durations[i]
                event = events.get(name)
                if event is None:
                    raise _unmet(step.primitives[i])
                met = event.time + hop if event.stream != s else event.time
                if met > floor[s]:
                    floor[s] = met
                    floor_cause[s] = event.cause if cause == _INHERIT else cause
                if recorder is not None:
                    self._record_wait(recorder, step.primitives[i], before, now, met, event.serial)
            elif act == 4:  # SYNC
                event = events.get(name)
                if event is None:
                    raise _unmet(step.primitives[i])
                if event.time > now:
                    wake = step.wakes.get(i, self._wake)
                    yield self.env.timeout(event.time + wake - self.env.now)
                    self.blocked += event.time - now
                    self._owed = int(self.env.now) - now
                    now = int(self.env.now)
                    self._host_cause = cause if cause != _INHERIT else event.cause
                else:
                    now += durations[i]
                if mark:
                    timed.append((before, now))
                if recorder is not None:
                    self._record_sync(recorder, step.primitives[i], before, now, event.serial)
            elif act == 5:  # ENTER
                self.times.entered = now
                self.times.blocked = self.blocked
            else:  # HOST, timed
                now += durations[i]
                at = now if s < 0 else max(now, free[s], floor[s])
                timed.append((before if s < 0 else at, at))
                if recorder is not None:
                    self._record_host(recorder, step.primitives[i], before, now)
        self.now = now
        if step.piece is not None and self.watcher is not None:
            self.watcher.ran(step.piece, timed)

    def event(self, name: str) -> EventState:
        """The latest record of ``name``, to be bound again when its turn comes (see :meth:`bind`).

        Raises :class:`WaitError` when there is none.
        """
        state = self._events.get(name)
        if state is None:
            raise never_recorded("result.synchronize (process)", name)
        return state

    def bind(self, name: str, state: EventState) -> None:
        """Makes ``name`` mean an earlier record: how the loop refers to the previous iteration's result."""
        self._events[name] = state

    def catch_up(self) -> Generator[simpy.Event, None, None]:
        """Lets the outside world reach the host's clock before the host looks at it."""
        if self.now > self.env.now:
            yield self.env.timeout(self.now - self.env.now)

    def wait_for_work(self, arrival: simpy.Event) -> Generator[simpy.Event, None, None]:
        """The host has nothing to do until something arrives; idle time from here on is nobody's fault."""
        yield arrival
        self._owed = int(self.env.now) - self.now
        self.blocked += self._owed
        self.now = int(self.env.now)
        self._host_cause = _OTHER

    # -- records -----------------------------------------------------------------------------------------

    def _record_launch(
        self,
        recorder: Recorder,
        p: Primitive,
        before: int,
        now: int,
        start: int,
        end: int,
        idle_from: int,
        why: int,
    ) -> None:
        recorder.add(p.name, p.phase, "launch", HOST_LANE, before, now, now, event=str(p.kind))
        cause = str(CAUSES[why]) if start > idle_from else ""
        s = _STREAM[p.stream or ""]
        link, self._floor_link[s] = self._floor_link[s], -1
        recorder.add(
            p.name, p.phase, str(p.kind), p.stream or "", start, end, now, "", link, cause, p.reads, p.writes
        )

    def _record_host(self, recorder: Recorder, p: Primitive, before: int, now: int) -> None:
        recorder.add(p.name, p.phase, "host", HOST_LANE, before, now, now, reads=p.reads, writes=p.writes)

    def _record_event(self, recorder: Recorder, p: Primitive, before: int, now: int, tail: int) -> int:
        recorder.add(p.name, p.phase, "record", HOST_LANE, before, now, now, event=p.event or "")
        return recorder.add(p.name, p.phase, "event", p.stream or "", tail, tail, now, event=p.event or "")

    def _record_wait(
        self, recorder: Recorder, p: Primitive, before: int, now: int, met: int, link: int
    ) -> None:
        self._floor_link[_STREAM[p.stream or ""]] = link
        recorder.add(p.name, p.phase, "wait", HOST_LANE, before, now, now, event=p.event or "", link=link)

    def _record_sync(self, recorder: Recorder, p: Primitive, before: int, now: int, link: int) -> None:
        recorder.add(
            p.name, p.phase, "synchronize", HOST_LANE, before, now, now, event=p.event or "", link=link
        )


def _unmet(p: Primitive) -> WaitError:
    return never_recorded(f"{p.name} ({p.phase})", p.event or "")


def _marked(primitives: Sequence[Primitive]) -> int:
    """Index of the launch that defines the launch lead: the draft, else the target, else the first forward one."""
    for wanted in (Mark.DRAFT, Mark.TARGET):
        for i, p in enumerate(primitives):
            if p.act is Act.LAUNCH and wanted in p.marks:
                return i
    return next((i for i, p in enumerate(primitives) if p.act is Act.LAUNCH and p.stream == "forward"), -1)
