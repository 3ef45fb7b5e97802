"""The device functions in Triton. Same names, arguments and results as
:mod:`gpu_validation.kernels.reference`.

They need not win a contest; they are fused enough that a forward is dominated by its matrix products, and
they read the paged cache through the page table as a serving engine's do. Integer arguments that change from
step to step are not specialised, so nothing is compiled in the middle of a run.
"""

from __future__ import annotations

# Kernels are typed by the tensors they are launched with.
# mypy: disallow-untyped-defs=False
import triton
import triton.language as tl
from torch import Tensor

#: columns of a page table that one program copies
_TILE = 512
#: heads that one program of the norm-rope-store kernel handles
_HEADS = 8
#: keys that attention looks at in one go
_KEYS = 64

# -- layers ------------------------------------------------------------------------------------------


@triton.jit
def _rms_norm(residual, x, weight, out, eps, n, ADD: tl.constexpr, WIDTH: tl.constexpr):
    token = tl.program_id(0)
    d = tl.arange(0, WIDTH)
    mask = d < n
    at = token.to(tl.int64) * n + d
    y = tl.load(x + at, mask=mask, other=0.0)
    if ADD:
        y = y + tl.load(residual + at, mask=mask, other=0.0)
        tl.store(residual + at, y, mask=mask)
    y = y.to(tl.float32)
    scale = tl.rsqrt(tl.sum(y * y, axis=0) / n + eps)
    w = tl.load(weight + d, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, (y * scale * w).to(out.dtype.element_ty), mask=mask)


def rms_norm(x: Tensor, weight: Tensor, out: Tensor, eps: float) -> None:
    tokens, n = x.shape
    width = triton.next_power_of_2(n)
    _rms_norm[(tokens,)](
        x, x, weight, out, eps, n, ADD=False, WIDTH=width, num_warps=8 if width > 1024 else 4
    )


def add_rms_norm(residual: Tensor, x: Tensor, weight: Tensor, out: Tensor, eps: float) -> None:
    tokens, n = x.shape
    width = triton.next_power_of_2(n)
    _rms_norm[(tokens,)](
        residual, x, weight, out, eps, n, ADD=True, WIDTH=width, num_warps=8 if width > 1024 else 4
    )


