"""Embed columns, normalise rows, gate feed-forwards and compute Snake, each in one kernel.

The codec's widest tensors go through nothing but convolutions, Snake, the padding of a causal
convolution, biases and additions; all but the first are bound by memory.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from synth.engine.model.linear import SMALLEST_RANGE, ScaledRows

_BLOCK = 1024
_EMBED_BLOCK = 512


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise rows [N, W] in float32, cast to x's dtype, and only then multiply by weight [W]."""
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    _launch(x, None, weight, eps, None, out)
    return out


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


def round_rows(x: Tensor) -> ScaledRows:
    """Return rows [N, W], whose numbers lie side by side, in fp8: the bits of `ScaledRows.of`."""
    rows, width = x.shape
    assert x.stride(1) == 1
    numbers = torch.empty(rows, width, device=x.device, dtype=torch.float8_e4m3fn)
    scale = torch.empty(rows, device=x.device, dtype=torch.float32)
    block = triton.next_power_of_2(width)
    _round_rows[(rows,)](
        x, numbers, scale, x.stride(0), SMALLEST_RANGE, torch.finfo(numbers.dtype).max,
        WIDTH=width, BLOCK=block, num_warps=min(max(block // 512, 1), 8),
    )  # fmt: skip
    return ScaledRows(numbers, scale)


@triton.jit
def _round_rows(
    x, numbers, scales, x_stride, smallest, largest, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Round one row per program by the largest of its numbers; what is no number stays none."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < WIDTH
    value = tl.load(x + row * x_stride + place, mask=inside, other=0.0).to(tl.float32)
    # Exact divisions: a bit's difference from PyTorch could be a step of 8 bits.
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(value), axis=0), smallest), largest)
    value = tl.div_rn(value, scale).to(numbers.dtype.element_ty)
    tl.store(numbers + row * WIDTH + place, value, mask=inside)
    tl.store(scales + row, scale)


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


_TILE = 1024  # elements of one program
_SHORT, _LONG = 64, 512  # columns of a program over fewer than so many columns


def snake(
    x: Tensor,
    alpha: Tensor,
    inverse: Tensor,
    *,
    bias: Tensor | None = None,
    left: int = 0,
    context: Tensor | None = None,
    in_place: bool = False,
) -> Tensor:
    """Return x + sin(alpha x)^2 * inverse for each channel, behind `left` other columns.

    Computed in float32 and cast to x's dtype at the end.

    Args:
        x: [B, D, T] with any strides.
        alpha: D numbers; inverse: D numbers in float32, those of 1 / alpha.
        bias: D numbers that are added to x first, the sum rounded to x's dtype.
        left: columns before those of x in the result, zeros without `context`.
        context: [B, D, left], what stands there instead.
        in_place: write over x, with `left` 0.
    """
    batch, channels, length = x.shape
    assert not (in_place and left) and inverse.dtype is torch.float32
    assert context is None or context.shape == (batch, channels, left)
    out = x if in_place else _empty(x, left + length)
    edge = x if context is None else context
    block_d, block_t = _tile(channels, left + length, _is_channel_last(x))
    grid = (triton.cdiv(left + length, block_t), triton.cdiv(channels, block_d), batch)
    _snake[grid](
        x, alpha, inverse, bias, edge, out, channels, length, left,
        *x.stride(), *edge.stride(), *out.stride(),
        HAS_CONTEXT=context is not None, BLOCK_D=block_d, BLOCK_T=block_t,
    )  # fmt: skip
    return out


def add_branch(x: Tensor, branch: Tensor, bias: Tensor) -> Tensor:
    """Return x + (branch + bias), [B, D, T] each with any strides; the inner sum is rounded too.

    Args:
        bias: D numbers.
    """
    batch, channels, length = x.shape
    out = _empty(x, length)
    block_d, block_t = _tile(channels, length, _is_channel_last(x))
    grid = (triton.cdiv(length, block_t), triton.cdiv(channels, block_d), batch)
    _add_branch[grid](
        x, branch, bias, out, channels, length,
        *x.stride(), *branch.stride(), *out.stride(), BLOCK_D=block_d, BLOCK_T=block_t,
    )  # fmt: skip
    return out


