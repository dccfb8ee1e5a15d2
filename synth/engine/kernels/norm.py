"""Normalise rows by their root mean square, with an addition before it, in one kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise rows [N, W] in float32, cast to x's dtype, and only then multiply by weight [W]."""
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    _launch(x, None, weight, eps, None, out)
    return out


def rms_norm_torch(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Specify `rms_norm`."""
    return F.rms_norm(x, x.shape[-1:], None, eps) * weight


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Add rows and normalise the sum.

    Args:
        x: [N, W] in the dtype of `residual`; or float32 [P, N, W], the parts of a product that was
            split, as `gemv_parts` leaves them, to be added in their order and cast first.
        residual: [N, W]; weight: [W].

    Returns:
        The sum, and the normalised sum; [N, W] each in the dtype of `residual`.
    """
    added, out = torch.empty_like(residual), torch.empty_like(residual)
    _launch(x, residual, weight, eps, added, out)
    return added, out


def add_rms_norm_torch(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Specify `add_rms_norm`."""
    if x.dim() == 3:
        total = x[0]
        for part in x[1:]:
            total = total + part
        x = total.to(residual.dtype)
    added = x + residual
    return added, rms_norm_torch(added, weight, eps)


def _launch(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    added: Tensor | None,
    out: Tensor,
) -> None:
    rows, width = out.shape
    parts = x.shape[0] if x.dim() == 3 else 1
    assert x.shape[-2:] == out.shape and weight.shape == (width,)
    assert x.stride(-1) == 1 and (residual is None or residual.is_contiguous())
    block = triton.next_power_of_2(width)
    _norm_rows[(rows,)](
        x,
        residual,
        weight,
        added,
        out,
        x.stride(0) if parts > 1 else 0,
        x.stride(-2),
        eps,
        WIDTH=width,
        PARTS=parts,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 8),
    )


@triton.jit
def _norm_rows(
    x,
    residual,
    weight,
    added,
    out,
    part_stride,
    row_stride,
    eps,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Normalise one row per program; `residual` and `added` may be None together."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    dtype = out.dtype.element_ty
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)  # nothing waits for it
    start = x + row * row_stride + column
    value = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        value += tl.load(start + part * part_stride, mask=inside, other=0.0)
    if residual is not None:
        other = tl.load(residual + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
        value = (value.to(dtype).to(tl.float32) + other).to(dtype)
        tl.store(added + row * WIDTH + column, value, mask=inside)
        value = value.to(tl.float32)
    mean = tl.sum(value * value, axis=0) / WIDTH
    normed = (value * tl.rsqrt(mean + eps)).to(dtype).to(tl.float32)
    tl.store(out + row * WIDTH + column, (normed * scale).to(dtype), mask=inside)
