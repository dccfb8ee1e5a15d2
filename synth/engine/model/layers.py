"""Compute what both transformers share: norms, rotary embedding, projections, feed-forward.

Rounding follows the reference also in bfloat16, because its weights were trained with it; each
function says where a result is cast.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.model.config import TransformerConfig
from synth.engine.model.linear import Linear, LinearForm, NativeGate, make_linear

SPLIT_POSITIONS = 256  # of one split of `split_attention`
PASS_ALIGNMENT = 16  # neighbours in a pass of prompts that are positions of one stream
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
    if batch < _FEW_STREAMS:
        scores = (grouped @ keys.float().transpose(-1, -2)).add_(mask)
    else:  # a CPU's library reads long keys a third faster when they are the product's left side
        turned = (keys.float() @ grouped.transpose(-1, -2)).transpose(-1, -2)
        scores = torch.add(turned, mask, out=torch.empty(turned.shape, device=turned.device))
    mixed: Tensor = scores.softmax(-1) @ values.float()
    return mixed.to(q.dtype).view(batch, heads * head_dim)


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

    Or by the same table as complex numbers [..., D/2]: that takes fewer steps, through which no
    gradient goes. The rotation is float32, the result is cast back.
    """
    if table.is_complex():
        return (x.float().view(torch.complex64) * table).view(torch.float32).to(x.dtype)
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    rotated = pairs * torch.view_as_complex(table)
    return torch.view_as_real(rotated).flatten(-2).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last axis in float32, cast to x's dtype, and only then multiply by weight."""
    wide = x.float()
    return (wide * _inverse_rms(wide, eps)).to(x.dtype) * weight


def head_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise q or k per head; unlike `rms_norm`, the weight is multiplied before the cast."""
    wide = x.float()
    return (wide * _inverse_rms(wide, eps) * weight.float()).to(x.dtype)


def _inverse_rms(wide: Tensor, eps: float) -> Tensor:
    """Return what float32 rows [..., D] are multiplied with, [..., 1].

    In four steps, where PyTorch's own norm takes ten on a CPU; a frame has over a hundred norms.
    """
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return torch.addcmul(_constant(eps, wide.device), norm, norm, value=1 / wide.shape[-1]).rsqrt()


@cache
def _constant(value: float, device: torch.device) -> Tensor:
    """Return a number as a tensor [1]; made where it may be part of training, too."""
    with torch.inference_mode(False):
        return torch.tensor([value], device=device)


class Attention(nn.Module):
    """Hold one layer's projections and optional q/k norms; the caller does the attending."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.n_head, self.n_local_heads = config.n_head, config.n_local_heads
        self.head_dim = config.head_dim
        q_size, kv_size = self.n_head * self.head_dim, self.n_local_heads * self.head_dim
        self.wqkv: nn.Linear | Linear = nn.Linear(
            config.dim, q_size + 2 * kv_size, bias=config.attention_qkv_bias
        )
        self.wo: nn.Linear | Linear = nn.Linear(q_size, config.dim, bias=config.attention_o_bias)
        self.q_norm = nn.RMSNorm(self.head_dim) if config.attention_qk_norm else None
        self.k_norm = nn.RMSNorm(self.head_dim) if config.attention_qk_norm else None
        self.qk_norm: Tensor | None = None  # [H + KV, D], of every head, after `finalize`
        self._is_final = False

    def finalize(self, form: LinearForm) -> None:
        """Bring matrices into their form and norms' weights together; a second call is no harm."""
        bring_into_form(self, form, "wqkv", "wo")
        if self.q_norm is not None:
            self.qk_norm = self._join_norms()
            self.q_norm = self.k_norm = None
        self._is_final = True

    def project(self, x: Tensor, rope: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return q [..., H, D], k and v [..., KV, D] of x [..., width], q and k rotated.

        `rope` is the table of x's positions, broadcastable to [..., 1, D / 2, 2].
        """
        rotated = self.n_head + self.n_local_heads
        joined: Tensor = self.wqkv(x)
        heads = joined.view(*x.shape[:-1], rotated + self.n_local_heads, self.head_dim)
        both, v = heads[..., :rotated, :], heads[..., rotated:, :]
        weight = self.qk_norm if self._is_final else self._join_norms()
        if weight is not None:
            both = head_norm(both, weight, eps)
        both = apply_rope(both, rope)
        return both[..., : self.n_head, :], both[..., self.n_head :, :], v

    def _join_norms(self) -> Tensor | None:
        if self.q_norm is None or self.k_norm is None:
            return None
        rows = [(self.q_norm, self.n_head), (self.k_norm, self.n_local_heads)]
        return torch.cat([norm.weight.expand(count, -1) for norm, count in rows])


class FeedForward(nn.Module):
    """Compute w2(silu(w1 x) * w3 x); `finalize` joins the first two matrices."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.w1: nn.Linear | None = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w3: nn.Linear | None = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w2: nn.Linear | Linear = nn.Linear(config.intermediate_size, config.dim, bias=False)
        self.w13: Linear | None = None

    def finalize(self, form: LinearForm) -> None:
        """Replace w1 and w3 by one matrix [2 * intermediate, D]; a second call does nothing."""
        if self.w1 is None or self.w3 is None:
            return
        if form.is_native:
            self.w13 = NativeGate(
                self.w1.weight, self.w3.weight, int8=form is LinearForm.NATIVE_INT8
            )
        else:
            self.w13 = make_linear(torch.cat([self.w1.weight, self.w3.weight]), None, form)
        self.w1 = self.w3 = None
        bring_into_form(self, form, "w2")

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output in x's dtype and shape."""
        if self.w13 is None:
            raise RuntimeError("FeedForward.finalize() has not been called")
        if isinstance(self.w13, NativeGate):
            inner = self.w13.gated(x)
        else:
            gate, up = self.w13(x).chunk(2, dim=-1)
            inner = F.silu(gate) * up
        out: Tensor = self.w2(inner)
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
        self._final: tuple[Attention, FeedForward, Tensor, Tensor] | None = None

    def finalize(self, form: LinearForm) -> None:
        self.attention.finalize(form)
        self.feed_forward.finalize(form)
        self._final = self._parts

    @property
    def _parts(self) -> tuple[Attention, FeedForward, Tensor, Tensor]:
        """Return both halves and their norms' weights; looking them up takes a module long."""
        return self.attention, self.feed_forward, self.attention_norm.weight, self.ffn_norm.weight

    def project(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        attention, _, weight, _ = self._final or self._parts
        return attention.project(rms_norm(x, weight, self.norm_eps), rope, self.norm_eps)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the attention's output [..., H * D] and the feed-forward to x [..., width]."""
        attention, feed_forward, _, weight = self._final or self._parts
        h = x + attention.wo(mixed)
        return h + feed_forward.forward(rms_norm(h, weight, self.norm_eps))


def bring_into_form(owner: nn.Module, form: LinearForm, *names: str) -> None:
    """Replace a module's nn.Linears of these names by their form; what has one already stays."""
    for name in names:
        linear = getattr(owner, name)
        if isinstance(linear, nn.Linear) and form is not LinearForm.PLAIN:
            delattr(owner, name)  # a registered child can only be followed by another module
            setattr(owner, name, make_linear(linear.weight, linear.bias, form))
