"""The compiled steps a loop runs, by what the iteration is like; shared by both loops."""

from __future__ import annotations

from sim import relay
from sim.machine.machine import CompiledStep, Machine
from sim.program.expand import Expander, Iteration
from sim.program.policies import Situation
from sim.serving.request import Batch


class Steps:
    """Caches expansion by situation and compilation by (situation, batch, tokens)."""

    def __init__(self, machine: Machine, expander: Expander, graph_batches: tuple[int, ...], block_size: int):
        self._machine = machine
        self._expander = expander
        self._graphs = sorted(graph_batches)
        self._block_size = block_size
        self._expanded: dict[Situation, Iteration] = {}
        self._compiled: dict[tuple[Situation, int, int, str], CompiledStep] = {}
        self._read_end_recorded = False
        self._fence_recorded = False

    def situation(self, batch: Batch) -> Situation:
        """What this iteration is like, given what the previous forward recorded."""
        gathered = relay.gathers(self._expander.policies.relay, batch.carry_valid)
        return Situation(
            prefill=batch.prefill,
            filtered=batch.filtered,
            merged=batch.merged,
            gathered=gathered,
            read_end_recorded=self._read_end_recorded,
            fence_recorded=self._fence_recorded,
        )

    def launched(self, batch: Batch) -> None:
        """Remembers what the forward just launched leaves behind for the next iteration's waits."""
        self._read_end_recorded = not batch.prefill and self._expander.records_read_end
        self._fence_recorded = not batch.prefill and self._expander.records_fence

    def receive(self) -> CompiledStep:
        return self._get(Situation(), "receive", 1, None)

    def launch(self, situation: Situation, batch: Batch) -> CompiledStep:
        return self._get(situation, "launch", batch.size, batch)

    def process(self, situation: Situation, batch: Batch) -> CompiledStep:
        return self._get(situation, "process", batch.size, batch)

    def _padded(self, batch: int) -> int:
        return next((g for g in self._graphs if g >= batch), batch)

    def _get(self, situation: Situation, piece: str, size: int, batch: Batch | None) -> CompiledStep:
        prefill = situation.prefill
        tokens = batch.prompt_tokens if batch is not None and prefill else 0
        key = (situation, size, tokens, piece)
        step = self._compiled.get(key)
        if step is None:
            iteration = self._expanded.get(situation)
            if iteration is None:
                iteration = self._expanded[situation] = self._expander.expand(situation)
            step = self._machine.compile(
                getattr(iteration, piece),
                size,
                self._padded(size),
                self._expander.program.speculation.block_at(size, self._block_size),
                tokens if prefill else None,
                prefill,
            )
            self._compiled[key] = step
        return step
