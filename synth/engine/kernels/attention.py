"""Attend with one query per stream over a cache, in splits of fixed size, merged in their order.

A stream's result depends on its own positions alone: not on its neighbours, not on how many splits
the cache has room for. Nothing behind a stream's position is read, whatever is there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from synth.engine.kernels.attention_kernels import attend_splits_kernel, merge_splits_kernel
from synth.engine.model.attention import SPLIT_POSITIONS

_BLOCK_BYTES = 128  # of a row over a block's positions: 64 of 16 bits, or 32 of float32
_MERGED_POSITIONS = 2048  # whose splits are added as one sum; fixed, so that every cache's order is
_USUAL_POSITIONS = 1200  # of a stream: a voice's prefix, a text and half of its speech
_MULTIPROCESSORS = 132  # of an H100 or H200
LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Hold what splits leave to be merged, all float32; what no split has written is not read.

    `mixed` [B, H, N, D], sums of values by shares; `peaks` [B, H, N], the largest score, times
    log2(e); `weights` [B, H, N], sums of the shares, which are 2 ** (score - peak).
    """

    mixed: Tensor
    peaks: Tensor
    weights: Tensor

    @classmethod
    def allocate(cls, q: Tensor, num_splits: int) -> Parts:
        """Return room for queries [B, H, D]."""
        shape = (*q.shape[:2], num_splits)
        peaks, weights = torch.empty(2, *shape, device=q.device, dtype=torch.float32)
        mixed = torch.empty(*shape, q.shape[2], device=q.device, dtype=torch.float32)
        return cls(mixed, peaks, weights)


def split_for(batch: int, kv_heads: int) -> int:
    """Return the positions of a split with which few streams still give every processor work.

    A stream's last bits then depend on the number of streams it is computed with, so that a strict
    state needs SPLIT_POSITIONS.
    """
    split = SPLIT_POSITIONS
    while split > 64 and batch * kv_heads * _USUAL_POSITIONS < split * _MULTIPROCESSORS:
        split //= 2
    return split


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, position: Tensor, *, split: int = SPLIT_POSITIONS
) -> Tensor:
    """Attend with each stream's query over its positions 0 to `position`, that one included.

    The grid depends on shapes alone and the positions are read on the device: one captured graph
    serves every length. Splits behind a stream's position end at once.

    Args:
        q: [B, H, D], D side by side.
        keys, values: one layer's cache [B, KV, S, D] in q's dtype or float32, H a multiple of KV,
            with the same strides; D side by side.
        position: int64 [B]; one beyond S - 1 is taken as S - 1.
        split: positions of a split, a multiple of 64; another number gives other last bits.

    Returns:
        [B, H * D] in q's dtype.
    """
    parts = Parts.allocate(q, triton.cdiv(keys.shape[2], split))
    attend_splits(q, keys, values, position, parts, split=split)
    return merge_splits(q, position, parts, keys.shape[2], split=split)


def decode_attention_torch(
    q: Tensor, keys: Tensor, values: Tensor, position: Tensor, *, split: int = SPLIT_POSITIONS
) -> Tensor:
    """Specify `decode_attention`: all in float32 to one final cast."""
    batch, heads, head_dim = q.shape
    length = keys.shape[2]
    last = position.clamp(max=length - 1)
    seen = torch.arange(length, device=q.device) <= last[:, None]
    grouped = (q.float() * head_dim**-0.5).view(batch, keys.shape[1], -1, head_dim)
    scores = grouped @ keys.float().transpose(-1, -2)
    scores = scores.masked_fill(~seen[:, None, None], float("-inf"))
    kept = values.float().masked_fill(~seen[:, None, :, None], 0.0)
    tops, sums, mixed = [], [], []
    for start in range(0, length, split):
        part = scores[..., start : start + split]
        top = part.amax(-1, keepdim=True)
        shares = (part - top.clamp(min=torch.finfo(torch.float32).min)).exp()
        tops.append(top)
        sums.append(shares.sum(-1, keepdim=True))
        mixed.append(shares @ kept[:, :, start : start + split])
    peak = torch.stack(tops).amax(0)
    factors = [(top - peak).exp() for top in tops]
    total = sum(m * f for m, f in zip(mixed, factors, strict=True))
    weight = sum(s * f for s, f in zip(sums, factors, strict=True))
    out: Tensor = total / weight
    return out.to(q.dtype).view(batch, heads * head_dim)


def attend_splits(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    parts: Parts,
    *,
    split: int,
    own_from: Tensor | None = None,
    group: Tensor | None = None,
    skip: int = 0,
) -> None:
    """Fill in the parts of every split that a stream sees, from part `skip` on.

    With `own_from` int64 [P] and `group` int64 [B], a stream of group g sees nothing before
    position own_from[g]; one of a group below 0 sees everything.
    """
    batch, heads, head_dim = q.shape
    kv_heads, length = keys.shape[1], keys.shape[2]
    check_cache(q, keys, values)
    block = block_positions(keys)
    assert heads % kv_heads == 0 and split % block == 0
    assert position.shape == (batch,) and position.is_contiguous()
    attend_splits_kernel[(kv_heads, batch, triton.cdiv(length, split))](
        q,
        keys,
        values,
        position,
        own_from,
        group,
        parts.mixed,
        parts.peaks,
        parts.weights,
        head_dim**-0.5 * LOG2_E,
        length,
        skip,
        parts.peaks.shape[2],
        q.stride(0),
        q.stride(1),
        *keys.stride()[:3],
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        ROWS=max(triton.next_power_of_2(heads // kv_heads), 16),
        HEAD_DIM=head_dim,
        WIDTH=max(triton.next_power_of_2(head_dim), 16),
        SPLIT=split,
        BLOCK=block,
        WIDE=needs_wide_products(keys),
        num_warps=4,
        num_stages=3,
    )


def merge_splits(
    q: Tensor,
    position: Tensor,
    parts: Parts,
    length: int,
    *,
    split: int,
    own_from: Tensor | None = None,
    group: Tensor | None = None,
    skip: int = 0,
) -> Tensor:
    """Return what the parts come to, [B, H * D] in q's dtype, added in their order.

    With a group, first the parts of the `own_from[g]` positions that it shares, then, from part
    `skip` on, the stream's own.
    """
    batch, heads, head_dim = q.shape
    out = torch.empty(batch, heads * head_dim, device=q.device, dtype=q.dtype)
    merge_splits_kernel[(heads, batch)](
        parts.mixed,
        parts.peaks,
        parts.weights,
        position,
        own_from,
        group,
        out,
        length,
        skip,
        parts.peaks.shape[2],
        HEADS=heads,
        HEAD_DIM=head_dim,
        WIDTH=triton.next_power_of_2(head_dim),
        SPLIT=split,
        CHUNK=triton.next_power_of_2(triton.cdiv(_MERGED_POSITIONS, split)),
        num_warps=4,
    )
    return out


def check_cache(q: Tensor, keys: Tensor, values: Tensor) -> None:
    """Stop a call whose layout the kernels do not read."""
    assert keys.shape == values.shape and keys.stride() == values.stride()
    assert keys.dtype == values.dtype and keys.dtype in (q.dtype, torch.float32)
    assert q.shape[-1] == keys.shape[-1] and q.stride(-1) == keys.stride(-1) == 1


def block_positions(keys: Tensor) -> int:
    """Return how many positions of a cache a program holds at once."""
    return _BLOCK_BYTES // keys.element_size()


def needs_wide_products(keys: Tensor) -> bool:
    """Say whether products must be of float32: Triton's interpreter has none of 16 bits."""
    return keys.dtype == torch.float32 or not keys.is_cuda