def _is_channel_last(x: Tensor) -> bool:
    """Return whether the numbers of one column lie side by side."""
    return x.stride(1) == 1 and x.shape[2] > 1


def _empty(like: Tensor, length: int) -> Tensor:
    """Return room for [B, D, length] in the order that `like` has."""
    batch, channels, _ = like.shape
    if _is_channel_last(like):
        return like.new_empty(batch, length, channels).transpose(1, 2)
    return like.new_empty(batch, channels, length)


def _tile(channels: int, length: int, is_channel_last: bool) -> tuple[int, int]:
    """Return a program's channels and columns: long along the axis whose neighbours are near."""
    if is_channel_last:
        block_d = min(triton.next_power_of_2(channels), 128)
        return block_d, _TILE // block_d
    # Two forms and no more: each is compiled anew for every kind of input.
    block_t = _SHORT if length < _LONG else _TILE
    return min(triton.next_power_of_2(channels), _TILE // block_t), block_t


@triton.jit
def _snake(
    x, alpha, inverse, bias, edge, out, channels, length, left, x_batch, x_channel, x_column,
    edge_batch, edge_channel, edge_column, out_batch, out_channel, out_column,
    HAS_CONTEXT: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Fill one tile of the result; `bias` may be None."""
    batch = tl.program_id(2).to(tl.int64)
    channel = (tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)).to(tl.int64)[:, None]
    column = (tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T))[None, :]
    dtype = out.dtype.element_ty
    is_channel = channel < channels
    inside = is_channel & (column < left + length)
    is_own = inside & (column >= left)
    start = x + batch * x_batch + channel * x_channel
    value = tl.load(start + (column - left) * x_column, mask=is_own, other=0.0).to(tl.float32)
    if bias is not None:
        value += tl.load(bias + channel, mask=is_channel, other=0.0).to(tl.float32)
        value = value.to(dtype).to(tl.float32)
    bump = tl.sin(value * tl.load(alpha + channel, mask=is_channel, other=0.0).to(tl.float32))
    value += bump * bump * tl.load(inverse + channel, mask=is_channel, other=0.0)
    # Before x's own columns stands what the convolution behind would be padded with.
    before = tl.zeros([BLOCK_D, BLOCK_T], tl.float32)
    if HAS_CONTEXT:
        start = edge + batch * edge_batch + channel * edge_channel
        is_edge = inside & (column < left)
        before = tl.load(start + column * edge_column, mask=is_edge, other=0.0).to(tl.float32)
    value = tl.where(is_own, value, before).to(dtype)
    start = out + batch * out_batch + channel * out_channel
    tl.store(start + column * out_column, value, mask=inside)


@triton.jit
def _add_branch(
    x, branch, bias, out, channels, length, x_batch, x_channel, x_column, branch_batch,
    branch_channel, branch_column, out_batch, out_channel, out_column, BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    channel = (tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)).to(tl.int64)[:, None]
    column = (tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T))[None, :]
    dtype = out.dtype.element_ty
    is_channel = channel < channels
    inside = is_channel & (column < length)
    start = branch + batch * branch_batch + channel * branch_channel
    value = tl.load(start + column * branch_column, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(bias + channel, mask=is_channel, other=0.0).to(tl.float32)
    start = x + batch * x_batch + channel * x_channel
    own = tl.load(start + column * x_column, mask=inside, other=0.0).to(tl.float32)
    value = (own + value.to(dtype).to(tl.float32)).to(dtype)
    start = out + batch * out_batch + channel * out_channel
    tl.store(start + column * out_column, value, mask=inside)
