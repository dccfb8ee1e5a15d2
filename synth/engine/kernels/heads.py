"""Normalise and rotate the heads of a joined projection and write keys and values, in one kernel.

A row of the projection [rows, (H + 2 * KV) * D] holds a position's query heads, then its key heads,
then its value heads. Rows come stream by stream, `span` consecutive positions of each.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor


def write_heads(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor | int,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    span: int = 1,
) -> Tensor:
    """Return the queries; write keys and values at their positions into one layer's cache.

    Args:
        qkv: [B * span, (H + 2 * KV) * D], D even.
        rope: the table of all positions, float32 [S or more, D / 2, 2], of cos and sin.
        keys, values: [B, KV, S, D], views with any strides but D's, which is 1; written in place.
        position: of each stream's first row: int64 [B], read on the device, or one number for all.
            A position beyond S - 1 is taken as S - 1.
        weight: of the norm of every query and key head, [H + KV, D], multiplied before the cast;
            None means no norm.

    Returns:
        The queries [B * span, H, D] in qkv's dtype.
    """
    streams, kv_heads, positions, head_dim = keys.shape
    heads = qkv.shape[1] // head_dim - 2 * kv_heads
    assert qkv.shape == (streams * span, (heads + 2 * kv_heads) * head_dim)
    assert keys.stride() == values.stride() and keys.stride(-1) == 1 and qkv.stride(-1) == 1
    assert rope.is_contiguous() and (weight is None or weight.is_contiguous())
    queries = torch.empty(qkv.shape[0], heads, head_dim, device=qkv.device, dtype=qkv.dtype)
    read = isinstance(position, Tensor)
    _write_heads[(qkv.shape[0], heads + 2 * kv_heads)](
        qkv,
        rope,
        weight,
        queries,
        keys,
        values,
        position if read else None,
        0 if read else position,
        positions - 1,
        qkv.stride(0),
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        SPAN=span,
        BLOCK=triton.next_power_of_2(head_dim),
        num_warps=1,
    )
    return queries


def write_heads_torch(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor | int,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    span: int = 1,
) -> Tensor:
    """Specify `write_heads`."""
    streams, kv_heads, positions, head_dim = keys.shape
    heads = qkv.view(streams, span, -1, head_dim)
    rotated = heads.shape[2] - kv_heads
    both, v = heads[:, :, :rotated], heads[:, :, rotated:]
    if weight is not None:
        wide = F.rms_norm(both.float(), (head_dim,), None, eps) * weight.float()
        both = wide.to(qkv.dtype)
    first = torch.as_tensor(position, device=qkv.device).expand(streams)
    at = first[:, None] + torch.arange(span, device=qkv.device)
    at = at.clamp(max=positions - 1)
    cos, sin = rope[at].unsqueeze(2).unbind(-1)  # [B, span, 1, D / 2]
    even, odd = both.float().view(*both.shape[:-1], -1, 2).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    both = turned.flatten(-2).to(qkv.dtype)
    stream = torch.arange(streams, device=qkv.device)[:, None]
    keys[stream, :, at] = both[:, :, -kv_heads:].to(keys.dtype)
    values[stream, :, at] = v.to(values.dtype)
    return both[:, :, :-kv_heads].flatten(0, 1)


@triton.jit(do_not_specialize=["start"])
def _write_heads(
    qkv,
    rope,
    weight,
    queries,
    keys,
    values,
    position,
    start,
    last,
    row_stride,
    stream_stride,
    head_stride,
    position_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Handle one head of one row per program."""
    row, head = tl.program_id(0), tl.program_id(1)
    stream = row // SPAN
    column = tl.arange(0, BLOCK)
    inside = column < HEAD_DIM
    dtype = qkv.dtype.element_ty
    source = qkv + row.to(tl.int64) * row_stride + head * HEAD_DIM + column
    value = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    if position is not None:
        at = tl.load(position + stream).to(tl.int64) + row % SPAN
    else:
        at = (start + row % SPAN).to(tl.int64)
    at = tl.minimum(at, last)
    if head < HEADS + KV_HEADS:
        if weight is not None:
            scale = tl.rsqrt(tl.sum(value * value, axis=0) / HEAD_DIM + eps)
            factor = tl.load(weight + head * HEAD_DIM + column, mask=inside, other=0.0)
            value = (value * scale * factor.to(tl.float32)).to(dtype).to(tl.float32)
        angle = tl.load(rope + at * HEAD_DIM + column, mask=inside, other=0.0)
        cos, sin = tl.split(tl.reshape(angle, [BLOCK // 2, 2]))
        even, odd = tl.split(tl.reshape(value, [BLOCK // 2, 2]))
        value = tl.interleave(even * cos - odd * sin, even * sin + odd * cos)
    value = value.to(dtype)
    if head < HEADS:
        place = queries + (row.to(tl.int64) * HEADS + head) * HEAD_DIM + column
        tl.store(place, value, mask=inside)
    else:
        offset = stream.to(tl.int64) * stream_stride + at * position_stride + column
        offset += ((head - HEADS) % KV_HEADS).to(tl.int64) * head_stride
        if head < HEADS + KV_HEADS:
            tl.store(keys + offset, value.to(keys.dtype.element_ty), mask=inside)
        else:
            tl.store(values + offset, value.to(values.dtype.element_ty), mask=inside)
