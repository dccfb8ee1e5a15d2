"""Attend over caches of streams: with a step's one query each, and with prompts' many.

A step attends in splits of fixed size, merged in their order. One kernel does what stands between
its projection and the merge: heads are normalised and rotated, the new key and value are written
and every split attends. A stream's result depends on its own positions alone: not on its
neighbours, not on how many splits the cache has room for.
Nothing behind a stream's position is read, whatever is there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from synth.engine.model.layers import PASS_ALIGNMENT, SPLIT_POSITIONS

_BLOCK_BYTES = 128  # of a row over a block's positions: 64 of 16 bits, or 32 of float32
_MERGED_POSITIONS = 2048  # whose splits are added as one sum; fixed, so that every cache's order is
_USUAL_POSITIONS = 1200  # of a stream: a voice's prefix, a text and half of its speech
_LOG2_E = 1.4426950408889634


def split_for(batch: int, kv_heads: int, processors: int) -> int:
    """Return the positions of a split with which few streams give all multiprocessors work.

    A stream's last bits then depend on the number of streams it is computed with, so that a strict
    state needs SPLIT_POSITIONS.
    """
    split = SPLIT_POSITIONS
    while split > 64 and batch * kv_heads * _USUAL_POSITIONS < split * processors:
        split //= 2
    return split


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

    The grid depends on shapes alone and the positions are read on the device: one captured graph
    serves every length. Splits behind a stream's position end at once.

    Args:
        qkv: [B, (H + 2 * KV) * D], a stream's query heads, key heads and value heads, side by side;
            D even.
        rope: the table of all positions, float32 [S or more, D / 2, 2], of cos and sin.
        keys, values: one layer's cache [B, KV, S, D] in qkv's dtype or float32, with the same
            strides; D side by side.
        position: int64 [B]; one beyond S - 1 is taken as S - 1.
        weight: of the norm of every query and key head, [H + KV, D], multiplied before the cast;
            None means no norm.
        split: positions of a split, a multiple of 64; another number gives other last bits.

    Returns:
        [B, H * D] in qkv's dtype.
    """
    batch, width = qkv.shape
    _, kv_heads, length, head_dim = keys.shape
    heads = width // head_dim - 2 * kv_heads
    assert keys.shape == values.shape and keys.stride() == values.stride()
    assert keys.dtype == values.dtype and keys.dtype in (qkv.dtype, torch.float32)
    assert qkv.stride(-1) == keys.stride(-1) == 1
    assert width == (heads + 2 * kv_heads) * head_dim and heads % kv_heads == 0
    block = _BLOCK_BYTES // keys.element_size()
    assert head_dim % 2 == 0 and split % block == 0
    assert rope.is_contiguous() and (weight is None or weight.is_contiguous())
    assert position.shape == (batch,) and position.is_contiguous()
    # What splits leave to be merged, float32; what no split has written is not read: sums of values
    # by shares; the largest score, times log2(e), and the sums of the shares, 2 ** (score - peak).
    shape = (batch, heads, triton.cdiv(length, split))
    mixed = qkv.new_empty(*shape, head_dim, dtype=torch.float32)
    peaks, weights = qkv.new_empty(2, *shape, dtype=torch.float32)
    _step_splits[(kv_heads, batch, shape[2])](
        qkv, rope, weight, keys, values, position, mixed, peaks, weights,
        head_dim**-0.5 * _LOG2_E, eps, length, shape[2], qkv.stride(0), *keys.stride()[:3],
        HEADS=heads, GROUP=heads // kv_heads,
        ROWS=max(triton.next_power_of_2(heads // kv_heads), 16), HEAD_DIM=head_dim,
        WIDTH=max(triton.next_power_of_2(head_dim), 16), SPLIT=split, BLOCK=block,
        # Triton's interpreter has no products of 16 bits.
        WIDE=keys.dtype == torch.float32 or not keys.is_cuda, num_warps=4,
        num_stages=min(split // block, 3),  # a split of one block has nothing to read ahead
    )  # fmt: skip
    out = qkv.new_empty(batch, heads * head_dim)
    _merge_kernel[(heads, batch)](
        mixed, peaks, weights, position, out, length, shape[2],
        HEADS=heads, HEAD_DIM=head_dim, WIDTH=triton.next_power_of_2(head_dim), SPLIT=split,
        CHUNK=triton.next_power_of_2(triton.cdiv(_MERGED_POSITIONS, split)), num_warps=4,
    )  # fmt: skip
    return out


def write_prompts(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    *,
    slots: Tensor,
    weight: Tensor | None = None,
    eps: float = 0.0,
) -> None:
    """Write the key and the value of each column of a pass into one layer's cache.

    Args:
        qkv: [N, (H + 2 * KV) * D] of the columns; rope, keys, values, weight and eps as for
            `step_attention`.
        positions: int64 [N], -1 for a row that is nothing; slots: int64 [N], of the cache.
    """
    heads, kv_heads, head_dim = _check_pass(qkv, rope, keys, values, positions, slots, weight)
    _write_heads[(qkv.shape[0],)](
        qkv, rope, weight, keys, values, positions, slots, eps, qkv.stride(0), *keys.stride()[:3],
        HEADS=heads, KV_HEADS=kv_heads, ROWS=triton.next_power_of_2(kv_heads), HEAD_DIM=head_dim,
        WIDTH=triton.next_power_of_2(head_dim), num_warps=4,
    )  # fmt: skip


def prompt_attention(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    *,
    slots: Tensor,
    weight: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Write as `write_prompts` and attend from each column up to and with its own position.

    A block of PASS_ALIGNMENT rows is of one slot, its positions consecutive and what is nothing at
    its end. What a slot holds before them, as a copied prefix, is attended to like the pass's own.

    Returns:
        [N, H * D] in qkv's dtype; of what is nothing, any finite numbers.
    """
    write_prompts(qkv, rope, keys, values, positions, slots=slots, weight=weight, eps=eps)
    heads, kv_heads, head_dim = _check_pass(qkv, rope, keys, values, positions, slots, weight)
    assert qkv.shape[0] % PASS_ALIGNMENT == 0
    group = heads // kv_heads
    out = qkv.new_empty(qkv.shape[0], heads * head_dim)
    _attend_prompts[(kv_heads, qkv.shape[0] // PASS_ALIGNMENT)](
        qkv, rope, weight, keys, values, positions, slots, out, head_dim**-0.5 * _LOG2_E, eps,
        qkv.stride(0), *keys.stride()[:3], HEADS=heads, GROUP=group, QUERIES=PASS_ALIGNMENT,
        ROWS=triton.next_power_of_2(PASS_ALIGNMENT * group), HEAD_DIM=head_dim,
        WIDTH=max(triton.next_power_of_2(head_dim), 16),
        BLOCK=_BLOCK_BYTES // keys.element_size(),
        # Triton's interpreter has no products of 16 bits.
        WIDE=keys.dtype == torch.float32 or not keys.is_cuda, num_warps=4, num_stages=2,
    )  # fmt: skip
    return out


def _check_pass(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    slots: Tensor,
    weight: Tensor | None,
) -> tuple[int, int, int]:
    """Return the numbers of heads and of key heads and a head's size."""
    rows, width = qkv.shape
    kv_heads, head_dim = keys.shape[1], keys.shape[3]
    heads = width // head_dim - 2 * kv_heads
    assert keys.shape == values.shape and keys.stride() == values.stride()
    assert keys.dtype == values.dtype and keys.dtype in (qkv.dtype, torch.float32)
    assert qkv.stride(-1) == keys.stride(-1) == 1 and head_dim % 2 == 0
    assert width == (heads + 2 * kv_heads) * head_dim and heads % kv_heads == 0
    assert rope.is_contiguous() and (weight is None or weight.is_contiguous())
    assert positions.shape == slots.shape == (rows,)
    assert positions.is_contiguous() and slots.is_contiguous()
    return heads, kv_heads, head_dim


@triton.jit
def _turn_heads(heads, weight, angles, dim, mask, eps, HEAD_DIM: tl.constexpr, dtype: tl.constexpr):
    """Return heads [R, D] with their norm, if there is one, and adjacent pairs turned; rounded.

    heads and weight point to the first numbers of each head, [R, 1]; angles to those of a position,
    of all heads or of each.
    """
    x = tl.load(heads + dim[None, :], mask=mask, other=0.0).to(tl.float32)
    other = tl.load(heads + (dim ^ 1)[None, :], mask=mask, other=0.0).to(tl.float32)
    if weight is not None:
        scale = tl.rsqrt(tl.sum(x * x, axis=1) / HEAD_DIM + eps)[:, None]
        factor = tl.load(weight + dim[None, :], mask=mask, other=0.0).to(tl.float32)
        other_factor = tl.load(weight + (dim ^ 1)[None, :], mask=mask, other=0.0).to(tl.float32)
        x = (x * scale * factor).to(dtype).to(tl.float32)
        other = (other * scale * other_factor).to(dtype).to(tl.float32)
    inside = (dim < HEAD_DIM)[None, :]
    cos = tl.load(angles + (dim & -2)[None, :], mask=inside, other=0.0)
    sin = tl.load(angles + (dim | 1)[None, :], mask=inside, other=0.0)
    return (x * cos + tl.where(dim % 2 == 0, -other, other) * sin).to(dtype)


@triton.jit
def _dot(a, b, WIDE: tl.constexpr):
    """Multiply with float32 sums; operands of 16 bits give the same products either way."""
    if WIDE:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b)


@triton.jit
def _attend_block(query, k, v, seen, scale, peak, weight, mixed, WIDE: tl.constexpr):
    """Add a block of positions to running results: query [R, D], k, v [N, D], seen [R or 1, N]."""
    scores = _dot(query, tl.trans(k), WIDE) * scale
    scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, axis=1))
    carried = tl.exp2(peak - higher)
    shares = tl.exp2(scores - higher[:, None])
    weight = weight * carried + tl.sum(shares, axis=1)
    # A share is rounded to the cache's dtype and what that cut off is added by a second product:
    # with 16 bits the result is as good as float32's, and the tensor cores are idle anyway.
    coarse = shares.to(k.dtype)
    mixed = mixed * carried[:, None] + _dot(coarse, v, WIDE)
    if k.dtype != tl.float32:
        mixed += _dot((shares - coarse.to(tl.float32)).to(k.dtype), v, WIDE)
    return higher, weight, mixed


@triton.jit(do_not_specialize=["length", "num_parts"])
def _step_splits(
    qkv, rope, weight, keys, values, position, mixed_out, peaks_out, weights_out, scale, eps,
    length, num_parts, qkv_row, cache_stream, cache_head, cache_position, HEADS: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
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
    query = _turn_heads(query_at, norms, angles, dim, in_query, eps, HEAD_DIM, dtype).to(cached)
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
        peak, total, mixed = _attend_block(
            query, k, v, seen[None, :], scale, peak, total, mixed, WIDE
        )
    if last < first + SPLIT:
        # The new position, from registers: no program may read what another one writes.
        key_at = source + (key_head * HEAD_DIM)[:, None]
        value_at = key_at + (HEADS // GROUP) * HEAD_DIM + dim[None, :]
        key = _turn_heads(key_at, key_norms, angles, dim, in_head, eps, HEAD_DIM, dtype).to(cached)
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


@triton.jit(do_not_specialize=["length", "num_parts"])
def _merge_kernel(
    mixed_in, peaks_in, weights_in, position, out, length, num_parts, HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, SPLIT: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Merge the parts of one head of one stream per program, CHUNK at a time."""
    head = tl.program_id(0)
    stream = tl.program_id(1).to(tl.int64)
    live = tl.minimum(tl.load(position + stream).to(tl.int32), length - 1) // SPLIT + 1
    begin = (stream * HEADS + head) * num_parts
    dim = tl.arange(0, WIDTH)
    peak = tl.full((), float("-inf"), tl.float32)
    weight = tl.zeros((), tl.float32)
    mixed = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, live, CHUNK):
        nth = start + tl.arange(0, CHUNK)
        there = nth < live
        part = begin + nth
        peaks = tl.load(peaks_in + part, mask=there, other=float("-inf"))
        weights = tl.load(weights_in + part, mask=there, other=0.0)
        rows = mixed_in + part[:, None] * HEAD_DIM + dim[None, :]
        values = tl.load(rows, mask=there[:, None] & (dim < HEAD_DIM)[None, :], other=0.0)
        higher = tl.maximum(peak, tl.max(peaks, axis=0))
        carried, factor = tl.exp2(peak - higher), tl.exp2(peaks - higher)
        weight = weight * carried + tl.sum(weights * factor, axis=0)
        mixed = mixed * carried + tl.sum(values * factor[:, None], axis=0)
        peak = higher
    target = out + (stream * HEADS + head) * HEAD_DIM + dim
    tl.store(target, (mixed / weight).to(out.dtype.element_ty), mask=dim < HEAD_DIM)


@triton.jit
def _write_heads(
    qkv, rope, weight, keys, values, positions, slots, eps, qkv_row, cache_stream, cache_head,
    cache_position, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Normalise, turn and write all key heads of one row per program, and write its values."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + row)
    if position < 0:
        return
    cached = keys.dtype.element_ty
    head, dim = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (head < KV_HEADS)[:, None] & (dim < HEAD_DIM)[None, :]
    key_at = qkv + row * qkv_row + ((HEADS + head) * HEAD_DIM)[:, None]
    if weight is not None:  # noqa: SIM108 - a conditional expression would compile both halves
        norms = weight + ((HEADS + head) * HEAD_DIM)[:, None]
    else:
        norms = None
    angles = rope + position * HEAD_DIM
    key = _turn_heads(key_at, norms, angles, dim, inside, eps, HEAD_DIM, qkv.dtype.element_ty)
    value = tl.load(key_at + KV_HEADS * HEAD_DIM + dim[None, :], mask=inside, other=0.0)
    cache = tl.load(slots + row) * cache_stream + position * cache_position
    place = cache + head[:, None] * cache_head + dim[None, :]
    tl.store(keys + place, key.to(cached), mask=inside)
    tl.store(values + place, value.to(cached), mask=inside)


@triton.jit
def _attend_prompts(
    qkv, rope, weight, keys, values, positions, slots, out, scale, eps, qkv_row, cache_stream,
    cache_head, cache_position, HEADS: tl.constexpr, GROUP: tl.constexpr, QUERIES: tl.constexpr,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Attend with the query heads of one key head from QUERIES rows of one slot per program."""
    kv_head, block = tl.program_id(0), tl.program_id(1).to(tl.int64)
    dtype = qkv.dtype.element_ty
    cached = keys.dtype.element_ty
    nth, dim = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    in_head = (dim < HEAD_DIM)[None, :]
    source = block * QUERIES + tl.minimum(nth // GROUP, QUERIES - 1)
    head = kv_head * GROUP + nth % GROUP
    is_own = (nth < QUERIES * GROUP)[:, None] & in_head
    # What is nothing behind a block's columns sees what its first one sees.
    seen_upto = tl.maximum(tl.load(positions + source), tl.load(positions + block * QUERIES))
    if weight is not None:  # noqa: SIM108 - as above
        norms = weight + (head * HEAD_DIM)[:, None]
    else:
        norms = None
    query_at = qkv + (source * qkv_row + head * HEAD_DIM)[:, None]
    angles = rope + (tl.maximum(seen_upto, 0) * HEAD_DIM)[:, None]
    query = _turn_heads(query_at, norms, angles, dim, is_own, eps, HEAD_DIM, dtype).to(cached)
    cache = tl.load(slots + block * QUERIES) * cache_stream + kv_head * cache_head
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    end = tl.max(seen_upto, axis=0).to(tl.int32) + 1  # 0 for a block of nothing
    for start in range(0, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = (at < end)[:, None] & in_head
        place = cache + at[:, None] * cache_position + dim[None, :]
        k = tl.load(keys + place, mask=there, other=0.0)
        v = tl.load(values + place, mask=there, other=0.0)
        seen = at[None, :] <= seen_upto[:, None]
        peak, total, mixed = _attend_block(query, k, v, seen, scale, peak, total, mixed, WIDE)
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    target = out + ((source * HEADS + head) * HEAD_DIM)[:, None] + dim[None, :]
    tl.store(target, mixed.to(dtype), mask=is_own)
