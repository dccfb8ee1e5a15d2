"""Compute the codec's Snake, and what stands before and after it, in one pass over memory each.

The codec's widest tensors go through nothing but convolutions, Snake, the padding of a causal
convolution, biases and additions; all but the first are bound by memory.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

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


def snake_torch(
    x: Tensor,
    alpha: Tensor,
    inverse: Tensor,
    *,
    bias: Tensor | None = None,
    left: int = 0,
    context: Tensor | None = None,
    in_place: bool = False,
) -> Tensor:
    """Specify `snake`."""
    added = x if bias is None else x + bias.view(-1, 1)
    value = added.float()
    bump = (value * alpha.view(-1, 1).float()).sin()
    result = torch.addcmul(value, bump * bump, inverse.view(-1, 1)).to(x.dtype)
    if in_place:
        return x.copy_(result)
    return F.pad(result, (left, 0)) if context is None else torch.cat([context, result], dim=-1)


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


def add_branch_torch(x: Tensor, branch: Tensor, bias: Tensor) -> Tensor:
    return x + (branch + bias.view(-1, 1))


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
    """Fill one tile of the result."""
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
