"""Races on the device: does a policy let a recycled request row be rewritten under a forward that still reads it?

What makes one bite: a request pool as small as the concurrency, so that a finished request's row is taken at once;
new prompts that begin with a long cached prefix, longer than the finished request ever was; a drafter much longer
than its target, so that verification reads the row late. The forward that still carries the finished request then
writes keys and values to slots of the cached prefix, and every later request that begins with it goes on from wrong
context.

Two observers: after every forward the slots that verification used are kept and compared with those the host had
given the row when the forward was launched; and the tokens of every request are compared with a run in which the host
waits for the device after every launch, so that nothing can overtake anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from gpu_validation import settings
from gpu_validation.configurations import CONFIGURATIONS, SAFE, policies_of
from gpu_validation.loops import run
from gpu_validation.observe.host_state import HostState
from gpu_validation.observe.sections import SectionLog
from gpu_validation.runtime.build import Built, tokens_of
from gpu_validation.runtime.host_work import HostWork
from gpu_validation.runtime.server import RunOptions, Server
from gpu_validation.runtime.step import Step
from sim.serving.request import Batch

Say = Callable[[str], None]
#: configurations that need not be shown safe run so many times fewer requests
FEWER = 8


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


class WatchedServer(Server):
    """Keeps the page table of every row that verification used. ``serial``: the host waits for the device after every
    launch."""

    def __init__(self, built: Built, run: Run, load: settings.RaceLoad, serial: bool = False):
        options = RunOptions(
            load.concurrency,
            prefill_tokens=1,  # one request a prefill
            work=HostWork(process_us=run.held_us),
            shared_prefix=load.prefix,
        )
        policies = policies_of(CONFIGURATIONS[run.configuration])
        work = load.workload(built.setting.block, run.requests)
        super().__init__(built.worker, policies, work, options, built.streams, SectionLog().lap())
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

    def torn(self) -> int:
        """Rows that verification read with other slots than those given; call when the run is over."""
        count = 0
        for step, rows in enumerate(self._given):
            tables, lengths = self._tables[step].cpu().numpy(), self._lengths[step].tolist()
            for i, given in enumerate(rows):
                end = lengths[i] + self._block
                count += tables[i, :end].tolist() != given[:end]
        return count


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
        found = {
            **asdict(asked),
            "steps": sum(not launched.prefill for launched in server.launches),
            "recycled": _recycled(server),
            "torn": server.torn(),
            "wrong_requests": wrong,
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
