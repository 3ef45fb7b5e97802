"""Shapes of the models the suite runs. Weights are synthetic: kernel times do not depend on them.

Targets follow the published Qwen3 configurations (layers, hidden, heads, MLP, vocabulary); the block drafter
is five layers of the target's shape, conditioned on hidden states of five target layers, block size 16, as
in the published drafter for Qwen3-8B; the chain drafter is one layer, as in the published drafters of that kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sim.errors import InputError, Problem


@dataclass(frozen=True)
class ModelShape:
    """A decoder with grouped-query attention, query and key norms, rotary positions and a gated MLP."""

    name: str
    layers: int
    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    #: layers of the block drafter
    draft_layers: int
    #: target layers whose output the block drafter is conditioned on
    taps: tuple[int, ...]
    dtype: torch.dtype = torch.bfloat16
    eps: float = 1e-6
    rope_theta: float = 1e6

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of all target and block-drafter layers."""
        size = torch.finfo(self.dtype).bits // 8
        return 2 * (self.layers + self.draft_layers) * self.kv_heads * self.head_dim * size

    @property
    def weight_bytes(self) -> int:
        """Bytes of target and block-drafter weights, embedding and head counted separately."""
        size = torch.finfo(self.dtype).bits // 8
        attention = self.hidden * (2 * self.q_heads + 2 * self.kv_heads) * self.head_dim
        layer = attention + 3 * self.hidden * self.mlp
        drafter = self.draft_layers * layer + len(self.taps) * self.hidden**2
        return size * (self.layers * layer + drafter + 2 * self.vocab * self.hidden)


def _qwen3(name: str, layers: int, hidden: int, q_heads: int, mlp: int, draft_layers: int = 5) -> ModelShape:
    # Taps spread evenly over the depth; for 36 layers they are 1, 9, 17, 25, 33, those of the published
    # drafter.
    taps = tuple(1 + i * ((layers - 4) // 4) for i in range(5))
    return ModelShape(name, layers, hidden, q_heads, 8, 128, mlp, 151936, draft_layers, taps)


SHAPES = {
    shape.name: shape
    for shape in (
        _qwen3("8b", 36, 4096, 32, 12288),
        _qwen3("1.7b", 28, 2048, 16, 6144),
        _qwen3("0.6b", 28, 1024, 16, 3072),
        # For tests on a device: the kernels' real tile shapes, little else.
        ModelShape("small", 4, 256, 8, 2, 64, 512, 1009, 2, (0, 2)),
        # For races: a small target with a drafter that takes several times as long.
        ModelShape("race", 4, 256, 8, 2, 64, 512, 1009, 32, (0, 2)),
        # For ordinary tests: everything the others have, in a thousandth of the time.
        ModelShape("tiny", 3, 32, 4, 2, 8, 48, 61, 2, (0, 1), torch.float32),
    )
}


def shape_named(name: str) -> ModelShape:
    """Raises InputError naming the known ones."""
    if name not in SHAPES:
        known = ", ".join(SHAPES)
        raise InputError(Problem("--model", f'"{name}"', f"one of {known}"))
    return SHAPES[name]
