"""What every worker has: a target model, static graph inputs, verification; and what each must say and do.

A worker declares :class:`~sim.capabilities.Capabilities` and the operations of its step program; the loops,
the relay and the barrier read nothing else. Static inputs and outputs of graphs are allocated once, for the
largest graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from gpu_validation.device.backend import Backend, Graph, Stream
from gpu_validation.observe.sections import Lap
from gpu_validation.runtime.future_map import Field
from gpu_validation.runtime.model import (
    AttentionPlan,
    KVCache,
    LanguageModel,
    Weights,
    rope_table,
)
from gpu_validation.runtime.pool import RequestPool
from gpu_validation.runtime.shapes import ModelShape
from gpu_validation.runtime.step import Places, Step
from sim.capabilities import Capabilities
from sim.program.step_program import Kind, Mark, Operation, Phase, Speculation, StreamName


@dataclass(frozen=True)
class Setting:
    """Everything a worker is built from.

    ``graph_batches``: batch sizes a graph is captured for; the last bounds the batch. ``temperature``: 0
    verifies greedily, otherwise against keyed samples of the target's distribution.
    """

    backend: Backend
    kernels: ModuleType
    shape: ModelShape
    pool: RequestPool
    slots: int
    graph_batches: tuple[int, ...]
    block: int
    temperature: float
    seed: int

    @property
    def batch(self) -> int:
        return self.graph_batches[-1]


class BlockInputs:
    """Static inputs of a graph over blocks of ``block`` positions, filled by a metadata launch before each
    replay.
    """

    def __init__(self, setting: Setting, block: int):
        device, batch = setting.backend.device, setting.batch
        self.block = block
        self._setting = setting
        self.rows = torch.full((batch,), setting.pool.rows, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)
        self.positions = torch.zeros(batch * block, dtype=torch.int32, device=device)
        self.slots = torch.zeros(batch * block, dtype=torch.int32, device=device)
        self.table = torch.zeros(batch, setting.pool.width, dtype=torch.int32, device=device)

    def fill(self, step: Step) -> None:
        """Enqueue the metadata launch: reads ``req_to_token`` of the step's rows."""
        s = self._setting
        s.backend.launch(
            s.kernels.block_metadata,
            step.pool_rows,
            step.lengths,
            s.pool.req_to_token,
            step.rows,
            step.padded,
            self.block,
            step.width,
            self.rows,
            self.lengths,
            self.positions,
            self.slots,
            self.table,
        )

    def plan(self, batch: int, causal: bool) -> AttentionPlan:
        tokens = batch * self.block
        return AttentionPlan(
            self.positions[:tokens],
            self.slots[:tokens],
            self.table[:batch],
            self.lengths[:batch],
            self.block,
            causal,
        )


@dataclass(frozen=True)
class Prompts:
    """A prefill on the device. Prompts stand side by side, padded on the right to the longest."""

    requests: int
    ids: Tensor  # [requests·length] int64
    positions: Tensor  # [requests·length] int32
    slots: Tensor  # [requests·length] int32: where K and V go; 0 where padded or cached already
    reads: Tensor  # [requests·length] int32: where they are read; 0 where padded
    last: Tensor  # [requests] int64: index of each prompt's last token
    pool_rows: Tensor  # [requests] int32
    lengths: Tensor  # [requests] int32


