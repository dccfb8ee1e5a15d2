"""Convolve the codec decoder's columns as one matrix product, with what follows in the same pass.

Activations are channels-last, so that the taps of one output column are runs of memory, and the
rates of a transposed convolution are further output channels: one kernel does every layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST = {torch.float16: 65504.0}  # what larger numbers become when they are stored


@dataclass(frozen=True, slots=True)
class Tile:
    """Say how a program cuts the product: output columns, output channels, input channels.

    The order in which an output's products are added does not depend on it. No fewer than 64
    columns or four warps: from there on a device takes the same instructions for all tiles.
    """

    rows: int
    outs: int
    ins: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """Hold a convolution's weights as the kernel reads them.

    Attributes:
        weight: [taps * in, out or more] in the operands' dtype, the oldest tap first; columns
            behind `outs` are zeros, so that rows are aligned.
        bias: float32 [out].
        dilation: columns from one tap to the next.
    """

    weight: Tensor
    bias: Tensor
    outs: int
    taps: int
    dilation: int = 1

    @property
    def left(self) -> int:
        """Return how many columns stand before the first one of an output."""
        return (self.taps - 1) * self.dilation

    @classmethod
    def lay(cls, weight: Tensor, bias: Tensor, dtype: torch.dtype, dilation: int = 1) -> Taps:
        """Lay out a convolution's weights [out, in, taps] in the operands' dtype."""
        outs, ins, taps = weight.shape
        laid = weight.new_zeros(taps * ins, -(-outs // _ALIGNED) * _ALIGNED, dtype=dtype)
        laid[:, :outs] = to_operands(weight.permute(2, 1, 0).reshape(taps * ins, outs), dtype)
        return cls(laid, bias.float(), outs, taps, dilation)


@dataclass(frozen=True, slots=True, eq=False)
class SnakeNumbers:
    """Hold a Snake's alpha and its inverse, float32 [C] each."""

    alpha: Tensor
    inverse: Tensor


_ALIGNED = 16  # numbers, so that every row of weights begins where 16 bytes can be copied at once


