"""Gate the joined half-products of a feed-forward, in one kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def swiglu(joined: Tensor) -> Tensor:
    """Return silu(gate) * up, [..., W], of gate and up side by side, [..., 2 * W] contiguous.

    Both the activation and the product are rounded to the dtype.
    """
    assert joined.is_contiguous()
    width = joined.shape[-1] // 2
    out = torch.empty(*joined.shape[:-1], width, device=joined.device, dtype=joined.dtype)
    grid = (out.numel() // width, triton.cdiv(width, _BLOCK))
    _gate_rows[grid](joined, out, width, BLOCK=_BLOCK, num_warps=4)
    return out


def swiglu_torch(joined: Tensor) -> Tensor:
    """Specify `swiglu`."""
    gate, up = joined.chunk(2, dim=-1)
    return F.silu(gate) * up


@triton.jit
def _gate_rows(joined, out, width, BLOCK: tl.constexpr):
    """Handle BLOCK columns of one row per program."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    source = joined + row * 2 * width + column
    gate = tl.load(source, mask=inside, other=0.0)
    up = tl.load(source + width, mask=inside, other=0.0)
    tl.store(out + row * width + column, gate_rounded(gate, up), mask=inside)


@triton.jit
def gate_rounded(gate, up):
    """Return silu(gate) * up of two blocks in their dtype, rounded to it after each step."""
    wide = gate.to(tl.float32)
    active = (wide * tl.sigmoid(wide)).to(gate.dtype).to(tl.float32)
    return (active * up.to(tl.float32)).to(gate.dtype)
