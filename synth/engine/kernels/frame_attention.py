"""Attend along the codebooks of one frame: a handful of keys, at a place the host knows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

_MOST_POSITIONS = 32  # of a frame; all of them are in one program's hands


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
    """Return the queries [B * span, H, D]; write keys and values into one layer's cache.

    A row of qkv [B * span, (H + 2 * KV) * D] holds a position's query heads, then its key heads,
    then its value heads. Rows come stream by stream, `span` consecutive positions of each.

    Args:
        rope: the table of all positions, float32 [S or more, D / 2, 2], of cos and sin.
        keys, values: [B, KV, S, D]; written in place.
        position: of each stream's first row: int64 [B], or one number for all. A position beyond
            S - 1 is taken as S - 1.
        weight: of the norm of every query and key head, [H + KV, D], multiplied before the cast;
            None means no norm.
    """
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


def frame_attention_torch(
    q: Tensor, keys: Tensor, values: Tensor, position: int, *, span: int = 1
) -> Tensor:
    """Attend with each query [B * span, H, D] over its frame's positions up to its own.

    Scores, shares and the result are rounded to q's dtype one after the other, as the weights were
    trained; arguments as for `step_frame`.
    """
    rows, heads, head_dim = q.shape
    streams, kv_heads, _, _ = keys.shape
    grouped = q.view(streams, span, kv_heads, -1, head_dim)
    mixed = torch.empty_like(grouped)
    for nth in range(span):
        upto = position + nth + 1
        wide = grouped[:, nth].to(keys.dtype)
        scores = (wide @ keys[:, :, :upto].transpose(-1, -2)).to(q.dtype) * head_dim**-0.5
        mixed[:, nth] = scores.softmax(-1).to(keys.dtype) @ values[:, :, :upto]
    return mixed.view(rows, heads * head_dim)


def step_frame(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: int,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    span: int = 1,
) -> Tensor:
    """Normalise and rotate heads, write keys and values and attend up to each query's position.

    A program does not wait for what another one writes: it computes the new keys it attends to by
    itself.

    Args:
        qkv: [B * span, (H + 2 * KV) * D], a position's query heads, key heads and value heads, side
            by side; D even.
        rope: the table of a frame's positions, float32 [K, D / 2, 2], of cos and sin.
        keys, values: one layer's cache [B, KV, K, D] in qkv's dtype or float32, H a multiple of KV,
            with the same strides; D side by side. Written from `position` on; nothing behind a
            query's position is read.
        position: of each stream's first query, the same for all.
        weight: of the norm of every query and key head, [H + KV, D], multiplied before the cast;
            None means no norm.
        span: 1 or 2, consecutive positions of each stream.

    Returns:
        [B * span, H * D] in qkv's dtype.
    """
    rows, width = qkv.shape
    streams, kv_heads, positions, head_dim = keys.shape
    heads = width // head_dim - 2 * kv_heads
    assert rows == streams * span and span in (1, 2) and position + span <= positions
    assert width == (heads + 2 * kv_heads) * head_dim and heads % kv_heads == 0
    assert keys.stride() == values.stride() and keys.stride(-1) == qkv.stride(-1) == 1
    assert rope.is_contiguous() and positions <= _MOST_POSITIONS and head_dim % 2 == 0
    assert weight is None or weight.is_contiguous()
    out = torch.empty(rows, heads * head_dim, device=qkv.device, dtype=qkv.dtype)
    _step_frame[(heads, rows)](
        qkv, rope, weight, keys, values, out, position, head_dim**-0.5, eps, qkv.stride(0),
        *keys.stride()[:3], GROUP=heads // kv_heads, HEADS=heads, KV_HEADS=kv_heads,
        HEAD_DIM=head_dim, WIDTH=triton.next_power_of_2(head_dim), SPAN=span,
        POSITIONS=triton.next_power_of_2(positions), num_warps=1,
    )  # fmt: skip
    return out


def step_frame_torch(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: int,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    span: int = 1,
) -> Tensor:
    queries = write_heads_torch(
        qkv, rope, keys, values, position, weight=weight, eps=eps, span=span
    )
    return frame_attention_torch(queries, keys, values, position, span=span)


@triton.jit
def _attend(query, k, v, seen, scale, dtype: tl.constexpr):
    """Attend with a query [D] over k and v [N, D], all float32, rounded to a dtype at each step."""
    scores = tl.sum(query[None, :] * k, axis=1).to(dtype).to(tl.float32)
    scores = (scores * scale).to(dtype).to(tl.float32)
    scores = tl.where(seen, scores, float("-inf"))
    shares = tl.exp(scores - tl.max(scores, axis=0))
    shares = (shares / tl.sum(shares, axis=0)).to(dtype).to(tl.float32)
    return tl.sum(shares[:, None] * v, axis=0).to(dtype)


@triton.jit
def _rotate_head(heads, norm, rope, dim, in_head, eps, HEAD_DIM: tl.constexpr, dtype: tl.constexpr):
    """Return a head [D] with its norm, if there is one, and adjacent pairs turned; rounded."""
    x = tl.load(heads + dim, mask=in_head, other=0.0).to(tl.float32)
    other = tl.load(heads + (dim ^ 1), mask=in_head, other=0.0).to(tl.float32)
    if norm is not None:
        scale = tl.rsqrt(tl.sum(x * x, axis=0) / HEAD_DIM + eps)
        factor = tl.load(norm + dim, mask=in_head, other=0.0).to(tl.float32)
        other_factor = tl.load(norm + (dim ^ 1), mask=in_head, other=0.0).to(tl.float32)
        x = (x * scale * factor).to(dtype).to(tl.float32)
        other = (other * scale * other_factor).to(dtype).to(tl.float32)
    cos = tl.load(rope + (dim & -2), mask=in_head, other=0.0)
    sin = tl.load(rope + (dim | 1), mask=in_head, other=0.0)
    return (x * cos + tl.where(dim % 2 == 0, -other, other) * sin).to(dtype)


@triton.jit(do_not_specialize=["position"])
def _step_frame(
    qkv, rope, weight, keys, values, out, position, scale, eps, qkv_row, cache_stream, cache_head,
    cache_position, GROUP: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Attend with one head of one row per program; the first of a group writes for all of it."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    kv_head, mine = head // GROUP, (row % SPAN).to(tl.int32)
    dtype = out.dtype.element_ty
    cached = keys.dtype.element_ty
    dim, at = tl.arange(0, WIDTH), tl.arange(0, POSITIONS)
    in_head = dim < HEAD_DIM
    cache = (row // SPAN) * cache_stream + kv_head * cache_head + dim
    before = (at < position)[:, None] & in_head[None, :]
    k = tl.load(keys + cache[None, :] + at[:, None] * cache_position, mask=before, other=0.0)
    v = tl.load(values + cache[None, :] + at[:, None] * cache_position, mask=before, other=0.0)
    if weight is not None:
        norm = weight + head * HEAD_DIM
        key_norm = weight + (HEADS + kv_head) * HEAD_DIM
    else:
        norm = None
        key_norm = None
    for nth in tl.static_range(SPAN):
        source = qkv + (row - mine + nth) * qkv_row
        table = rope + (position + nth) * HEAD_DIM
        key_at = source + (HEADS + kv_head) * HEAD_DIM
        value_at = source + (HEADS + KV_HEADS + kv_head) * HEAD_DIM
        key = _rotate_head(key_at, key_norm, table, dim, in_head, eps, HEAD_DIM, dtype).to(cached)
        value = tl.load(value_at + dim, mask=in_head, other=0.0).to(cached)
        new = (at == position + nth)[:, None]
        k, v = tl.where(new, key[None, :], k), tl.where(new, value[None, :], v)
        if (head % GROUP == 0) & (mine == nth):
            tl.store(keys + cache + (position + nth) * cache_position, key, mask=in_head)
            tl.store(values + cache + (position + nth) * cache_position, value, mask=in_head)
    query_at = qkv + row * qkv_row + head * HEAD_DIM
    table = rope + (position + mine) * HEAD_DIM
    query = _rotate_head(query_at, norm, table, dim, in_head, eps, HEAD_DIM, dtype)
    k, v = k.to(tl.float32), v.to(tl.float32)
    mixed = _attend(query.to(tl.float32), k, v, at <= position + mine, scale, dtype)
    tl.store(out + (row * HEADS + head) * HEAD_DIM + dim, mixed, mask=in_head)


def check_cache(q: Tensor, keys: Tensor, values: Tensor) -> None:
    """Stop a call whose layout the kernels do not read."""
    assert keys.shape == values.shape and keys.stride() == values.stride()
    assert keys.dtype == values.dtype and keys.dtype in (q.dtype, torch.float32)
    assert q.shape[-1] == keys.shape[-1] and q.stride(-1) == keys.stride(-1) == 1
