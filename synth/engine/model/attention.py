"""Attend: one query per stream over a cache, in one pass or in fixed splits, or a prompt."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SPLIT_POSITIONS = 256  # of one split of `split_attention`
_FEW_STREAMS = 3  # below it there is nothing to win by turning a product round


def step_mask(position: Tensor, length: int) -> Tensor:
    """Return what `step_attention` adds to scores: float32 [B, 1, 1, S], 0 up to the position.

    Everything behind a stream's own position is minus infinity; position is int64 [B].
    """
    seen = torch.arange(length, device=position.device) <= position.unsqueeze(1)
    mask = torch.zeros(seen.shape, device=position.device).masked_fill_(~seen, float("-inf"))
    return mask[:, None, None, :]


def step_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attend with one query per stream over cached keys, all in float32 to one final cast.

    The query heads that share a key head are rows of one product, so nothing is repeated.

    Args:
        q: [B, H, D]; keys, values: [B, KV, S, D] with H a multiple of KV.
        mask: of `step_mask`, [B, 1, 1, S].

    Returns:
        [B, H * D] in q's dtype.
    """
    batch, heads, head_dim = q.shape
    grouped = (q.float() * head_dim**-0.5).view(batch, keys.shape[1], -1, head_dim)
    mixed: Tensor = _scores(grouped, keys.float(), mask).softmax(-1) @ values.float()
    return mixed.to(q.dtype).view(batch, heads * head_dim)


def _scores(grouped: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """Return the masked products of queries [B, KV, G, D] and keys, [B, KV, G, S]."""
    if grouped.shape[0] < _FEW_STREAMS:
        return (grouped @ keys.transpose(-1, -2)).add_(mask)
    # A CPU's library reads long keys a third faster when they are the product's left side.
    scores = (keys @ grouped.transpose(-1, -2)).transpose(-1, -2)
    return torch.add(scores, mask, out=torch.empty(scores.shape, device=scores.device))


def split_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attend as `step_attention`, in splits of SPLIT_POSITIONS that are merged in order.

    Every product has the same shape however long the cache is, and a split that a stream does not
    see changes none of its bits: the result does not depend on how far its neighbours are. The
    number of positions must be a multiple of SPLIT_POSITIONS.
    """
    batch, heads, head_dim = q.shape
    grouped = (q.float() * head_dim**-0.5).view(batch, keys.shape[1], -1, head_dim)
    peak = torch.full((*grouped.shape[:-1], 1), float("-inf"), device=q.device)
    weight, mixed = torch.zeros_like(peak), torch.zeros_like(grouped)
    for start in range(0, keys.shape[2], SPLIT_POSITIONS):
        part = slice(start, start + SPLIT_POSITIONS)
        scores = (grouped @ keys[:, :, part].float().transpose(-1, -2)).add_(mask[..., part])
        higher = torch.maximum(peak, scores.amax(-1, keepdim=True))  # finite: all see position 0
        carried, shares = (peak - higher).exp(), (scores - higher).exp()
        weight = weight * carried + shares.sum(-1, keepdim=True)
        mixed = mixed * carried + shares @ values[:, :, part].float()
        peak = higher
    return (mixed / weight).to(q.dtype).view(batch, heads * head_dim)


def prefill_mask(length: int, start: int, keys: Tensor) -> Tensor | None:
    """Return what `prefill_attention` adds to scores for `length` positions behind `start`.

    [S, start + S] in the dtype and on the device of the cache's keys: 0 up to a query's own
    position, minus infinity behind it. None without a start, which is plain causal attention.
    """
    if not start:
        return None
    shape = (length, start + length)
    later = torch.ones(shape, dtype=torch.bool, device=keys.device).triu(start + 1)
    return keys.new_zeros(shape).masked_fill_(later, float("-inf"))


def prefill_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attend with the last positions of streams over all of theirs, in the keys' dtype.

    Args:
        q: [B, S, H, D]; keys, values: [B, KV, T, D] with H a multiple of KV.
        mask: of `prefill_mask`, [S, T]; None means causal with T = S.

    Returns:
        [B, S, H * D] in q's dtype.
    """
    # A CPU's kernel lets query heads share a key head. On CUDA no fused kernel does with a mask:
    # there they are repeated.
    on_cpu, repeats = q.device.type == "cpu", q.shape[2] // keys.shape[1]
    if repeats > 1 and not on_cpu:
        keys, values = (each.repeat_interleave(repeats, dim=1) for each in (keys, values))
    mixed = F.scaled_dot_product_attention(
        q.to(keys.dtype).transpose(1, 2),
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,  # aligned with the first key: right where T = S alone
        enable_gqa=on_cpu,
    )
    return mixed.transpose(1, 2).flatten(-2).to(q.dtype)
