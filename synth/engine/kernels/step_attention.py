"""Do what stands between a decode step's projection and its merge in one kernel.

Heads are normalised and rotated, the new key and value are written and every split attends: a
launch less in each layer than `write_heads` and then `decode_attention`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from synth.engine.kernels.attention import (
    LOG2_E,
    Parts,
    block_positions,
    check_cache,
    decode_attention_torch,
    merge_splits,
    needs_wide_products,
)
from synth.engine.kernels.attention_kernels import attend_block
from synth.engine.kernels.heads import write_heads_torch
from synth.engine.model.attention import SPLIT_POSITIONS


def step_attention(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    split: int = SPLIT_POSITIONS,
) -> Tensor:
    """Write each stream's key and value at its position and attend up to and with it.

    Args:
        qkv: [B, (H + 2 * KV) * D], a stream's query heads, key heads and value heads, side by side;
            D even.
        rope: the table of all positions, float32 [S or more, D / 2, 2], of cos and sin.
        keys, values: one layer's cache [B, KV, S, D] in qkv's dtype or float32, with the same
            strides; D side by side.
        position: int64 [B]; one beyond S - 1 is taken as S - 1.
        weight: of the norm of every query and key head, [H + KV, D], multiplied before the cast;
            None means no norm.
        split: as for `decode_attention`.

    Returns:
        [B, H * D] in qkv's dtype.
    """
    batch, width = qkv.shape
    _, kv_heads, length, head_dim = keys.shape
    heads = width // head_dim - 2 * kv_heads
    q = qkv.view(batch, -1, head_dim)[:, :heads]
    check_cache(q, keys, values)
    assert width == (heads + 2 * kv_heads) * head_dim and heads % kv_heads == 0
    assert head_dim % 2 == 0 and split % block_positions(keys) == 0
    assert rope.is_contiguous() and (weight is None or weight.is_contiguous())
    assert position.shape == (batch,) and position.is_contiguous()
    parts = Parts.allocate(q, triton.cdiv(length, split))
    _step_splits[(kv_heads, batch, triton.cdiv(length, split))](
        qkv,
        rope,
        weight,
        keys,
        values,
        position,
        parts.mixed,
        parts.peaks,
        parts.weights,
        head_dim**-0.5 * LOG2_E,
        eps,
        length,
        parts.peaks.shape[2],
        qkv.stride(0),
        *keys.stride()[:3],
        HEADS=heads,
        GROUP=heads // kv_heads,
        ROWS=max(triton.next_power_of_2(heads // kv_heads), 16),
        HEAD_DIM=head_dim,
        WIDTH=max(triton.next_power_of_2(head_dim), 16),
        SPLIT=split,
        BLOCK=block_positions(keys),
        WIDE=needs_wide_products(keys),
        num_warps=4,
        num_stages=3,
    )
    return merge_splits(q, position, parts, length, split=split)


def step_attention_torch(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    split: int = SPLIT_POSITIONS,
) -> Tensor:
    """Specify `step_attention`."""
    q = write_heads_torch(qkv, rope, keys, values, position, weight=weight, eps=eps)
    return decode_attention_torch(q, keys, values, position, split=split)


@triton.jit
def _turned(heads, weight, angles, dim, mask, eps, HEAD_DIM: tl.constexpr, dtype: tl.constexpr):
    """Return heads [R, D] with their norm, if there is one, and adjacent pairs turned; rounded.

    heads and weight point to the first numbers of each head, [R, 1]; angles to a position's.
    """
    x = tl.load(heads + dim[None, :], mask=mask, other=0.0).to(tl.float32)
    other = tl.load(heads + (dim ^ 1)[None, :], mask=mask, other=0.0).to(tl.float32)
    if weight is not None:
        scale = tl.rsqrt(tl.sum(x * x, axis=1) / HEAD_DIM + eps)[:, None]
        factor = tl.load(weight + dim[None, :], mask=mask, other=0.0).to(tl.float32)
        other_factor = tl.load(weight + (dim ^ 1)[None, :], mask=mask, other=0.0).to(tl.float32)
        x = (x * scale * factor).to(dtype).to(tl.float32)
        other = (other * scale * other_factor).to(dtype).to(tl.float32)
    cos = tl.load(angles + (dim & -2), mask=dim < HEAD_DIM, other=0.0)[None, :]
    sin = tl.load(angles + (dim | 1), mask=dim < HEAD_DIM, other=0.0)[None, :]
    return (x * cos + tl.where(dim % 2 == 0, -other, other) * sin).to(dtype)


@triton.jit(do_not_specialize=["length", "num_parts"])
def _step_splits(
    qkv,
    rope,
    weight,
    keys,
    values,
    position,
    mixed_out,
    peaks_out,
    weights_out,
    scale,
    eps,
    length,
    num_parts,
    qkv_row,
    cache_stream,
    cache_head,
    cache_position,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Attend with the query heads of one key head over one split of one stream per program."""
    kv_head, split = tl.program_id(0), tl.program_id(2)
    stream = tl.program_id(1).to(tl.int64)
    last = tl.minimum(tl.load(position + stream).to(tl.int32), length - 1)
    first = split * SPLIT
    if first > last:
        return
    dtype = qkv.dtype.element_ty
    cached = keys.dtype.element_ty
    row, dim, one = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, 1)
    in_head = (dim < HEAD_DIM)[None, :]
    in_query = (row < GROUP)[:, None] & in_head
    head, key_head = kv_head * GROUP + row, HEADS + kv_head + one
    source, angles = qkv + stream * qkv_row, rope + last.to(tl.int64) * HEAD_DIM
    if weight is not None:
        norms = weight + (head * HEAD_DIM)[:, None]
        key_norms = weight + (key_head * HEAD_DIM)[:, None]
    else:
        norms = None
        key_norms = None
    query_at = source + (head * HEAD_DIM)[:, None]
    query = _turned(query_at, norms, angles, dim, in_query, eps, HEAD_DIM, dtype).to(cached)
    cache = stream * cache_stream + kv_head * cache_head
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    end = tl.minimum(last, first + SPLIT)  # what is there already
    for start in range(first, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen = at < end
        place = cache + at[:, None] * cache_position + dim[None, :]
        k = tl.load(keys + place, mask=seen[:, None] & in_head, other=0.0)
        v = tl.load(values + place, mask=seen[:, None] & in_head, other=0.0)
        peak, total, mixed = attend_block(query, k, v, seen, scale, peak, total, mixed, WIDE)
    if last < first + SPLIT:
        # The new position, from registers: no program may read what another one writes.
        key_at = source + (key_head * HEAD_DIM)[:, None]
        value_at = key_at + (HEADS // GROUP) * HEAD_DIM + dim[None, :]
        key = _turned(key_at, key_norms, angles, dim, in_head, eps, HEAD_DIM, dtype).to(cached)
        value = tl.load(value_at, mask=in_head, other=0.0).to(cached)
        place = cache + last * cache_position + dim[None, :]
        tl.store(keys + place, key, mask=in_head)
        tl.store(values + place, value, mask=in_head)
        score = tl.sum(query.to(tl.float32) * key.to(tl.float32), axis=1) * scale
        higher = tl.maximum(peak, score)
        carried, share = tl.exp2(peak - higher), tl.exp2(score - higher)
        total = total * carried + share
        mixed = mixed * carried[:, None] + share[:, None] * value.to(tl.float32)
        peak = higher
    part = (stream * HEADS + head) * num_parts + split
    tl.store(peaks_out + part, peak, mask=row < GROUP)
    tl.store(weights_out + part, total, mask=row < GROUP)
    tl.store(mixed_out + part[:, None] * HEAD_DIM + dim[None, :], mixed, mask=in_query)
