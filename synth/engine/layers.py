"""Compute what both transformers share: norms, rotary embedding, attention, feed-forward.

Rounding follows the reference also in bfloat16, because its weights were trained with it; each
function says where a result is cast.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.config import TransformerConfig


class Embedding(nn.Module):
    """Look rows of a table up; nn.Embedding draws first values, which on meta costs a second."""

    def __init__(self, num_rows: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_rows, dim))

    def forward(self, rows: Tensor) -> Tensor:
        """Map int64 [...] to [..., dim]."""
        return F.embedding(rows, self.weight)


def rope_table(positions: Tensor, head_dim: int, base: float) -> Tensor:
    """Return cos and sin per position and pair, float32 [S, head_dim / 2, 2].

    The numbers have bfloat16 precision in every model dtype: the weights were trained so. Power,
    reciprocal and product are float32 each; other orders give other last bits before the rounding.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (base**exponents)
    angles = torch.outer(positions.to("cpu", torch.float32), frequencies)
    table = torch.stack([angles.cos(), angles.sin()], dim=-1).to(torch.bfloat16)
    return table.to(positions.device, torch.float32)


def apply_rope(x: Tensor, table: Tensor) -> Tensor:
    """Rotate adjacent pairs of x [..., head_dim] by a table that broadcasts to [..., D/2, 2].

    The rotation is float32, the result is cast back.
    """
    pairs = x.float().view(*x.shape[:-1], -1, 2)
    cos, sin = table[..., 0], table[..., 1]
    even, odd = pairs[..., 0], pairs[..., 1]
    rotated = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
    return rotated.flatten(-2).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last axis in float32, cast to x's dtype, and only then multiply by weight."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def head_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise q or k per head; unlike `rms_norm`, the weight is multiplied before the cast."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()
    return scaled.to(x.dtype)


def step_attention(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """Attend with one query per stream over cached keys, all in float32 to one final cast.

    Args:
        q: [B, H, D]; keys, values: [B, KV, S, D] with H a multiple of KV.
        visible: bool [B, S], True where a stream's cache holds a position it may see.

    Returns:
        [B, H * D] in q's dtype.
    """
    batch, heads, head_dim = q.shape
    scale = head_dim**-0.25  # on q and on k: the order in which the reference rounds
    grouped = q.float().view(batch, keys.shape[1], -1, head_dim) * scale
    scores = grouped @ (keys.float() * scale).transpose(-1, -2)
    weights = scores.masked_fill(~visible[:, None, None, :], float("-inf")).softmax(-1)
    mixed: Tensor = weights @ values.float()
    return mixed.to(q.dtype).view(batch, heads * head_dim)


def prefill_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attend with all positions of a prompt at once.

    Args:
        q: [B, S, H, D]; keys, values: [B, KV, T, D], T = S when mask is None.
        mask: bool [B, 1, S, T] of what may be seen; None means causal from the first position.

    Returns:
        [B, S, H * D] in q's dtype.
    """
    # Repeated heads keep the fused kernels available: with enable_gqa and a mask they are not.
    repeats = q.shape[2] // keys.shape[1]
    if repeats > 1:
        keys = keys.repeat_interleave(repeats, dim=1)
        values = values.repeat_interleave(repeats, dim=1)
    mixed = F.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, attn_mask=mask, is_causal=mask is None
    )
    return mixed.transpose(1, 2).flatten(-2)


class Attention(nn.Module):
    """Hold one layer's projections and optional q/k norms; the caller does the attending."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.n_head, self.n_local_heads = config.n_head, config.n_local_heads
        self.head_dim = config.head_dim
        q_size, kv_size = self.n_head * self.head_dim, self.n_local_heads * self.head_dim
        self.wqkv = nn.Linear(config.dim, q_size + 2 * kv_size, bias=config.attention_qkv_bias)
        self.wo = nn.Linear(q_size, config.dim, bias=config.attention_o_bias)
        self.q_norm = nn.RMSNorm(self.head_dim) if config.attention_qk_norm else None
        self.k_norm = nn.RMSNorm(self.head_dim) if config.attention_qk_norm else None

    def project(self, x: Tensor, rope: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return q [..., H, D], k and v [..., KV, D] of x [..., width], q and k rotated.

        `rope` is the table of x's positions, broadcastable to [..., 1, D / 2, 2].
        """
        heads = [self.n_head, self.n_local_heads, self.n_local_heads]
        qkv: Tensor = self.wqkv(x)
        q, k, v = torch.split(qkv.view(*x.shape[:-1], sum(heads), self.head_dim), heads, dim=-2)
        if self.q_norm is not None and self.k_norm is not None:
            q = head_norm(q, self.q_norm.weight, eps)
            k = head_norm(k, self.k_norm.weight, eps)
        return apply_rope(q, rope), apply_rope(k, rope), v


class FeedForward(nn.Module):
    """Compute w2(silu(w1 x) * w3 x); `fuse` joins the first two matrices after loading."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.w1: nn.Linear | None = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w3: nn.Linear | None = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.dim, bias=False)
        self.w13: Tensor | None = None

    def fuse(self) -> None:
        """Replace w1 and w3 by one matrix [2 * intermediate, D]; a second call does nothing."""
        if self.w1 is not None and self.w3 is not None:
            self.w13 = torch.cat([self.w1.weight, self.w3.weight])
            self.w1 = self.w3 = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output in x's dtype and shape."""
        if self.w13 is None:
            raise RuntimeError("FeedForward.fuse() has not been called")
        gate, up = F.linear(x, self.w13).chunk(2, dim=-1)
        out: Tensor = self.w2(F.silu(gate) * up)
        return out


class Block(nn.Module):
    """Hold one transformer layer's weights and compute all of it but the attending."""

    def __init__(self, config: TransformerConfig, norm_eps: float) -> None:
        super().__init__()
        self.norm_eps = norm_eps
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.RMSNorm(config.dim)
        self.ffn_norm = nn.RMSNorm(config.dim)

    def project(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v of the normalised input; shapes as in `Attention.project`."""
        normed = rms_norm(x, self.attention_norm.weight, self.norm_eps)
        return self.attention.project(normed, rope, self.norm_eps)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the attention's output [..., H * D] and the feed-forward to x [..., width]."""
        h = x + self.attention.wo(mixed)
        out: Tensor = h + self.feed_forward(rms_norm(h, self.ffn_norm.weight, self.norm_eps))
        return out
