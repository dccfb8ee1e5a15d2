"""Compute a transformer layer of a decode step with kernels: what is left of it is the attending.

The same as `Block.project` and `Block.finish`, in as few launches as the number of rows allows:
with up to FEW_ROWS rows norm, residual and gate are part of the products; with up to MAX_ROWS a
product leaves parts, which the next norm adds; above, a library multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from synth.engine.kernels.gemv import FEW_ROWS, MAX_ROWS, gemv, gemv_parts
from synth.engine.kernels.heads import write_heads
from synth.engine.kernels.norm import add_rms_norm, rms_norm
from synth.engine.kernels.swiglu import swiglu

if TYPE_CHECKING:
    from synth.engine.model.layers import Block


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Hold what goes from layer to layer: `x` [N, width], and what is still to be added to it.

    `pending` is [N, width] like x, or float32 parts [P, N, width] as `gemv_parts` leaves them.
    """

    x: Tensor
    pending: Tensor | None = None


def can_step(block: Block) -> bool:
    """Say whether a layer is finalized in a form that the kernels read."""
    attention, feed_forward = block.attention, block.feed_forward
    matrices = (attention.wqkv, attention.wo, feed_forward.w13, feed_forward.w2)
    weights = [getattr(matrix, "weight", None) for matrix in matrices]
    plain = all(isinstance(weight, Tensor) and weight.is_contiguous() for weight in weights)
    return plain and attention.head_dim % 2 == 0 and attention.q_norm is None


def join_heads(block: Block, rows: Rows) -> tuple[Rows, Tensor]:
    """Return the rows, and the joined projection of their norm, [N, (H + 2 * KV) * D]."""
    weight, bias = _matrix(block.attention.wqkv)
    norm, eps = block.attention_norm.weight, block.norm_eps
    if rows.x.shape[0] <= FEW_ROWS:
        return rows, gemv(rows.x, weight, norm=norm, eps=eps, bias=bias)
    rows, normed = _normalise(rows, norm, eps)
    return rows, _multiply(normed, weight, bias)


def project(
    block: Block,
    rows: Rows,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor | int,
    *,
    span: int = 1,
) -> tuple[Rows, Tensor]:
    """Write a layer's keys and values; return the rows, and the queries [N, H, D].

    Args:
        rope: the table of all positions, [S, D / 2, 2].
        keys, values: this layer's, [B, KV, S, D]; written at `position`.
        position: int64 [B], or one number for all streams; of each stream's first row.
        span: rows of each stream, at consecutive positions; N = B * span.
    """
    rows, joined = join_heads(block, rows)
    norm, eps = block.attention.qk_norm, block.norm_eps
    return rows, write_heads(joined, rope, keys, values, position, weight=norm, eps=eps, span=span)


def finish(block: Block, rows: Rows, mixed: Tensor) -> Rows:
    """Add the attention's output [N, H * D] and the feed-forward to the rows of `project`."""
    (out, out_bias), (down, _) = _matrix(block.attention.wo), _matrix(block.feed_forward.w2)
    joined, _ = _matrix(block.feed_forward.w13)
    norm, eps = block.ffn_norm.weight, block.norm_eps
    if rows.x.shape[0] <= FEW_ROWS:
        x = gemv(mixed, out, bias=out_bias, residual=rows.x)
        inner = gemv(x, joined, norm=norm, eps=eps, gated=True)
        return Rows(gemv(inner, down, residual=x))
    rows, normed = _normalise(Rows(rows.x, _leave(mixed, out, out_bias)), norm, eps)
    if normed.shape[0] <= MAX_ROWS:
        inner = gemv(normed, joined, gated=True)
    else:
        inner = swiglu(F.linear(normed, joined))
    return Rows(rows.x, _leave(inner, down, None))


def last_norm(rows: Rows, weight: Tensor, eps: float) -> Tensor:
    """Return the normalised rows behind the last layer, [N, width]."""
    return _normalise(rows, weight, eps)[1]


def _normalise(rows: Rows, weight: Tensor, eps: float) -> tuple[Rows, Tensor]:
    """Add what is pending; return the sum, and the sum normalised."""
    if rows.pending is None:
        return rows, rms_norm(rows.x, weight, eps)
    added, normed = add_rms_norm(rows.pending, rows.x, weight, eps)
    return Rows(added), normed


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return gemv(x, weight, bias=bias) if x.shape[0] <= MAX_ROWS else F.linear(x, weight, bias)


def _leave(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply into what `Rows.pending` may be."""
    if x.shape[0] <= MAX_ROWS and bias is None:
        return gemv_parts(x, weight)
    return _multiply(x, weight, bias)


def _matrix(linear: object) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of a product in its plain form, as `can_step` has found it."""
    weight, bias = getattr(linear, "weight", None), getattr(linear, "bias", None)
    assert isinstance(weight, Tensor) and (bias is None or isinstance(bias, Tensor))
    return weight, bias
