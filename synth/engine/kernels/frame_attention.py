"""Attend along the codebooks of one frame: a handful of keys, at a place the host knows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from synth.engine.kernels.attention import check_cache
from synth.engine.kernels.bench_cases import BATCHES, KernelCase, num_bytes, random

_MOST_POSITIONS = 32  # of a frame; all of them are in one program's hands


def frame_attention(
    q: Tensor, keys: Tensor, values: Tensor, position: int, *, span: int = 1
) -> Tensor:
    """Attend with each query over its frame's positions up to its own.

    Scores, shares and the result are rounded to q's dtype one after the other, as the weights were
    trained.

    Args:
        q: [B * span, H, D], `span` consecutive positions of each stream; D side by side.
        keys, values: one layer's cache [B, KV, K, D] in q's dtype or float32, H a multiple of KV,
            with the same strides; D side by side. Nothing behind a query's position is read.
        position: of each stream's first query, the same for all.

    Returns:
        [B * span, H * D] in q's dtype.
    """
    rows, heads, head_dim = q.shape
    streams, kv_heads, positions, _ = keys.shape
    check_cache(q, keys, values)
    assert rows == streams * span and heads % kv_heads == 0
    assert position + span <= positions <= _MOST_POSITIONS
    out = torch.empty(rows, heads * head_dim, device=q.device, dtype=q.dtype)
    _attend_frame[(heads, rows)](
        q,
        keys,
        values,
        out,
        position,
        head_dim**-0.5,
        q.stride(0),
        q.stride(1),
        *keys.stride()[:3],
        GROUP=heads // kv_heads,
        HEADS=heads,
        HEAD_DIM=head_dim,
        WIDTH=triton.next_power_of_2(head_dim),
        SPAN=span,
        POSITIONS=triton.next_power_of_2(positions),
        num_warps=1,
    )
    return out


def frame_attention_torch(
    q: Tensor, keys: Tensor, values: Tensor, position: int, *, span: int = 1
) -> Tensor:
    """Specify `frame_attention`."""
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


@triton.jit(do_not_specialize=["position"])
def _attend_frame(
    q,
    keys,
    values,
    out,
    position,
    scale,
    q_row,
    q_head,
    cache_stream,
    cache_head,
    cache_position,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    POSITIONS: tl.constexpr,
):
    """Attend with one head of one query per program."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    last = position + (row % SPAN).to(tl.int32)
    dtype = out.dtype.element_ty
    dim, at = tl.arange(0, WIDTH), tl.arange(0, POSITIONS)
    in_head = dim < HEAD_DIM
    seen = at <= last
    place = (row // SPAN) * cache_stream + (head // GROUP) * cache_head
    place += at[:, None] * cache_position + dim[None, :]
    in_cache = seen[:, None] & in_head[None, :]
    query = tl.load(q + row * q_row + head * q_head + dim, mask=in_head, other=0.0)
    k = tl.load(keys + place, mask=in_cache, other=0.0).to(tl.float32)
    v = tl.load(values + place, mask=in_cache, other=0.0).to(tl.float32)
    scores = tl.sum(query.to(tl.float32)[None, :] * k, axis=1).to(dtype).to(tl.float32)
    scores = (scores * scale).to(dtype).to(tl.float32)
    scores = tl.where(seen, scores, float("-inf"))
    shares = tl.exp(scores - tl.max(scores, axis=0))
    shares = (shares / tl.sum(shares, axis=0)).to(dtype).to(tl.float32)
    mixed = tl.sum(shares[:, None] * v, axis=0)
    tl.store(out + (row * HEADS + head) * HEAD_DIM + dim, mixed.to(dtype), mask=in_head)


def cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return what a benchmark runs: one layer of the full model, at a frame's last codebook."""
    return [_case(batch, device, dtype) for batch in BATCHES]


def _case(batch: int, device: torch.device, dtype: torch.dtype) -> KernelCase:
    q = random(batch, 32, 128, device=device, dtype=dtype)
    keys = random(batch, 8, 10, 128, device=device, dtype=dtype)
    values = keys.flip(-1).contiguous()
    return KernelCase(
        "frame_attention",
        f"{batch} streams, 10 positions",
        lambda: frame_attention(q, keys, values, 9),
        lambda: frame_attention_torch(q, keys, values, 9),
        num_bytes(keys, values) + 2 * num_bytes(q),
    )
