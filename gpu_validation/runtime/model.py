"""A decoder over the paged cache: one forward for decode, verify, draft and append, with preallocated
outputs.

Knows nothing of requests or policies. All sizes are those of
:class:`~gpu_validation.runtime.shapes.ModelShape`; T is the number of positions of a call, b rows of
``block`` positions each.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, scaled_dot_product_attention

from gpu_validation.runtime.shapes import ModelShape


@dataclass(frozen=True)
class Layer:
    input_norm: Tensor  # [hidden]
    qkv: Tensor  # [(q heads + 2·kv heads)·dim, hidden]
    q_norm: Tensor  # [dim]
    k_norm: Tensor  # [dim]
    output: Tensor  # [hidden, q heads·dim]
    post_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2·mlp, hidden]
    down: Tensor  # [hidden, mlp]


#: inputs that contribute to one output of a synthetic matrix, at most
_CONTRIBUTING = 128


class Weights:
    """Random signs scaled so that activations keep their size, and zeros; drawn on the device from a seed.

    Each output is a signed sum of about :data:`_CONTRIBUTING` inputs. Kernels are dense and take the same time as
    with any other values, but dense random bits make a large model draw the device's power limit, where its clock
    wanders by several per cent within seconds, alike for every policy; these do not.
    """

    def __init__(self, shape: ModelShape, device: torch.device, seed: int):
        self._generator = torch.Generator(device)
        self._generator.manual_seed(seed)
        self.shape, self.device = shape, device

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> Tensor:
        one_in = max(1, columns // _CONTRIBUTING)
        drawn = torch.randint(
            0, 2 * one_in, (rows, columns), dtype=torch.int16, device=self.device, generator=self._generator
        )
        size = gain * (columns / one_in) ** -0.5
        return ((drawn == 0).to(self.shape.dtype) - (drawn == 1).to(self.shape.dtype)).mul_(size)

    def ones(self, n: int) -> Tensor:
        return torch.ones(n, dtype=self.shape.dtype, device=self.device)

    def layer(self) -> Layer:
        s = self.shape
        dim = s.head_dim
        return Layer(
            self.ones(s.hidden),
            self.matrix((s.q_heads + 2 * s.kv_heads) * dim, s.hidden),
            self.ones(dim),
            self.ones(dim),
            self.matrix(s.hidden, s.q_heads * dim),
            self.ones(s.hidden),
            self.matrix(2 * s.mlp, s.hidden),
            self.matrix(s.hidden, s.mlp),
        )


class KVCache:
    """K and V of some layers, [layers][slots, kv heads, dim]; slot 0 is written by padding and read by
    nobody.
    """

    def __init__(self, shape: ModelShape, layers: int, slots: int, device: torch.device):
        size = (layers, slots, shape.kv_heads, shape.head_dim)
        self.k = torch.zeros(size, dtype=shape.dtype, device=device)
        self.v = torch.zeros(size, dtype=shape.dtype, device=device)


@dataclass(frozen=True)
class AttentionPlan:
    """Where one forward's queries find their keys."""

    positions: Tensor  # [T] int32
    slots: Tensor  # [T] int32: where new K and V go
    table: Tensor  # [b, width] int32
    lengths: Tensor  # [b] int32: positions before the block
    block: int
    causal: bool
    offset: int = 0


