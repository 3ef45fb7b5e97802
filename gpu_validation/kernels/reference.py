"""Every device function in plain torch: the definition that the Triton ones are tested against, and the
CPU's own.
"""

from __future__ import annotations

import torch
from torch import Tensor

# -- layers ------------------------------------------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor, out: Tensor, eps: float) -> None:
    """``out = x / rms(x) · weight`` over the last dimension; [T, hidden]."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    out.copy_(y * weight.float())


def add_rms_norm(residual: Tensor, x: Tensor, weight: Tensor, out: Tensor, eps: float) -> None:
    """``residual += x`` in place, then ``out = rms_norm(residual)``; [T, hidden]."""
    residual.add_(x)
    rms_norm(residual, weight, out, eps)


def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    """``out = silu(gate) · up`` for ``gate_up`` [T, 2·mlp] holding both halves; out [T, mlp]."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    out.copy_(torch.nn.functional.silu(gate) * up)


def norm_rope_store(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos_sin: Tensor,
    positions: Tensor,
    slots: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    q_out: Tensor,
    eps: float,
) -> None:
    """Normalise and rotate queries and keys, store keys and values at ``slots``.

    ``qkv`` [T, (q heads + 2·kv heads)·dim], rows may be apart; ``cos_sin`` [positions, dim] float32, cosines
    then sines;
    ``q_out`` [T, q heads, dim] (no q heads: only keys and values are handled).
    """
    tokens = qkv.shape[0]
    kv_heads, dim = k_cache.shape[1], k_cache.shape[2]
    heads = qkv.shape[1] // dim
    q_heads = heads - 2 * kv_heads
    x = qkv.reshape(tokens, heads, dim).float()
    half = dim // 2
    cos = cos_sin[positions.long(), :half].unsqueeze(1)
    sin = cos_sin[positions.long(), half:].unsqueeze(1)

    def rotated(y: Tensor, weight: Tensor) -> Tensor:
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight.float()
        a, b = y[..., :half], y[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    if q_heads:
        q_out.copy_(rotated(x[:, :q_heads], q_weight))
    index = slots.long()
    k_cache.index_copy_(0, index, rotated(x[:, q_heads : q_heads + kv_heads], k_weight).to(k_cache.dtype))
    v_cache.index_copy_(0, index, x[:, q_heads + kv_heads :].to(v_cache.dtype))


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    table: Tensor,
    lengths: Tensor,
    offset: int,
    block: int,
    causal: bool,
    splits: int,
    partial: Tensor,
    partial_lse: Tensor,
    out: Tensor,
) -> None:
    """Attention of ``block`` consecutive positions a row over the paged cache.

    ``q`` [b·block, q heads, dim], ``table`` [b, width], ``lengths`` [b]: positions before the block, to which
    ``offset`` is added. Query j sees positions up to its own (``causal``) or the whole block. ``out`` like
    ``q``.
    ``splits``, ``partial`` and ``partial_lse`` matter to the split kernel alone.
    """
    rows = q.shape[0] // block
    q_heads, dim = q.shape[1], q.shape[2]
    group = q_heads // k_cache.shape[1]
    for b in range(rows):
        context = int(lengths[b]) + offset
        slots = table[b, : context + block].long()
        k = k_cache[slots].float().repeat_interleave(group, dim=1)
        v = v_cache[slots].float().repeat_interleave(group, dim=1)
        query = q[b * block : (b + 1) * block].float()
        scores = torch.einsum("qhd,khd->hqk", query, k) * dim**-0.5
        if causal:
            at = torch.arange(context + block, device=q.device)
            seen = at[None, :] <= context + at[:block, None]
            scores = scores.masked_fill(~seen, float("-inf"))
        out[b * block : (b + 1) * block] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(out.dtype)


# -- shared state --------------------------------------------------------------------------------------


def assign_slots(scratch: Tensor, capacity: int, req_to_token: Tensor, rows: int, widest: int) -> None:
    """Write newly allocated slots into ``req_to_token``.

    ``scratch`` int32: five lists of ``capacity`` (pool row, first column, count, offset, length), then the
    slots that the offsets point into. ``widest``: most slots any row gets.
    """
    row, first, count, offset = scratch[: 4 * capacity].view(4, capacity)
    slots = scratch[5 * capacity :]
    for i in range(rows):
        n, f, o = int(count[i]), int(first[i]), int(offset[i])
        req_to_token[int(row[i]), f : f + n] = slots[o : o + n]