def to_operands(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return numbers in the dtype that products take; what float16 cannot hold is its largest."""
    largest = LARGEST.get(dtype)
    return (numbers if largest is None else numbers.clamp(-largest, largest)).to(dtype)


def convolve(
    x: Tensor,
    taps: Taps,
    *,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    snake: SnakeNumbers | None = None,
    active: Tensor | None = None,
    tile: Tile | None = None,
) -> None:
    """Write the sums of a convolution, and what the next one reads.

    Products are added in float32, the oldest tap first and channels in their order, then the bias,
    then the residual.

    Args:
        x: [B, left + T, in] in the operands' dtype, contiguous.
        residual: float32 [B, T, out], added; may be `out` itself.
        out: float32 [B, T, out], contiguous; where the sums go.
        snake: of as many channels as `active` has, which `out` is a multiple of: the outputs of a
            transposed convolution are those of each of its phases in turn.
        active: [B, T * out / C, C] in the operands' dtype, contiguous but for the batch; where the
            sums go in that dtype, through the Snake if there is one.
        tile: None takes that of `choose_tile`.
    """
    batch, columns, ins = x.shape
    length = columns - taps.left
    assert x.is_contiguous() and x.dtype is taps.weight.dtype and length > 0
    assert taps.weight.shape[0] == taps.taps * ins
    assert max(columns * ins, length * taps.outs) < 1 << 30  # within a tile 32 bits are enough
    for wide in (residual, out):
        assert wide is None or (wide.is_contiguous() and wide.dtype is torch.float32)
        assert wide is None or wide.shape == (batch, length, taps.outs)
    channels, active_columns = taps.outs, 0
    if active is not None:
        channels = active.shape[2]
        active_columns = active.stride(0) // channels  # with those that stand before
        assert active.dtype is x.dtype and active.stride()[1:] == (channels, 1)
        assert active.shape[:2] == (batch, length * taps.outs // channels)
    rows = batch * length
    tile = tile or choose_tile(rows, taps.outs)
    grid = (triton.cdiv(rows, tile.rows) * triton.cdiv(taps.outs, tile.outs),)
    _convolve[grid](
        x, taps.weight, taps.bias, residual, out, active,
        None if snake is None else snake.alpha, None if snake is None else snake.inverse,
        rows, length, columns, active_columns, ins, taps.outs, taps.weight.stride(0), channels,
        taps.taps, taps.dilation,
        LARGEST=LARGEST.get(x.dtype, 0.0), IS_RAGGED=ins % tile.ins != 0,
        ROWS=tile.rows, OUTS=tile.outs, INS=tile.ins, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


# Shared memory is at most 96 KB, which every card since compute capability 8.0 has. What suits is
# measured on an H200 by the step conv-tiles of lab.gpu_check.
ONE_OUTPUT, NARROW = Tile(128, 16, 32, 4, 4), Tile(128, 64, 32, 4, 4)
LARGE, HIGH = Tile(128, 128, 64, 8, 3), Tile(128, 64, 64, 4, 4)
MEDIUM, SMALL = Tile(64, 64, 64, 4, 4), Tile(64, 32, 128, 4, 4)
TILES = (ONE_OUTPUT, NARROW, LARGE, HIGH, MEDIUM, SMALL)
_BUSY, _HALF_BUSY = 128, 32  # large tiles that keep a device's processors, or a part of them, busy


def choose_tile(rows: int, outs: int) -> Tile:
    """Return the tile for so many output columns and output channels."""
    if outs <= ONE_OUTPUT.outs:
        return ONE_OUTPUT
    if outs <= 96:
        return NARROW
    if outs <= 192:
        return MEDIUM if rows <= 8192 else HIGH
    tiles = triton.cdiv(rows, LARGE.rows) * triton.cdiv(outs, LARGE.outs)
    if tiles >= _BUSY:
        return LARGE
    return MEDIUM if tiles >= _HALF_BUSY else SMALL


_VARYING = ["rows", "length", "columns", "active_columns", "taps", "dilation"]


@triton.jit(do_not_specialize=_VARYING)
def _convolve(
    x, weight, bias, residual, out, active, alpha, inverse, rows, length, columns, active_columns,
    ins, outs, weight_stride, channels, taps, dilation, LARGEST: tl.constexpr,
    IS_RAGGED: tl.constexpr, ROWS: tl.constexpr, OUTS: tl.constexpr, INS: tl.constexpr,
):  # fmt: skip
    """Fill one tile of the output; of the pointers after `bias` each may be None.

    Rows of the product are the columns of all streams, one stream after the other.
    """
    blocks_of_outs = tl.cdiv(outs, OUTS)
    # Programs that run side by side read the same columns.
    first_row = (tl.program_id(0) // blocks_of_outs) * ROWS
    first_stream, first_column = first_row // length, first_row % length
    # Rows behind the last read it again, so that loads need no mask.
    row = tl.minimum(tl.arange(0, ROWS), rows - 1 - first_row)
    is_row = row == tl.arange(0, ROWS)
    stream, column = (first_column + row) // length, (first_column + row) % length
    first_channel = (tl.program_id(0) % blocks_of_outs) * OUTS
    channel = first_channel + tl.arange(0, OUTS)
    is_channel = channel < outs
    inner = tl.arange(0, INS)
    # Only a tile's begin can be far: within it 32 bits are enough, and take half the registers.
    x += (first_stream.to(tl.int64) * columns) * ins
    x_start = x + ((stream * columns + column) * ins)[:, None] + inner[None, :]
    weight_start = weight + inner[:, None] * weight_stride + channel[None, :]
    blocks = tl.cdiv(ins, INS)
    total = tl.zeros([ROWS, OUTS], tl.float32)
    for step in range(taps * blocks):
        tap = step // blocks
        first = (step - tap * blocks) * INS
        x_tile = x_start + (tap * dilation * ins + first)
        weight_tile = weight_start + (tap * ins + first) * weight_stride
        if IS_RAGGED:
            is_inner = inner < ins - first
            a = tl.load(x_tile, mask=is_inner[None, :], other=0.0)
            b = tl.load(weight_tile, mask=is_inner[:, None] & is_channel[None, :], other=0.0)
        else:
            a = tl.load(x_tile)
            b = tl.load(weight_tile, mask=is_channel[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    # In halves, so that the numbers of all channels need not be in registers together.
    low, high = total.reshape(ROWS, 2, OUTS // 2).permute(0, 2, 1).split()
    first, second = low.reshape(ROWS, 2, OUTS // 4).permute(0, 2, 1).split()
    third, fourth = high.reshape(ROWS, 2, OUTS // 4).permute(0, 2, 1).split()
    parts = (first, second, third, fourth)
    begin = first_row.to(tl.int64) * outs
    if residual is not None:
        residual += begin
    if out is not None:
        out += begin
    if active is not None:
        active += first_stream.to(tl.int64) * (active_columns * channels)
    at, active_at = row * outs, stream * (active_columns * channels) + column * outs
    for part in tl.static_range(4):
        place = first_channel + part * (OUTS // 4) + tl.arange(0, OUTS // 4)
        is_place = place < outs
        inside = is_row[:, None] & is_place[None, :]
        sums = parts[part]
        sums += tl.load(bias + place, mask=is_place, other=0.0)[None, :]
        target = at[:, None] + place[None, :]
        if residual is not None:
            sums += tl.load(residual + target, mask=inside, other=0.0)
        if out is not None:
            tl.store(out + target, sums, mask=inside)
        if active is not None:
            if alpha is not None:
                own = place % channels
                rate = tl.load(alpha + own, mask=is_place, other=0.0)[None, :]
                height = tl.load(inverse + own, mask=is_place, other=0.0)[None, :]
                sums += squared_sine(sums * rate) * height
            if LARGEST > 0:
                sums = tl.clamp(sums, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL)
            target = active_at[:, None] + place[None, :]
            tl.store(active + target, sums.to(active.dtype.element_ty), mask=inside)


@triton.jit
def squared_sine(angle):
    """Return sin(angle)^2 of float32, within 3e-7 for angles of some millions.

    Its period is pi, and no sign counts: a third of a sine's instructions. Angles so large that
    they are wrong here come from numbers beside which a bump is nothing; it stays within 0 and 1.
    """
    turns = tl.floor(angle * 0.3183098861837907 + 0.5)
    # pi in three parts, each product's error being that of the next.
    rest = tl.fma(turns, -3.140625, angle)
    rest = tl.fma(turns, -9.67502593994140625e-4, rest)
    rest = tl.fma(turns, -1.509957990978376e-7, rest)
    square = rest * rest
    sine = tl.fma(square, -2.3889859e-8, 2.7525562e-6)
    sine = tl.fma(square, sine, -1.9840874e-4)
    sine = tl.fma(square, sine, 8.3333310e-3)
    sine = tl.fma(square, sine, -1.6666667e-1)
    sine = tl.fma(square * rest, sine, rest)
    return tl.minimum(sine * sine, 1.0)
