"""Compute what both transformers share: norms, rotary embedding, projections, feed-forward.

Rounding follows the reference also in bfloat16, because its weights were trained with it; each
function says where a result is cast.
"""

from __future__ import annotations

import importlib
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.model.config import TransformerConfig
from synth.engine.model.linear import NATIVE, Linear, LinearForm, make_linear


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
        """Bring the matrices into their form and the norms' weights together."""
        bring_into_form(self, "wqkv", form)
        bring_into_form(self, "wo", form)
        if self.q_norm is not None and self.k_norm is not None:
            self.qk_norm = self._joined_norms(self.q_norm, self.k_norm)
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
        weight = self.qk_norm if self._is_final else self._trained_norms()
        if weight is not None:
            both = head_norm(both, weight, eps)
        both = apply_rope(both, rope)
        return both[..., : self.n_head, :], both[..., self.n_head :, :], v

    def _trained_norms(self) -> Tensor | None:
        """Return the norms' weights of a model that is being trained."""
        if self.q_norm is None or self.k_norm is None:
            return None
        return self._joined_norms(self.q_norm, self.k_norm)

    def _joined_norms(self, q_norm: nn.RMSNorm, k_norm: nn.RMSNorm) -> Tensor:
        rows = [(q_norm, self.n_head), (k_norm, self.n_local_heads)]
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
        if self.w1 is not None and self.w3 is not None:
            self.w13 = _joined(self.w1.weight, self.w3.weight, form)
            self.w1 = self.w3 = None
            bring_into_form(self, "w2", form)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output in x's dtype and shape."""
        if self.w13 is None:
            raise RuntimeError("FeedForward.finalize() has not been called")
        gated = getattr(self.w13, "gated", None)
        if gated is not None:
            done: Tensor = self.w2(gated(x))
            return done
        gate, up = self.w13(x).chunk(2, dim=-1)
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
        self._final: tuple[Attention, FeedForward, Tensor, Tensor] | None = None

    def finalize(self, form: LinearForm) -> None:
        """Prepare the layer's weights for use."""
        self.attention.finalize(form)
        self.feed_forward.finalize(form)
        self._final = self._parts

    @property
    def _parts(self) -> tuple[Attention, FeedForward, Tensor, Tensor]:
        """Return both halves and their norms' weights; looking them up takes a module long."""
        return self.attention, self.feed_forward, self.attention_norm.weight, self.ffn_norm.weight

    def project(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v of the normalised input; shapes as in `Attention.project`."""
        attention, _, weight, _ = self._final or self._parts
        return attention.project(rms_norm(x, weight, self.norm_eps), rope, self.norm_eps)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the attention's output [..., H * D] and the feed-forward to x [..., width]."""
        attention, feed_forward, _, weight = self._final or self._parts
        h = x + attention.wo(mixed)
        return h + feed_forward.forward(rms_norm(h, weight, self.norm_eps))


def _joined(gate: Tensor, up: Tensor, form: LinearForm) -> Linear:
    """Return one product with both matrices, [H, width] each."""
    if form.is_native:
        joined: Linear = importlib.import_module(NATIVE).NativeGate(gate, up, int8=form.is_int8)
        return joined
    return make_linear(torch.cat([gate, up]), None, form)


def bring_into_form(owner: nn.Module, name: str, form: LinearForm) -> None:
    """Replace a module's nn.Linear of this name by its form; what has one already stays."""
    linear = getattr(owner, name)
    if isinstance(linear, nn.Linear) and form is not LinearForm.PLAIN:
        delattr(owner, name)  # a registered child can only be followed by another module
        setattr(owner, name, make_linear(linear.weight, linear.bias, form))