class Decoder:
    """``layers`` decoder layers with a final norm. ``kernels`` is a module of
    :mod:`gpu_validation.kernels`.
    """

    def __init__(
        self,
        shape: ModelShape,
        layers: int,
        weights: Weights,
        cache: KVCache,
        kernels: ModuleType,
        rope: Tensor,
    ):
        self.shape = shape
        self.layers = [weights.layer() for _ in range(layers)]
        self.final_norm = weights.ones(shape.hidden)
        self.cache = cache
        self.kernels = kernels
        self.rope = rope

    def forward(
        self, x: Tensor, plan: AttentionPlan, taps: tuple[int, ...] = (), tapped: Tensor | None = None
    ) -> Tensor:
        """Final-normed hidden states [T, hidden] of input embeddings ``x`` [T, hidden], which is overwritten.

        The outputs of layers ``taps`` go side by side into ``tapped`` [T, len(taps)·hidden].
        """
        s, k = self.shape, self.kernels
        tokens = x.shape[0]
        rows = tokens // plan.block
        normed = torch.empty_like(x)
        query = x.new_empty(tokens, s.q_heads, s.head_dim)
        attended = torch.empty_like(query)
        activated = x.new_empty(tokens, s.mlp)
        splits = splits_for(rows, s.kv_heads)
        pieces = tokens * s.q_heads * splits if splits > 1 else 1
        partial = x.new_empty((pieces, s.head_dim), dtype=torch.float32)
        partial_lse = x.new_empty(pieces, dtype=torch.float32)
        k.rms_norm(x, self.layers[0].input_norm, normed, s.eps)
        for i, layer in enumerate(self.layers):
            qkv = linear(normed, layer.qkv)
            k.norm_rope_store(
                qkv,
                layer.q_norm,
                layer.k_norm,
                self.rope,
                plan.positions,
                plan.slots,
                self.cache.k[i],
                self.cache.v[i],
                query,
                s.eps,
            )
            k.paged_attention(
                query,
                self.cache.k[i],
                self.cache.v[i],
                plan.table,
                plan.lengths,
                plan.offset,
                plan.block,
                plan.causal,
                splits,
                partial,
                partial_lse,
                attended,
            )
            self._mlp(layer, i, x, linear(attended.view(tokens, -1), layer.output), normed, activated)
            if i in taps:
                assert tapped is not None
                at = taps.index(i) * s.hidden
                tapped[:, at : at + s.hidden].copy_(x)
        return normed

    def prefill(
        self,
        x: Tensor,
        requests: int,
        positions: Tensor,
        slots: Tensor,
        reads: Tensor,
        taps: tuple[int, ...] = (),
        tapped: Tensor | None = None,
    ) -> Tensor:
        """As :meth:`forward` for whole prompts: ``x`` [requests·length, hidden], padded on the right.

        Keys and values are written to ``slots`` and read from ``reads``, which differ where a prefix is cached.
        Padding follows every real token, so causal attention never sees it; its slots must be 0.
        """
        s, k = self.shape, self.kernels
        tokens = x.shape[0]
        length = tokens // requests
        normed = torch.empty_like(x)
        query = x.new_empty(tokens, s.q_heads, s.head_dim)
        activated = x.new_empty(tokens, s.mlp)
        k.rms_norm(x, self.layers[0].input_norm, normed, s.eps)
        index = reads.long()
        for i, layer in enumerate(self.layers):
            qkv = linear(normed, layer.qkv)
            k.norm_rope_store(
                qkv,
                layer.q_norm,
                layer.k_norm,
                self.rope,
                positions,
                slots,
                self.cache.k[i],
                self.cache.v[i],
                query,
                s.eps,
            )
            q, key, value = (
                t.view(requests, length, -1, s.head_dim).transpose(1, 2)
                for t in (query, self.cache.k[i][index], self.cache.v[i][index])
            )
            attended = scaled_dot_product_attention(q, key, value, is_causal=True, enable_gqa=True)
            attended = attended.transpose(1, 2).reshape(tokens, -1)
            self._mlp(layer, i, x, linear(attended, layer.output), normed, activated)
            if i in taps:
                assert tapped is not None
                at = taps.index(i) * s.hidden
                tapped[:, at : at + s.hidden].copy_(x)
        return normed

    def _mlp(
        self, layer: Layer, i: int, x: Tensor, attention: Tensor, normed: Tensor, activated: Tensor
    ) -> None:
        """Second half of layer ``i``; leaves the residual in ``x`` and the next layer's normed input in
        ``normed``.
        """
        k, eps = self.kernels, self.shape.eps
        k.add_rms_norm(x, attention, layer.post_norm, normed, eps)
        k.silu_mul(linear(normed, layer.gate_up), activated)
        down = linear(activated, layer.down)
        following = self.layers[i + 1].input_norm if i + 1 < len(self.layers) else self.final_norm
        k.add_rms_norm(x, down, following, normed, eps)


class LanguageModel:
    """Embedding, decoder and head of the target; the head and embedding serve the drafters as well."""

    def __init__(
        self, shape: ModelShape, weights: Weights, cache: KVCache, kernels: ModuleType, rope: Tensor
    ):
        self.shape = shape
        # A gain above one spreads the embeddings, so that different tokens lead to different continuations.
        self.embedding = weights.matrix(shape.vocab, shape.hidden, gain=shape.hidden**0.5)
        self.head = weights.matrix(shape.vocab, shape.hidden)
        self.decoder = Decoder(shape, shape.layers, weights, cache, kernels, rope)

    def embed(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, vocab]"""
        return linear(hidden, self.head)


def rope_table(shape: ModelShape, positions: int, device: torch.device) -> Tensor:
    """[positions, head dim] float32: cosines of all frequencies, then sines."""
    half = shape.head_dim // 2
    frequency = shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency[None, :]
    return torch.cat([angle.cos(), angle.sin()], dim=-1).float().to(device)


def splits_for(rows: int, kv_heads: int) -> int:
    """Pieces each row's keys are cut into, so that a small batch still fills the device.

    A power of two; several hundred programs are aimed at, and 16 pieces are the most.
    """
    splits = 1
    while splits < 16 and rows * kv_heads * splits < 512:
        splits *= 2
    return splits
