"""A block drafter: all drafts of a step in one forward of a small decoder, conditioned on target hidden
states.

The drafter's context keys and values are projections of the target's hidden states (``taps``), appended
after each verification; its block (the last committed token and mask tokens) sees that context and itself,
in both directions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from gpu_validation.device.backend import Stream
from gpu_validation.runtime.future_map import Field
from gpu_validation.runtime.model import Decoder, KVCache
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

TOKEN = Field("token", 1, torch.int64)


class BlockDrafter(Worker):
    name = "dflash"
    kind = "block"
    uses_taps = True
    fields = (TOKEN,)
    capabilities = Capabilities(
        length_source=LengthSource.PUBLISHED,
        host_length_need=HostLengthNeed.NONE,
        relay_schema=("token",),
        carry=Carry.BY_ROW,
        read_end=ReadEnd.PRE_REPLAY,
    )

    def _build(self) -> None:
        setting, shape = self.setting, self.setting.shape
        cache = KVCache(shape, shape.draft_layers, setting.slots, setting.backend.device)
        self.drafter = Decoder(shape, shape.draft_layers, self.weights, cache, self.kernels, self.rope)
        self.fuse = self.weights.matrix(shape.hidden, len(shape.taps) * shape.hidden)
        self.fuse_norm = self.weights.ones(shape.hidden)
        # The key and value rows of every drafter layer's projection, so that append is one product.
        q_rows = shape.q_heads * shape.head_dim
        self.key_value = torch.cat([layer.qkv[q_rows:] for layer in self.drafter.layers])
        self.draft = BlockInputs(setting, self.block)
        self.draft_ids = torch.zeros_like(self.block_ids)
        self.mask_token = shape.vocab - 1

    def capture(self, stream: Stream) -> None:
        self._draft = self.graphs(stream, self._draft_body)
        self._verify = self.graphs(stream, self._verify_body)
        self._append = self.graphs(stream, self._append_body)

    def _draft_body(self, batch: int) -> None:
        """Block of one known and B − 1 masked tokens to B − 1 drafts, written as the block to verify."""
        tokens = batch * self.block
        x = self.target.embed(self.draft_ids[:tokens])
        hidden = self.drafter.forward(x, self.draft.plan(batch, causal=False))
        hidden = hidden.view(batch, self.block, -1)[:, 1:].reshape(batch * (self.block - 1), -1)
        drafts = torch.argmax(self.target.logits(hidden), dim=-1).view(batch, self.block - 1)
        block = self.block_ids[:tokens].view(batch, self.block)
        block[:, 0] = self.draft_ids[:tokens].view(batch, self.block)[:, 0]
        block[:, 1:] = drafts

    def _verify_body(self, batch: int) -> None:
        self.verify_forward(batch)
        self.accept(batch)

    def _append_body(self, batch: int) -> None:
        tokens = batch * self.block
        self._append_states(self.tapped[:tokens], self.verify.positions[:tokens], self.verify.slots[:tokens])

    def _append_states(self, tapped: Tensor, positions: Tensor, slots: Tensor) -> None:
        """Project target hidden states [T, taps·hidden] into the drafter's keys and values at ``slots``."""
        shape, k = self.setting.shape, self.kernels
        fused = linear(tapped, self.fuse)
        k.rms_norm(fused, self.fuse_norm, fused, shape.eps)
        both = linear(fused, self.key_value)
        width = both.shape[1] // shape.draft_layers
        for i, layer in enumerate(self.drafter.layers):
            k.norm_rope_store(
                both[:, i * width : (i + 1) * width],
                layer.q_norm,
                layer.k_norm,
                self.rope,
                positions,
                slots,
                self.drafter.cache.k[i],
                self.drafter.cache.v[i],
                fused,
                shape.eps,
            )

    def forward(self, step: Step) -> None:
        self.places.first_use_of_host_lengths(step)
        self.draft.fill(step)
        self.lap("draft.metadata")
        self.setting.backend.launch(
            self.kernels.block_tokens,
            step.fields["token"],
            1,
            step.rows,
            step.padded,
            self.block,
            self.mask_token,
            self.draft_ids,
        )
        self.lap("draft.tokens")
        self._draft[step.padded].replay()
        self.lap("draft")
        self.verify.fill(step)
        self.lap("verify.metadata")
        self.places.last_shared_read(step)
        self._verify[step.padded].replay()
        self.lap("verify")
        self.places.publish(step, self.new_lengths, self.result)
        self._append[step.padded].replay()
        self.lap("append")
        self.places.self_fence(step)

    def after_prefill(self, prompts: Prompts, hidden: Tensor, tapped: Tensor) -> None:
        self._append_states(tapped, prompts.positions, prompts.slots)

    def relayed(self) -> dict[str, Tensor]:
        return {"token": self.bonus}

    def operations(self) -> list[Operation]:
        reads = ("req_to_token[0:seq+B]",)
        return [
            kernel("draft.metadata", marks=FIRST_USE, reads=reads),
            kernel("draft.tokens"),
            graph("draft", marks=(Mark.DRAFT,)),
            kernel("verify.metadata", marks=LAST_SHARED_READ, reads=reads),
            graph("verify", marks=(Mark.TARGET,)),
            publish(),
            graph("append", marks=(Mark.SELF_FENCE,)),
            stash("stash.token"),
        ]