def block_metadata(
    pool_rows: Tensor,
    lengths: Tensor,
    req_to_token: Tensor,
    rows: int,
    padded: int,
    block: int,
    width: int,
    static_rows: Tensor,
    static_lengths: Tensor,
    positions: Tensor,
    slots: Tensor,
    table: Tensor,
) -> None:
    """Fill a graph's static inputs for ``rows`` live rows of ``padded``.

    Reads ``req_to_token`` at [0, length + block) of each live row; ``width`` bounds that sum over the batch.
    A padded row gets length 0, the pool's last row and slot 0.
    """
    last = req_to_token.shape[0] - 1
    for i in range(padded):
        live = i < rows
        row = int(pool_rows[i]) if live else last
        length = int(lengths[i]) if live else 0
        end = min(length + block, width)
        static_rows[i] = row
        static_lengths[i] = length
        table[i, :end] = req_to_token[row, :end] if live else 0
        at = torch.arange(length, length + block, dtype=positions.dtype)
        positions[i * block : (i + 1) * block] = at
        slots[i * block : (i + 1) * block] = req_to_token[row, length : length + block] if live else 0


def block_tokens(
    first: Tensor, stride: int, rows: int, padded: int, block: int, filler: int, out: Tensor
) -> None:
    """``out`` [padded·block] int64: each row's first token, then ``filler``; padded rows are all ``filler``.

    ``first`` is read every ``stride`` elements.
    """
    view = out[: padded * block].view(padded, block)
    view.fill_(filler)
    view[:rows, 0] = first.view(-1)[: rows * stride : stride]


def gather_rows(buffer: Tensor, pool_rows: Tensor, rows: int, width: int, out: Tensor) -> None:
    """``out[i] = buffer[pool_rows[i]]``, ``width`` elements a row."""
    out.view(-1, width)[:rows] = buffer.view(-1, width)[pool_rows[:rows].long()]


def scatter_rows(
    source: Tensor, pool_rows: Tensor, rows: int, width: int, buffer: Tensor, carried: Tensor
) -> None:
    """``buffer[pool_rows[i]] = source[i]`` and ``carried[i] = source[i]``, ``width`` elements a row."""
    values = source.view(-1, width)[:rows]
    buffer.view(-1, width)[pool_rows[:rows].long()] = values
    carried.view(-1, width)[:rows] = values


def publish(
    new_lengths: Tensor,
    result: Tensor,
    pool_rows: Tensor,
    rows: int,
    width: int,
    lengths_by_row: Tensor,
    carried: Tensor,
    result_out: Tensor,
) -> None:
    """New lengths to the FutureMap (by pool row) and by reference (by batch row); the step's result beside
    them.

    ``result`` [padded, width] int32 goes to ``result_out``.
    """
    scatter_rows(new_lengths, pool_rows, rows, 1, lengths_by_row, carried)
    result_out[:rows] = result[:rows]


def poison_rows(buffer: Tensor, pool_rows: Tensor, rows: int, value: float) -> None:
    """Overwrite what was just read, so that a second read shows."""
    buffer[pool_rows[:rows].long()] = value


# -- verification --------------------------------------------------------------------------------------


def force_and_accept(
    target: Tensor,
    block_ids: Tensor,
    static_rows: Tensor,
    static_lengths: Tensor,
    prompt_lengths: Tensor,
    forced: Tensor,
    vocab: int,
    padded: int,
    block: int,
    new_lengths: Tensor,
    result: Tensor,
    bonus: Tensor,
) -> None:
    """Accept the longest prefix of drafts that the target agrees with.

    ``target`` [padded·block] int64, the target's token after each block position; ``block_ids`` likewise, the
    block itself (its first token and the drafts). ``forced`` [pool rows + 1, positions] int8, looked up at
    (pool row, generated tokens so far): where not negative, the target's tokens are first changed so that
    exactly this many drafts agree. ``result`` [padded, block + 1] int32: committed tokens (the rest of the
    row is of no meaning), then their number. ``bonus`` [padded, 1] int64: the last committed token, not in
    the KV cache yet.
    """
    answers = target[: padded * block].view(padded, block)
    drafts = block_ids[: padded * block].view(padded, block)[:, 1:]
    rows = static_rows[:padded].long()
    generated = (static_lengths[:padded] - prompt_lengths[rows] + 1).clamp(0, forced.shape[1] - 1).long()
    wanted = forced[rows, generated].long().unsqueeze(1)
    j = torch.arange(block - 1, device=target.device).unsqueeze(0)
    agreeing = torch.where(j < wanted, drafts, answers[:, :-1])
    stopping = torch.where((j == wanted) & (agreeing == drafts), (drafts + 1) % vocab, agreeing)
    answers[:, :-1] = torch.where(wanted >= 0, stopping, answers[:, :-1])
    accepted = (answers[:, :-1] == drafts).long().cumprod(1).sum(1)
    new_lengths[:padded] = static_lengths[:padded] + accepted.to(new_lengths.dtype) + 1
    result[:padded, :block] = answers.to(result.dtype)
    result[:padded, block] = (accepted + 1).to(result.dtype)
    bonus[:padded] = answers.gather(1, accepted.unsqueeze(1))
