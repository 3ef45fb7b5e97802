"""A chain drafter: one small layer run token by token on (next token, hidden state) pairs, as EAGLE does.

After verification the drafter catches up on the committed tokens (*extend*), which also yields the first
draft of the next step; the remaining drafts are one graph. Relayed: the last committed token and the first
draft, and the drafter's hidden state.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from gpu_validation.device.backend import Stream
from gpu_validation.runtime.future_map import Field
from gpu_validation.runtime.model import AttentionPlan, Decoder, KVCache
from gpu_validation.runtime.step import Step
from gpu_validation.spec.base import (
    FIRST_USE,
    LAST_SHARED_READ,
    BlockInputs,
    Prompts,
    Worker,
    graph,
    kernel,
    publish,
    stash,
)
from sim.capabilities import Capabilities, Carry, HostLengthNeed, LengthSource, ReadEnd
from sim.program.step_program import Mark, Operation


class ChainDrafter(Worker):
    name = "eagle"
    kind = "chain"
    capabilities = Capabilities(
        length_source=LengthSource.PUBLISHED,
        host_length_need=HostLengthNeed.NONE,
        relay_schema=("tokens", "state"),
        carry=Carry.BY_ROW,
        read_end=ReadEnd.PRE_REPLAY,
    )

    def _build(self) -> None:
        setting, shape = self.setting, self.setting.shape
        device, batch = setting.backend.device, setting.batch
        self.fields = (Field("tokens", 2, torch.int64), Field("state", shape.hidden, shape.dtype))
        cache = KVCache(shape, 1, setting.slots, device)
        self.drafter = Decoder(shape, 1, self.weights, cache, self.kernels, self.rope)
        self.fuse = self.weights.matrix(shape.hidden, 2 * shape.hidden)
        self.draft = BlockInputs(setting, self.block)
        self.tokens_in = torch.zeros(batch, 2, dtype=torch.int64, device=device)
        self.state_in = torch.zeros(batch, shape.hidden, dtype=shape.dtype, device=device)
        self.tokens_out = torch.zeros_like(self.tokens_in)
        self.state_out = torch.zeros_like(self.state_in)

    def capture(self, stream: Stream) -> None:
        self._draft = self.graphs(stream, self._draft_body)
        self._verify = self.graphs(stream, self._verify_body)
        self._extend = self.graphs(stream, self._extend_body)

    def _fused(self, ids: Tensor, states: Tensor) -> Tensor:
        return linear(torch.cat([self.target.embed(ids), states], dim=-1), self.fuse)

    def _draft_body(self, batch: int) -> None:
        """From the first draft to all of them, one position at a time; fills the block to verify."""
        block = self.block_ids[: batch * self.block].view(batch, self.block)
        block[:, :2] = self.tokens_in[:batch]
        state = self.state_in[:batch]
        positions = self.draft.positions[: batch * self.block].view(batch, self.block)
        slots = self.draft.slots[: batch * self.block].view(batch, self.block)
        for i in range(self.block - 2):
            plan = AttentionPlan(
                positions[:, i].contiguous(),
                slots[:, i].contiguous(),
                self.draft.table[:batch],
                self.draft.lengths[:batch],
                block=1,
                causal=True,
                offset=i,
            )
            state = self.drafter.forward(self._fused(block[:, i + 1], state), plan)
            block[:, i + 2] = torch.argmax(self.target.logits(state), dim=-1)

    def _verify_body(self, batch: int) -> None:
        self.verify_forward(batch)
        self.accept(batch)

    def _extend_body(self, batch: int) -> None:
        """The drafter over the verified block: each position takes the token that was committed after it.

        Positions past the accepted ones write what the next extend overwrites.
        """
        tokens = batch * self.block
        x = self._fused(self.answers[:tokens], self.hidden[:tokens])
        states = self.drafter.forward(x, self.verify.plan(batch, causal=True)).view(batch, self.block, -1)
        last = (self.result[:batch, self.block] - 1).long()
        self._first_draft(states[torch.arange(batch, device=last.device), last], batch)

    def _first_draft(self, state: Tensor, rows: int) -> None:
        self.state_out[:rows] = state
        self.tokens_out[:rows, 0] = self.bonus[:rows, 0]
        self.tokens_out[:rows, 1] = torch.argmax(self.target.logits(state), dim=-1)

    def forward(self, step: Step) -> None:
        launch = self.setting.backend.launch
        self.places.first_use_of_host_lengths(step)
        self.draft.fill(step)
        self.lap("draft.metadata")
        launch(_copy_rows, self.tokens_in, step.fields["tokens"], step.rows)
        self.lap("draft.tokens")
        launch(_copy_rows, self.state_in, step.fields["state"], step.rows)
        self.lap("draft.state")
        self._draft[step.padded].replay()
        self.lap("draft")
        self.verify.fill(step)
        self.lap("verify.metadata")
        self.places.last_shared_read(step)
        self._verify[step.padded].replay()
        self.lap("verify")
        self.places.publish(step, self.new_lengths, self.result)
        self._extend[step.padded].replay()
        self.lap("extend")
        self.places.self_fence(step)

    def after_prefill(self, prompts: Prompts, hidden: Tensor, tapped: Tensor) -> None:
        n = prompts.requests
        following = prompts.ids.roll(-1)
        following[prompts.last] = self.bonus[:n, 0]
        states = self.drafter.prefill(
            self._fused(following, hidden), n, prompts.positions, prompts.slots, prompts.reads
        )
        self._first_draft(states[prompts.last], n)

    def relayed(self) -> dict[str, Tensor]:
        return {"tokens": self.tokens_out, "state": self.state_out}

    def operations(self) -> list[Operation]:
        reads = ("req_to_token[0:seq+B]",)
        return [
            kernel("draft.metadata", marks=FIRST_USE, reads=reads),
            kernel("draft.tokens"),
            kernel("draft.state"),
            graph("draft", marks=(Mark.DRAFT,)),
            kernel("verify.metadata", marks=LAST_SHARED_READ, reads=reads),
            graph("verify", marks=(Mark.TARGET,)),
            publish(),
            graph("extend", marks=(Mark.SELF_FENCE,)),
            stash("stash.tokens"),
            stash("stash.state"),
        ]


def _copy_rows(out: Tensor, source: Tensor, rows: int) -> None:
    out[:rows].copy_(source[:rows])
