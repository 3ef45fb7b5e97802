"""Races on the device: does a policy let a recycled request row be rewritten under a forward that still reads it?

What makes one bite: a request pool as small as the concurrency, so that a finished request's row is taken at once;
new prompts that begin with a long cached prefix, longer than the finished request ever was; a drafter much longer
than its target, so that verification reads the row late. The forward that still carries the finished request then
writes keys and values to slots of the cached prefix, and every later request that begins with it goes on from wrong
context.

Three observers. After every forward the slots that verification used are kept and compared with those the host had
given the row when the forward was launched: a read is torn where they differ. The tokens of every request are
compared with a run in which the host waits for the device after every launch, so that nothing can overtake anything.
And for every row taken over in flight the device's clock says by how much the write came after the read
(:class:`TakenOver`), beside how fast the host was just then.

Clients are no part of what is timed: their requests are made before the run, since making one takes the host as long
as preparing a short prompt, between seeing a finish and rewriting the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import torch

from gpu_validation import settings
from gpu_validation.configurations import CONFIGURATIONS, SAFE, policies_of
from gpu_validation.loops import run
from gpu_validation.observe.host_state import HostState
from gpu_validation.observe.sections import RUN_BATCH, SectionLog
from gpu_validation.runtime.build import Built, tokens_of
from gpu_validation.runtime.host_work import HostWork
from gpu_validation.runtime.server import RunOptions, Server
from gpu_validation.runtime.step import Step
from sim.program.step_program import Phase
from sim.serving.request import Batch, Request
from sim.serving.workload import Workload
from sim.units import NS_PER_US

Say = Callable[[str], None]
#: configurations that need not be shown safe run so many times fewer requests
FEWER = 8
#: the write and the read that race: a new request's row, and the page table of the verification
WRITE, READ = "prefill.assign", "verify.metadata"
#: ends when the host has seen a result; the section of its own in which a timing event was recorded
SEEN, WATCHED = "result.synchronize", "watch"


@dataclass(frozen=True)
class Run:
    """One run: ``held_us`` more host work on each result delays the rewriting of the row."""

    configuration: str
    requests: int
    held_us: float = 0.0

    @property
    def name(self) -> str:
        return self.configuration + (f"-held{self.held_us:g}" if self.held_us else "")


def race_runs(load: settings.RaceLoad) -> list[Run]:
    """Every overlapped configuration, and the unguarded one with the rewriting later and later; the short runs, which
    show what a race looks like here, before the long ones, which show none."""
    overlapped = [name for name, keys in CONFIGURATIONS.items() if keys.get("overlap", True)]
    fewer = load.requests // FEWER
    return [
        *(Run(name, fewer) for name in overlapped if name not in SAFE),
        *(Run("unguarded", fewer, held) for held in load.held_us),
        *(Run(name, load.requests) for name in overlapped if name in SAFE),
    ]


class Made(Workload):
    """The same requests, made beforehand; for one run."""

    def __init__(self, workload: Workload):
        self.requests = workload.requests
        self._made = [workload.make(index) for index in range(workload.requests)]

    def make(self, index: int) -> Request:
        return self._made[index]


@dataclass(frozen=True)
class TakenOver:
    """A row that a prefill took over while a forward that carries its former owner may be running.

    ``rows``: of that forward. ``forward_us``: what the host took to launch the operations of its forward phase, by
    which its pace is known (they lie before what races). ``rows_us``: the section that prepares the new prompt.
    ``host_us``: from the end of the wait for the result that finished the former owner to the end of the launch of
    the write. ``margin_us``: on the device's clock, from the end of the read to the end of the write; below zero the
    write came first. ``torn``: the read saw other slots than those given.
    """

    rows: int
    prompt: int
    forward_us: float
    rows_us: float
    host_us: float
    margin_us: float
    torn: bool


@dataclass(frozen=True)
class _Taken:
    """What a run remembers of a :class:`TakenOver`: the decode step and the row's place in it, timing events of the
    read and the write, and where the section log stood."""

    step: int
    place: int
    prompt: int
    read: Any
    write: Any
    laps: int


class WatchedServer(Server):
    """Keeps the page table of every row that verification used, and times reads and writes that may race.
    ``serial``: the host waits for the device after every launch."""

    def __init__(self, built: Built, run: Run, load: settings.RaceLoad, serial: bool = False):
        options = RunOptions(
            load.concurrency,
            prefill_tokens=1,  # one request a prefill
            work=HostWork(process_us=run.held_us),
            shared_prefix=load.prefix,
        )
        policies = policies_of(CONFIGURATIONS[run.configuration])
        work = Made(load.workload(built.setting.block, run.requests))
        self._log = SectionLog()
        self._end_section = self._log.lap()
        self._read: Any = None
        self._write: Any = None
        self._taken: list[_Taken] = []
        super().__init__(built.worker, policies, work, options, built.streams, self._watched_lap)
        self._forward = {op.name for op in built.worker.operations() if op.phase is Phase.FORWARD}
        self._serial = serial
        self._source, self._block = built.worker.verify, built.setting.block
        # Every step of a full batch commits a token a row at least.
        most = run.requests * (max(load.outputs) + 2) // load.concurrency + load.concurrency * max(
            load.outputs
        )
        device, rows = built.backend.device, load.concurrency
        self._tables = torch.zeros(most, rows, built.setting.pool.width, dtype=torch.int32, device=device)
        self._lengths = torch.zeros(most, rows, dtype=torch.int32, device=device)
        #: slots by position of each row of each decode step when it was launched
        self._given: list[list[list[int]]] = []

    def _watched_lap(self, name: str) -> None:
        """Timing events right behind the read and the write that may race, in a section of their own."""
        self._end_section(name)
        if name == READ:
            self._read = self._marked(self.streams.forward)
        elif name == WRITE:
            self._write = self._marked(self.streams.schedule)

    def _marked(self, stream: Any) -> Any:
        event = self.backend.event(timing=True)
        event.record(stream)
        self._end_section(WATCHED)
        return event

    def _prefill(self, batch: Batch) -> Step:
        before = self.launches[-1] if self.launches else None
        step = super()._prefill(batch)
        if before is not None and not before.prefill:
            for request in batch.requests:
                if request.row in before.rows:
                    self._taken.append(
                        _Taken(
                            len(self._given) - 1,
                            before.rows.index(request.row),
                            request.prompt_tokens,
                            self._read,
                            self._write,
                            len(self._log.laps),
                        )
                    )
        return step

    def _decode(self, batch: Batch) -> Step:
        step = super()._decode(batch)
        at = len(self._given)
        self._given.append([self.allocator.positions(row) for row in step.host_rows])
        self.backend.launch(self._keep, at, step.rows)
        return step

    def _keep(self, at: int, rows: int) -> None:
        """On the forward stream, behind the forward."""
        self._tables[at, :rows].copy_(self._source.table[:rows])
        self._lengths[at, :rows].copy_(self._source.lengths[:rows])

    def launch(self, batch: Batch) -> Step:
        step = super().launch(batch)
        if self._serial:
            self.backend.synchronize()
        return step

    def torn(self) -> set[tuple[int, int]]:
        """Decode steps and places in them whose verification read other slots than those given; call when the run is
        over."""
        found = set()
        for step, rows in enumerate(self._given):
            tables, lengths = self._tables[step].cpu().numpy(), self._lengths[step].tolist()
            for i, given in enumerate(rows):
                end = lengths[i] + self._block
                if tables[i, :end].tolist() != given[:end]:
                    found.add((step, i))
        return found

    def taken_over(self, torn: set[tuple[int, int]]) -> list[TakenOver]:
        """Rows taken over in flight, in order; call when the run is over."""
        return [self._taken_over(taken, (taken.step, taken.place) in torn) for taken in self._taken]

    def _taken_over(self, taken: _Taken, torn: bool) -> TakenOver:
        """Goes back through the sections from the prefill to the launch of the decode before it."""
        laps, k = self._log.laps, taken.laps - 1
        while laps[k][0] != WRITE:
            k -= 1
        written, rows_ns, forward_ns, seen = laps[k][1], 0, 0, 0
        while laps[k][0] != RUN_BATCH:
            name, ended = laps[k]
            took = ended - laps[k - 1][1]
            if name == "prefill.rows":
                rows_ns = took
            elif name == SEEN:
                seen = ended
            elif name in self._forward:
                forward_ns += took
            k -= 1
        return TakenOver(
            len(self._given[taken.step]),
            taken.prompt,
            round(forward_ns / NS_PER_US, 2),
            round(rows_ns / NS_PER_US, 2),
            round((written - seen) / NS_PER_US, 2) if seen else 0.0,
            round(taken.read.elapsed_time(taken.write) * 1e3, 2),
            torn,
        )


class Races:
    """Race runs of one built worker against one reference."""

    def __init__(self, built: Built, load: settings.RaceLoad):
        self._built, self._load = built, load
        self._reference = _served(built, Run("unified_none", load.requests), load, serial=True)

    def measure(self, asked: Run, host: HostState, say: Say) -> dict[str, Any]:
        host.settle()
        server = _served(self._built, asked, self._load)
        expected = tokens_of(self._reference)
        wrong = sum(t != expected[i] for i, t in enumerate(tokens_of(server)))
        torn = server.torn()
        taken = [list(asdict(t).values()) for t in server.taken_over(torn)]
        found = {
            **asdict(asked),
            "steps": sum(not launched.prefill for launched in server.launches),
            "recycled": _recycled(server),
            "torn": len(torn),
            "wrong_requests": wrong,
            "taken_over": {"columns": [f.name for f in fields(TakenOver)], "rows": taken},
        }
        say(
            f"{asked.name}: {found['steps']} steps, {found['recycled']} rows taken over in flight, {found['torn']} "
            f"torn reads, {wrong} of {asked.requests} requests wrong"
        )
        return found


def _served(built: Built, asked: Run, load: settings.RaceLoad, serial: bool = False) -> WatchedServer:
    server = WatchedServer(built, asked, load, serial)
    run(server)
    return server


def _recycled(server: Server) -> int:
    """Rows that a prefill took over while the decode launched just before still carried their former owner."""
    return sum(
        len(set(before.rows) & set(after.rows))
        for before, after in pairwise(server.launches)
        if after.prefill and not before.prefill
    )
