"""Embed columns, normalise rows and gate feed-forwards, each in one kernel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
_EMBED_BLOCK = 512


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise rows [N, W] in float32, cast to x's dtype, and only then multiply by weight [W]."""
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    _launch(x, None, weight, eps, None, out)
    return out


def rms_norm_torch(x: Tensor, weight: Tensor, eps: float) -> Tensor:
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
        x, residual, weight, added, out, x.stride(0) if parts > 1 else 0, x.stride(-2), eps,
        WIDTH=width, PARTS=parts, BLOCK=block, num_warps=min(max(block // 512, 1), 8),
    )  # fmt: skip


@triton.jit
def _norm_rows(
    x, residual, weight, added, out, part_stride, row_stride, eps, WIDTH: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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


def embed_columns(
    columns: Tensor, text: Tensor, audio: Tensor, *, semantic_begin: int, semantic_end: int
) -> Tensor:
    """Return the input vectors of columns, [B, W].

    Codes count beside a semantic token alone; there the sum of all embeddings is scaled. Sums are
    float32, rounded after the codes, after the token and after the scaling.

    Args:
        columns: int64 [B, 1 + K] contiguous; every id and code within its table.
        text: [V, W]; audio: [K * C, W], of one codebook after the other.
        semantic_begin, semantic_end: the first and the last semantic token.
    """
    batch, height = columns.shape
    width = text.shape[1]
    assert columns.is_contiguous() and text.is_contiguous() and audio.is_contiguous()
    out = torch.empty(batch, width, device=text.device, dtype=text.dtype)
    _embed[(batch, triton.cdiv(width, _EMBED_BLOCK))](
        columns, text, audio, out, semantic_begin, semantic_end, audio.shape[0] // (height - 1),
        math.sqrt(height), WIDTH=width, CODEBOOKS=height - 1, BLOCK=_EMBED_BLOCK, num_warps=2,
    )  # fmt: skip
    return out


def embed_columns_torch(
    columns: Tensor, text: Tensor, audio: Tensor, *, semantic_begin: int, semantic_end: int
) -> Tensor:
    """Specify `embed_columns`."""
    tokens, codes = columns[:, 0], columns[:, 1:]
    starts = torch.arange(codes.shape[1], device=codes.device) * (audio.shape[0] // codes.shape[1])
    plain = F.embedding(tokens, text)
    scaled = (plain + F.embedding(codes + starts, audio).sum(dim=-2)) / math.sqrt(columns.shape[1])
    is_semantic = (tokens >= semantic_begin) & (tokens <= semantic_end)
    return torch.where(is_semantic[:, None], scaled, plain)


@triton.jit
def _embed(
    columns, text, audio, out, semantic_begin, semantic_end, codebook_size, root,
    WIDTH: tl.constexpr, CODEBOOKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Handle BLOCK numbers of one column per program."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < WIDTH
    dtype = out.dtype.element_ty
    column = columns + row * (1 + CODEBOOKS)
    token = tl.load(column)
    value = tl.load(text + token * WIDTH + place, mask=inside, other=0.0)
    if (token >= semantic_begin) & (token <= semantic_end):
        total = tl.zeros([BLOCK], tl.float32)
        for book in tl.static_range(CODEBOOKS):
            code = tl.load(column + 1 + book) + book * codebook_size
            total += tl.load(audio + code * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
        both = (value.to(tl.float32) + total.to(dtype).to(tl.float32)).to(dtype)
        value = (both.to(tl.float32) / root).to(dtype)
    tl.store(out + row * WIDTH + place, value, mask=inside)
