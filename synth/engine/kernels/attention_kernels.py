"""Compile what `synth.engine.kernels.attention` launches, and the step that others build on."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _dot(a, b, WIDE: tl.constexpr):
    """Multiply with float32 sums; operands of 16 bits give the same products either way."""
    if WIDE:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b)


@triton.jit
def attend_block(query, k, v, seen, scale, peak, weight, mixed, WIDE: tl.constexpr):
    """Add one block of positions to running results: query [R, D], k and v [N, D], seen [N]."""
    scores = _dot(query, tl.trans(k), WIDE) * scale
    scores = tl.where(seen[None, :], scores, float("-inf"))
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


@triton.jit(do_not_specialize=["length", "skip", "num_parts"])
def attend_splits_kernel(
    q,
    keys,
    values,
    position,
    own_from,
    group,
    mixed_out,
    peaks_out,
    weights_out,
    scale,
    length,
    skip,
    num_parts,
    q_stream,
    q_head,
    cache_stream,
    cache_head,
    cache_position,
    KV_HEADS: tl.constexpr,
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
    end = tl.minimum(tl.load(position + stream).to(tl.int32), length - 1) + 1
    end = tl.minimum(end, (split + 1) * SPLIT)
    first = split * SPLIT
    if group is not None:
        mine = tl.load(group + stream)
        first = tl.maximum(first, tl.load(own_from + mine, mask=mine >= 0, other=0).to(tl.int32))
    if first >= end:
        return
    row, dim = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    head = kv_head * GROUP + row
    in_query = (row < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    query_at = q + stream * q_stream + head[:, None] * q_head + dim[None, :]
    query = tl.load(query_at, mask=in_query, other=0.0).to(keys.dtype.element_ty)
    cache = stream * cache_stream + kv_head * cache_head
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(first, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen = at < end
        place = cache + at[:, None] * cache_position + dim[None, :]
        in_cache = seen[:, None] & (dim < HEAD_DIM)[None, :]
        k = tl.load(keys + place, mask=in_cache, other=0.0)
        v = tl.load(values + place, mask=in_cache, other=0.0)
        peak, weight, mixed = attend_block(query, k, v, seen, scale, peak, weight, mixed, WIDE)
    part = (stream * (KV_HEADS * GROUP) + head) * num_parts + skip + split
    tl.store(peaks_out + part, peak, mask=row < GROUP)
    tl.store(weights_out + part, weight, mask=row < GROUP)
    tl.store(mixed_out + part[:, None] * HEAD_DIM + dim[None, :], mixed, mask=in_query)


@triton.jit(do_not_specialize=["length", "skip", "num_parts"])
def merge_splits_kernel(
    mixed_in,
    peaks_in,
    weights_in,
    position,
    own_from,
    group,
    out,
    length,
    skip,
    num_parts,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Merge the parts of one head of one stream per program, CHUNK at a time."""
    head = tl.program_id(0)
    stream = tl.program_id(1).to(tl.int64)
    last = tl.minimum(tl.load(position + stream).to(tl.int32), length - 1)
    shared, first = 0, 0
    if group is not None:
        mine = tl.load(group + stream)
        before = tl.load(own_from + mine, mask=mine >= 0, other=0).to(tl.int32)
        shared, first = tl.cdiv(before, SPLIT), before // SPLIT
    live = shared + last // SPLIT + 1 - first
    begin = (stream * HEADS + head) * num_parts
    dim = tl.arange(0, WIDTH)
    peak = tl.full((), float("-inf"), tl.float32)
    weight = tl.zeros((), tl.float32)
    mixed = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, live, CHUNK):
        nth = start + tl.arange(0, CHUNK)
        there = nth < live
        part = begin + tl.where(nth < shared, nth, skip + first + nth - shared)
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