@triton.jit
def _silu_mul(gate_up, out, n, WIDTH: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    mask = d < n
    gate = tl.load(gate_up + token * 2 * n + d, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * 2 * n + n + d, mask=mask, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + token * n + d, y.to(out.dtype.element_ty), mask=mask)


def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    tokens, n = out.shape
    _silu_mul[(tokens, triton.cdiv(n, 1024))](gate_up, out, n, WIDTH=1024)


@triton.jit
def _norm_rope_store(
    qkv,
    q_weight,
    k_weight,
    cos_sin,
    positions,
    slots,
    k_cache,
    v_cache,
    q_out,
    stride,
    eps,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    DIM: tl.constexpr = 2 * HALF
    ALL: tl.constexpr = Q_HEADS + 2 * KV_HEADS
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    d = tl.arange(0, HALF)
    inside = (head < ALL)[:, None]
    source = qkv + token * stride + head[:, None] * DIM + d[None, :]
    a = tl.load(source, mask=inside, other=0.0)
    b = tl.load(source + HALF, mask=inside, other=0.0)
    is_q = head < Q_HEADS
    is_v = head >= Q_HEADS + KV_HEADS
    is_k = (head >= Q_HEADS) & (head < Q_HEADS + KV_HEADS)
    position = tl.load(positions + token).to(tl.int64)
    cos = tl.load(cos_sin + position * DIM + d)[None, :]
    sin = tl.load(cos_sin + position * DIM + HALF + d)[None, :]
    qa = tl.load(q_weight + d).to(tl.float32)[None, :]
    qb = tl.load(q_weight + HALF + d).to(tl.float32)[None, :]
    ka = tl.load(k_weight + d).to(tl.float32)[None, :]
    kb = tl.load(k_weight + HALF + d).to(tl.float32)[None, :]
    wa = tl.where(is_q[:, None], qa, ka)
    wb = tl.where(is_q[:, None], qb, kb)
    fa = a.to(tl.float32)
    fb = b.to(tl.float32)
    scale = tl.rsqrt((tl.sum(fa * fa, axis=1) + tl.sum(fb * fb, axis=1)) / DIM + eps)[:, None]
    na = fa * scale * wa
    nb = fb * scale * wb
    ra = na * cos - nb * sin
    rb = nb * cos + na * sin
    if Q_HEADS > 0:
        q_at = q_out + token * Q_HEADS * DIM + head[:, None] * DIM + d[None, :]
        q_mask = is_q[:, None]
        tl.store(q_at, ra.to(q_out.dtype.element_ty), mask=q_mask)
        tl.store(q_at + HALF, rb.to(q_out.dtype.element_ty), mask=q_mask)
    slot = tl.load(slots + token).to(tl.int64)
    k_at = k_cache + slot * KV_HEADS * DIM + (head - Q_HEADS)[:, None] * DIM + d[None, :]
    k_mask = is_k[:, None]
    tl.store(k_at, ra.to(k_cache.dtype.element_ty), mask=k_mask)
    tl.store(k_at + HALF, rb.to(k_cache.dtype.element_ty), mask=k_mask)
    v_at = v_cache + slot * KV_HEADS * DIM + (head - Q_HEADS - KV_HEADS)[:, None] * DIM + d[None, :]
    v_mask = (is_v & (head < ALL))[:, None]
    tl.store(v_at, a, mask=v_mask)
    tl.store(v_at + HALF, b, mask=v_mask)


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
    tokens = qkv.shape[0]
    kv_heads, dim = k_cache.shape[1], k_cache.shape[2]
    heads = qkv.shape[1] // dim
    _norm_rope_store[(tokens, triton.cdiv(heads, _HEADS))](
        qkv,
        q_weight,
        k_weight,
        cos_sin,
        positions,
        slots,
        k_cache,
        v_cache,
        q_out,
        qkv.stride(0),
        eps,
        Q_HEADS=heads - 2 * kv_heads,
        KV_HEADS=kv_heads,
        HALF=dim // 2,
        HEADS=_HEADS,
    )


@triton.jit
def _paged_attention(
    q,
    k_cache,
    v_cache,
    table,
    lengths,
    partial,
    partial_lse,
    out,
    table_stride,
    offset,
    scale,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    SPLITS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    split = tl.program_id(2)
    context = tl.load(lengths + row) + offset
    total = context + BLOCK
    m = tl.arange(0, M)
    j = m // GROUP
    used = m < BLOCK * GROUP
    d = tl.arange(0, DIM)
    q_row = (row * BLOCK + j).to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + m % GROUP
    query = tl.load(q + q_row[:, None] * DIM + d[None, :], mask=used[:, None], other=0.0)
    chunk = tl.cdiv(tl.cdiv(total, SPLITS), N) * N
    low = split * chunk
    high = tl.minimum(low + chunk, total)
    best = tl.full([M], float("-inf"), tl.float32)
    weight = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, DIM], tl.float32)
    head_at = head * DIM
    for start in range(low, high, N):
        at = start + tl.arange(0, N)
        valid = at < high
        slot = tl.load(table + row.to(tl.int64) * table_stride + at, mask=valid, other=0).to(tl.int64)
        key = tl.load(
            k_cache + (slot * (KV_HEADS * DIM))[None, :] + head_at + d[:, None],
            mask=valid[None, :],
            other=0.0,
        )
        score = tl.dot(query, key) * scale
        seen = valid[None, :]
        if CAUSAL:
            seen = seen & (at[None, :] <= context + j[:, None])
        score = tl.where(seen, score, float("-inf"))
        new_best = tl.maximum(best, tl.max(score, axis=1))
        # A query that has seen no key yet keeps −inf; subtracting it from itself must not give NaN.
        base = tl.where(new_best == float("-inf"), 0.0, new_best)
        p = tl.exp(score - base[:, None])
        decay = tl.exp(best - base)
        weight = weight * decay + tl.sum(p, axis=1)
        value = tl.load(
            v_cache + (slot * (KV_HEADS * DIM))[:, None] + head_at + d[None, :],
            mask=valid[:, None],
            other=0.0,
        )
        acc = acc * decay[:, None] + tl.dot(p.to(value.dtype), value)
        best = new_best
    safe = tl.where(weight > 0.0, weight, 1.0)
    result = acc / safe[:, None]
    if SPLITS == 1:
        tl.store(out + q_row[:, None] * DIM + d[None, :], result.to(out.dtype.element_ty), mask=used[:, None])
    else:
        lse = tl.where(weight > 0.0, best + tl.log(safe), float("-inf"))
        p_row = q_row * SPLITS + split
        tl.store(partial + p_row[:, None] * DIM + d[None, :], result, mask=used[:, None])
        tl.store(partial_lse + p_row, lse, mask=used)


@triton.jit
def _combine_splits(partial, partial_lse, out, SPLITS: tl.constexpr, DIM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, SPLITS)
    d = tl.arange(0, DIM)
    lse = tl.load(partial_lse + row * SPLITS + s)
    weight = tl.exp(lse - tl.max(lse, axis=0))
    values = tl.load(partial + (row * SPLITS + s)[:, None] * DIM + d[None, :])
    result = tl.sum(values * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    tl.store(out + row * DIM + d, result.to(out.dtype.element_ty))


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
    tokens, q_heads, dim = q.shape
    kv_heads = k_cache.shape[1]
    group = q_heads // kv_heads
    m = max(16, triton.next_power_of_2(block * group))
    _paged_attention[(tokens // block, kv_heads, splits)](
        q,
        k_cache,
        v_cache,
        table,
        lengths,
        partial,
        partial_lse,
        out,
        table.stride(0),
        offset,
        dim**-0.5,
        BLOCK=block,
        GROUP=group,
        KV_HEADS=kv_heads,
        DIM=dim,
        CAUSAL=causal,
        SPLITS=splits,
        M=m,
        N=_KEYS,
        num_warps=4,
        num_stages=2,
    )
    if splits > 1:
        _combine_splits[(tokens * q_heads,)](partial, partial_lse, out, SPLITS=splits, DIM=dim, num_warps=2)


# -- shared state --------------------------------------------------------------------------------------


@triton.jit
def _assign_slots(scratch, req_to_token, capacity, stride, WIDEST: tl.constexpr):
    i = tl.program_id(0)
    row = tl.load(scratch + i).to(tl.int64)
    first = tl.load(scratch + capacity + i)
    count = tl.load(scratch + 2 * capacity + i)
    offset = tl.load(scratch + 3 * capacity + i)
    k = tl.program_id(1) * WIDEST + tl.arange(0, WIDEST)
    slots = tl.load(scratch + 5 * capacity + offset + k, mask=k < count, other=0)
    tl.store(req_to_token + row * stride + first + k, slots, mask=k < count)


def assign_slots(scratch: Tensor, capacity: int, req_to_token: Tensor, rows: int, widest: int) -> None:
    tile = min(max(16, triton.next_power_of_2(widest)), 256)
    _assign_slots[(rows, triton.cdiv(widest, tile))](
        scratch, req_to_token, capacity, req_to_token.stride(0), WIDEST=tile, num_warps=1
    )


@triton.jit(do_not_specialize=["rows"])
def _block_metadata(
    pool_rows,
    lengths,
    req_to_token,
    static_rows,
    static_lengths,
    positions,
    slots,
    table,
    rows,
    last_row,
    pool_stride,
    table_stride,
    width,
    BLOCK: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    i = tl.program_id(0)
    part = tl.program_id(1)
    live = i < rows
    row = tl.load(pool_rows + i, mask=live, other=0)
    row = tl.where(live, row, last_row).to(tl.int64)
    length = tl.load(lengths + i, mask=live, other=0)
    if part == 0:
        tl.store(static_rows + i, row.to(tl.int32))
        tl.store(static_lengths + i, length)
        k = tl.arange(0, BLOCK_WIDTH)
        mine = k < BLOCK
        tl.store(positions + i * BLOCK + k, length + k, mask=mine)
        # The pool's last row names slot 0 everywhere.
        slot = tl.load(req_to_token + row * pool_stride + length + k, mask=mine, other=0)
        tl.store(slots + i * BLOCK + k, slot, mask=mine)
    end = tl.minimum(length + BLOCK, width)
    if part * TILE < end:
        at = part * TILE + tl.arange(0, TILE)
        entries = tl.load(req_to_token + row * pool_stride + at, mask=at < end, other=0)
        tl.store(table + i.to(tl.int64) * table_stride + at, entries, mask=at < end)


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
    _block_metadata[(padded, triton.cdiv(width, _TILE))](
        pool_rows,
        lengths,
        req_to_token,
        static_rows,
        static_lengths,
        positions,
        slots,
        table,
        rows,
        req_to_token.shape[0] - 1,
        req_to_token.stride(0),
        table.stride(0),
        table.shape[1],
        BLOCK=block,
        BLOCK_WIDTH=triton.next_power_of_2(block),
        TILE=_TILE,
        num_warps=4,
    )


@triton.jit(do_not_specialize=["rows"])
def _block_tokens(first, stride, out, rows, filler, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    i = tl.program_id(0)
    k = tl.arange(0, BLOCK_WIDTH)
    token = tl.load(first + i * stride, mask=i < rows, other=filler)
    tl.store(out + i * BLOCK + k, tl.where(k == 0, token, filler), mask=k < BLOCK)


def block_tokens(
    first: Tensor, stride: int, rows: int, padded: int, block: int, filler: int, out: Tensor
) -> None:
    _block_tokens[(padded,)](
        first, stride, out, rows, filler, BLOCK=block, BLOCK_WIDTH=triton.next_power_of_2(block), num_warps=1
    )


@triton.jit
def _gather_rows(buffer, pool_rows, out, width, TILE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(pool_rows + i).to(tl.int64)
    k = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = k < width
    tl.store(out + i * width + k, tl.load(buffer + row * width + k, mask=mask), mask=mask)


def gather_rows(buffer: Tensor, pool_rows: Tensor, rows: int, width: int, out: Tensor) -> None:
    tile = min(triton.next_power_of_2(width), 1024)
    _gather_rows[(rows, triton.cdiv(width, tile))](buffer, pool_rows, out, width, TILE=tile, num_warps=1)


@triton.jit
def _scatter_rows(source, pool_rows, buffer, carried, width, TILE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(pool_rows + i).to(tl.int64)
    k = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = k < width
    value = tl.load(source + i * width + k, mask=mask)
    tl.store(buffer + row * width + k, value, mask=mask)
    tl.store(carried + i * width + k, value, mask=mask)


def scatter_rows(
    source: Tensor, pool_rows: Tensor, rows: int, width: int, buffer: Tensor, carried: Tensor
) -> None:
    tile = min(triton.next_power_of_2(width), 1024)
    _scatter_rows[(rows, triton.cdiv(width, tile))](
        source, pool_rows, buffer, carried, width, TILE=tile, num_warps=1
    )


@triton.jit
def _publish(new_lengths, result, pool_rows, lengths_by_row, carried, result_out, width, TILE: tl.constexpr):
    i = tl.program_id(0)
    row = tl.load(pool_rows + i)
    length = tl.load(new_lengths + i)
    tl.store(lengths_by_row + row, length)
    tl.store(carried + i, length)
    k = tl.arange(0, TILE)
    mask = k < width
    tl.store(result_out + i * width + k, tl.load(result + i * width + k, mask=mask), mask=mask)


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
    _publish[(rows,)](
        new_lengths,
        result,
        pool_rows,
        lengths_by_row,
        carried,
        result_out,
        width,
        TILE=triton.next_power_of_2(width),
        num_warps=1,
    )


def poison_rows(buffer: Tensor, pool_rows: Tensor, rows: int, value: float) -> None:
    buffer[pool_rows[:rows].long()] = value


# -- verification --------------------------------------------------------------------------------------


@triton.jit
def _force_and_accept(
    target,
    block_ids,
    static_rows,
    static_lengths,
    prompt_lengths,
    forced,
    new_lengths,
    result,
    bonus,
    vocab,
    positions,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = tl.program_id(0)
    j = tl.arange(0, WIDTH)
    inside = j < BLOCK
    is_draft = j < BLOCK - 1
    answer = tl.load(target + i * BLOCK + j, mask=inside, other=0)
    draft = tl.load(block_ids + i * BLOCK + j + 1, mask=is_draft, other=-1)
    row = tl.load(static_rows + i).to(tl.int64)
    length = tl.load(static_lengths + i)
    generated = length - tl.load(prompt_lengths + row) + 1
    generated = tl.minimum(tl.maximum(generated, 0), positions - 1)
    wanted = tl.load(forced + row * positions + generated).to(tl.int32)
    changed = tl.where(is_draft & (j < wanted), draft, answer)
    changed = tl.where(is_draft & (j == wanted) & (changed == draft), (draft + 1) % vocab, changed)
    answer = tl.where(wanted >= 0, changed, answer)
    # The first position where they differ ends the accepted drafts; the last position has no draft and
    # always differs.
    differs = tl.where(is_draft & (answer == draft), WIDTH, j)
    accepted = tl.minimum(tl.min(differs, axis=0), BLOCK - 1)
    tl.store(target + i * BLOCK + j, answer, mask=inside)
    tl.store(new_lengths + i, length + accepted + 1)
    tl.store(result + i * (BLOCK + 1) + j, answer.to(tl.int32), mask=inside)
    tl.store(result + i * (BLOCK + 1) + BLOCK, accepted + 1)
    tl.store(bonus + i, tl.sum(tl.where(j == accepted, answer, 0), axis=0))


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
    _force_and_accept[(padded,)](
        target,
        block_ids,
        static_rows,
        static_lengths,
        prompt_lengths,
        forced,
        new_lengths,
        result,
        bonus,
        vocab,
        forced.shape[1],
        BLOCK=block,
        WIDTH=triton.next_power_of_2(block),
        num_warps=1,
    )