class Worker(ABC):
    """One algorithm. ``block``: positions verified a row; ``block − 1`` drafts."""

    name: str
    #: "none", "chain" or "block", as in step programs
    kind: str
    capabilities: Capabilities
    fields: tuple[Field, ...]
    #: whether the drafter is conditioned on outputs of the target's layers
    uses_taps = False

    def __init__(self, setting: Setting, lap: Lap, places: Places):
        self.setting, self.block = setting, setting.block
        self.lap, self.places = lap, places
        backend, shape = setting.backend, setting.shape
        device, batch, block = backend.device, setting.batch, setting.block
        self.kernels = setting.kernels
        self.taps = shape.taps if self.uses_taps else ()
        self.rope = rope_table(shape, setting.pool.width + block, device)
        self.weights = Weights(shape, device, setting.seed)
        self.cache = KVCache(shape, shape.layers, setting.slots, device)
        self.target = LanguageModel(shape, self.weights, self.cache, self.kernels, self.rope)
        self.verify = BlockInputs(setting, block)
        self.block_ids = torch.zeros(batch * block, dtype=torch.int64, device=device)
        self.answers = torch.zeros(batch * block, dtype=torch.int64, device=device)
        self.hidden = torch.zeros(batch * block, shape.hidden, dtype=shape.dtype, device=device)
        self.tapped = torch.zeros(
            batch * block, len(self.taps) * shape.hidden, dtype=shape.dtype, device=device
        )
        self.new_lengths = torch.zeros(batch, dtype=torch.int32, device=device)
        self.result = torch.zeros(batch, block + 1, dtype=torch.int32, device=device)
        self.bonus = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        self._build()

    # -- to be supplied ----------------------------------------------------------------------------------

    def _build(self) -> None:  # noqa: B027 (a worker without a drafter has nothing to build)
        """Drafter weights and static buffers."""

    @abstractmethod
    def capture(self, stream: Stream) -> None:
        """Capture every graph for every batch size."""

    @abstractmethod
    def forward(self, step: Step) -> None:
        """Enqueue one decode step on the current (forward) stream, announcing places as they are passed."""

    @abstractmethod
    def relayed(self) -> dict[str, Tensor]:
        """Field name to static output, valid after the forward."""

    @abstractmethod
    def operations(self) -> list[Operation]:
        """Operations of the forward phase in launch order, as a step program has them."""

    def after_prefill(  # noqa: B027 (a worker without a drafter has nothing to fill)
        self, prompts: Prompts, hidden: Tensor, tapped: Tensor
    ) -> None:
        """Fill the drafter's cache and fields; ``hidden`` [T, hidden], ``self.bonus`` holds the first
        tokens.
        """

    # -- shared ------------------------------------------------------------------------------------------

    def bind(self, lap: Lap, places: Places) -> None:
        """Use the observer and the policies of another run; graphs and weights stay."""
        self.lap, self.places = lap, places

    def speculation(self) -> Speculation:
        drafts = self.block - 1
        return Speculation.model_validate(
            {
                "kind": self.kind,
                "block_size": self.block,
                "min_block_size": self.block,
                "max_block_size": self.block,
                **({"draft_steps": drafts, "topk": 1} if self.kind == "chain" else {}),
            }
        )

    def graphs(self, stream: Stream, body: Callable[[int], None]) -> dict[int, Graph]:
        """``body(batch)`` captured for every graph batch, the largest first so that the others fit its
        memory.
        """
        captured = {}
        for batch in reversed(self.setting.graph_batches):
            captured[batch] = self.setting.backend.capture(partial(body, batch), stream)
        return captured

    def verify_forward(self, batch: int) -> None:
        """Target forward over ``block_ids``; fills ``answers``, ``hidden`` and ``tapped``."""
        tokens = batch * self.block
        x = self.target.embed(self.block_ids[:tokens])
        hidden = self.target.decoder.forward(
            x, self.verify.plan(batch, causal=True), self.taps, self.tapped[:tokens]
        )
        self.hidden[:tokens].copy_(hidden)
        self._choose(
            self.target.logits(hidden),
            self.verify.rows[:batch],
            self.verify.lengths[:batch],
            self.block,
            self.answers[:tokens],
        )

    def accept(self, batch: int) -> None:
        """Greedy or sampled answers against the drafts; fills ``new_lengths``, ``result`` and ``bonus``."""
        pool = self.setting.pool
        self.kernels.force_and_accept(
            self.answers,
            self.block_ids,
            self.verify.rows,
            self.verify.lengths,
            pool.prompt_lengths,
            pool.forced,
            self.setting.shape.vocab,
            batch,
            self.block,
            self.new_lengths,
            self.result,
            self.bonus,
        )

    def _choose(self, logits: Tensor, rows: Tensor, lengths: Tensor, block: int, out: Tensor) -> None:
        """The target's token after each position: the likeliest, or a sample keyed by (request, token
        position).

        Drafts are point proposals, so "the sample equals the draft" accepts a draft with exactly its
        probability and leaves exactly the residual distribution otherwise: comparing samples is speculative
        sampling.
        """
        if self.setting.temperature == 0:
            torch.argmax(logits, dim=-1, out=out)
            return
        pool = self.setting.pool
        row = rows.long()
        first = lengths - pool.prompt_lengths[row] + 1
        at = first[:, None] + torch.arange(block, device=out.device)[None, :]
        u = pool.uniforms[row[:, None], at.clamp(0, pool.outputs - 1).long()].view(-1, 1)
        cumulative = (logits.float() / self.setting.temperature).softmax(-1).cumsum(-1)
        index = torch.searchsorted(cumulative, u * cumulative[:, -1:])
        out.copy_(index.squeeze(1).clamp_(max=logits.shape[-1] - 1))

    def prefill(self, prompts: Prompts) -> None:
        """Target and drafter over whole prompts, eagerly; fills the static outputs of ``requests`` rows."""
        n = prompts.requests
        x = self.target.embed(prompts.ids)
        tapped = x.new_empty(x.shape[0], len(self.taps) * self.setting.shape.hidden)
        hidden = self.target.decoder.prefill(
            x, n, prompts.positions, prompts.slots, prompts.reads, self.taps, tapped
        )
        first = torch.empty(n, dtype=torch.int64, device=x.device)
        # The first generated token stands at token position 0: one before that of a step at the prompt's
        # length.
        self._choose(
            self.target.logits(hidden[prompts.last]), prompts.pool_rows, prompts.lengths - 1, 1, first
        )
        self.bonus[:n, 0] = first
        self.result[:n, 0] = first.int()
        self.result[:n, self.block] = 1
        self.new_lengths[:n] = prompts.lengths
        self.after_prefill(prompts, hidden, tapped)


def kernel(name: str, **more: object) -> Operation:
    return _operation(name, Kind.KERNEL, **more)


def graph(name: str, **more: object) -> Operation:
    return _operation(name, Kind.GRAPH, **more)


def stash(name: str) -> Operation:
    return _operation(name, Kind.STASH)


def publish() -> Operation:
    return _operation("publish", Kind.PUBLISH, writes=("future_map.new_seq_lens[rows]",))


def _operation(name: str, kind: Kind, **more: object) -> Operation:
    """One operation of the forward phase, with host and device costs named after it."""
    return Operation.model_validate(
        {
            "phase": Phase.FORWARD,
            "name": name,
            "kind": kind,
            "stream": StreamName.FORWARD,
            "cost": name,
            "host": f"host.{name}",
            **more,
        }
    )


LAST_SHARED_READ = (Mark.LAST_SHARED_READ,)
FIRST_USE = (Mark.FIRST_USE_OF_HOST_LENGTHS,)
