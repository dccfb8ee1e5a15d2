"""Multiply rows with a matrix, with what stands before and behind it, in one or two kernels.

Up to MAX_ROWS rows, of a matrix in 8 bits any number; sums are float32 and added in an order that
the shape and the device alone decide. A row's result does not depend on the rows beside it, but on
whether there are more than FEW_ROWS, or MAX_ROWS and more. More rows than MAX_ROWS are rounded to
fp8 before they meet a matrix in fp8: matrix units multiply both as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from synth.engine.kernels import is_interpreted, multiprocessors
from synth.engine.kernels.rowwise import gate_rounded, round_rows
from synth.engine.model.linear import KEPT_ROWS, ScaledRows, rounds_inputs

_JOIN_BLOCK = 1024
FEW_ROWS = 2  # up to here every thread multiplies by itself; above, matrix units take 16 rows
MAX_ROWS = KEPT_ROWS  # above, a library's product is as fast

_PROGRAMS_EACH = 1.44  # of a multiprocessor, with matrix units; fewer share rows of the matrix
# Rows, rows of the matrix, numbers of each, warps and stages of a program with matrix units.
_TILES = ((MAX_ROWS, 32, 128, 4, 4),)
# Of a matrix in 8 bits; the last one is for prompts, which compute more than they read.
_MANY_ROWS = ((32, 32, 128, 4, 4), (64, 64, 128, 4, 3), (128, 128, 64, 8, 3))


def gemv(
    x: Tensor,
    weight: Tensor | ScaledRows,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """Return x @ weight.T with float32 sums, rounded to x's dtype, [B, N].

    Args:
        x: [B, K] with any stride between rows; B up to MAX_ROWS where `weight` is a tensor.
        weight: [N, K] contiguous, of x's dtype or in 8 bits; with `gated` [2 * N, K], the gate's
            rows before the other half's.
        norm: [K], the weight of a norm of x with `eps` that comes before the product; as `rms_norm`
            rounds. None where x is rounded to fp8.
        bias: [N], added before rounding.
        residual: [B, N] contiguous, added behind rounding, and the sum is rounded again.
        gated: return silu(gate) * up of both halves instead, rounded as `swiglu` rounds.
    """
    rows, num_in = x.shape
    num_out = weight.shape[0] // (2 if gated else 1)
    assert residual is None or residual.shape == (rows, num_out)
    tile = choose_tile(
        rows,
        num_out,
        num_in,
        processors=multiprocessors(x.device),
        gated=gated,
        scaled=isinstance(weight, ScaledRows),
    )
    out = x.new_empty(rows, num_out)
    if tile.splits == 1:
        _multiply(x, weight, out, tile, norm, eps, bias, residual, gated)
        return out
    parts = x.new_empty(tile.splits, rows, num_out, dtype=torch.float32)
    _multiply(x, weight, parts, tile, norm, eps)
    grid = (triton.cdiv(out.numel(), _JOIN_BLOCK),)
    join_parts[grid](
        parts, bias, residual, out, num_out, out.numel(), SPLITS=tile.splits, BLOCK=_JOIN_BLOCK,
        num_warps=4,
    )  # fmt: skip
    return out


def gemv_parts(x: Tensor, weight: Tensor | ScaledRows) -> Tensor:
    """Return x @ weight.T in parts that are still to be added, float32 [P, B, N].

    For `add_rms_norm`, which adds them on its way. P is 1 where nothing is split; x has more than
    FEW_ROWS rows.
    """
    rows, num_in = x.shape
    assert rows > FEW_ROWS
    tile = choose_tile(
        rows,
        weight.shape[0],
        num_in,
        processors=multiprocessors(x.device),
        scaled=isinstance(weight, ScaledRows),
    )
    out = x.new_empty(tile.splits, rows, weight.shape[0], dtype=torch.float32)
    _multiply(x, weight, out, tile)
    return out


def _multiply(
    x: Tensor,
    weight: Tensor | ScaledRows,
    out: Tensor,
    tile: Tile,
    norm: Tensor | None = None,
    eps: float = 0.0,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> None:
    """Multiply into [B, N], or into float32 parts [P, B, N]; nothing gated is in parts."""
    rows, num_in = x.shape
    num_out = out.shape[-1]
    assert x.stride(1) == 1 and weight.is_contiguous()
    assert rows <= MAX_ROWS or isinstance(weight, ScaledRows)
    assert weight.shape == (num_out * (2 if gated else 1), num_in)
    assert residual is None or residual.is_contiguous()
    wide = x.dtype is torch.float32 or is_interpreted()
    numbers, scale, x_scale = weight, None, None
    if isinstance(weight, ScaledRows):
        numbers, scale = weight.numbers, weight.scale
        if rounds_inputs(weight, rows):
            assert norm is None
            rounded = round_rows(x)
            x, x_scale, wide = rounded.numbers, rounded.scale, is_interpreted()
    operands, sizes = (x, norm, numbers, scale, bias, residual, out), (num_out, x.stride(0), eps)
    shape = {"K": num_in, "ROWS": tile.rows, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k}
    launch = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    blocks = triton.cdiv(num_out, tile.block_n)
    if rows <= FEW_ROWS:
        multiply_few[(blocks,)](*operands, *sizes, **shape, GATED=gated, **launch)
        return
    kinds = {"SPLITS": tile.splits, "PARTS": out.dim() == 3, "GATED": gated, "WIDE": wide}
    grid = (blocks, tile.splits, triton.cdiv(rows, tile.rows))
    multiply_tile[grid](*operands, x_scale, rows, *sizes, **shape, **kinds, **launch)


@dataclass(frozen=True, slots=True)
class Tile:
    """Hold a cut: a program reads `block_n` rows of the matrix, `block_k` numbers at a time.

    `splits` programs share a row of the matrix; each adds up a part of its numbers. `rows` are
    those of the input that a program computes with, filled up where there are fewer; where there
    are more, other programs take them.
    """

    rows: int
    block_n: int
    block_k: int
    splits: int
    num_warps: int
    num_stages: int


def choose_tile(
    rows: int,
    num_out: int,
    num_in: int,
    *,
    processors: int,
    gated: bool = False,
    scaled: bool = False,
) -> Tile:
    """Return the cut for `rows` and a matrix [num_out, num_in], which is `scaled` in 8 bits.

    `processors` are the device's multiprocessors. With `gated`, `num_out` counts pairs of rows, and
    nothing is split.
    """
    if rows <= FEW_ROWS:
        # One warp a program: it waits for no other one, and an input number that a thread has read
        # and converted serves all rows of the matrix at hand.
        wide = 512 // rows if scaled else 256  # 16 bytes a thread and row
        block_n, most = (4, wide) if num_out >= 4 * 8 * processors else (2, 1024 // rows)
        return Tile(rows, block_n, _block_k(num_in, most), 1, 1, 1)
    # Every program reads the input too: with 32 rows of the matrix that is at most half as much.
    tiles = _MANY_ROWS if rows > MAX_ROWS else _TILES
    taken, block_n, most, warps, stages = next((t for t in tiles if rows <= t[0]), tiles[-1])
    block_k, splits, programs = _block_k(num_in, most), 1, triton.cdiv(num_out, block_n)
    programs *= triton.cdiv(rows, taken)
    fewest = round(_PROGRAMS_EACH * processors)
    while not gated and programs * splits < fewest and splits * 2 * block_k <= num_in:
        splits *= 2
    return Tile(taken, block_n, block_k, splits, warps, stages)


def _block_k(num_in: int, most: int) -> int:
    """Return a power of two from 16 to `most` that is not far above the numbers there are."""
    return min(most, max(16, 1 << (num_in - 1).bit_length()))


@triton.jit
def multiply_few(
    x, norm, weight, scales, bias, residual, out, num_out, x_stride, eps, K: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_N columns of one or two rows per program, without matrix units."""
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    place = tl.minimum(column, num_out - 1)
    matrix = weight + place.to(tl.int64)[:, None] * K
    one, other = x, x
    if ROWS == 2:
        other = x + x_stride
    scale, other_scale = 1.0, 1.0
    if norm is not None:
        scale = _few_scale(one, eps, K, BLOCK_K)
        if ROWS == 2:
            other_scale = _few_scale(other, eps, K, BLOCK_K)
    first, second = _add_few(
        one, other, scale, other_scale, norm, matrix, K, ROWS, BLOCK_N, BLOCK_K
    )
    up, other_up = first, second
    if GATED:
        matrix = weight + (place + num_out).to(tl.int64)[:, None] * K
        up, other_up = _add_few(
            one, other, scale, other_scale, norm, matrix, K, ROWS, BLOCK_N, BLOCK_K
        )
    if scales is not None:
        factor = tl.load(scales + place)
        first, second = first * factor, second * factor
        if GATED:
            factor = tl.load(scales + num_out + place)
        up, other_up = up * factor, other_up * factor
    inside = column < num_out
    _finish(first, up, bias, residual, out, column, column, inside, GATED)
    if ROWS == 2:
        _finish(second, other_up, bias, residual, out, column, num_out + column, inside, GATED)


@triton.jit
def _few_scale(x, eps, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return what a row is multiplied by to be normalised."""
    total = tl.zeros([BLOCK_K], tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        value = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
        total += value * value
    return tl.rsqrt(tl.sum(total, axis=0) / K + eps)


@triton.jit
def _add_few(
    one, other, scale, other_scale, norm, matrix, K: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return the products of one or two rows with rows of the matrix, [BLOCK_N] each."""
    total = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    other_total = total
    # Unrolled so that the next block's reads are under way while this one is multiplied.
    for start in tl.range(0, K, BLOCK_K, loop_unroll_factor=2):
        k = start + tl.arange(0, BLOCK_K)
        numbers = _read(matrix, k, K).to(tl.float32)
        value = _normalise(tl.load(one + k, mask=k < K, other=0.0), scale, norm, k, k < K)
        total += numbers * value.to(tl.float32)[None, :]
        if ROWS == 2:
            value = tl.load(other + k, mask=k < K, other=0.0)
            value = _normalise(value, other_scale, norm, k, k < K)
            other_total += numbers * value.to(tl.float32)[None, :]
    return tl.sum(total, axis=1), tl.sum(other_total, axis=1)


@triton.jit
def _read(matrix, k, K: tl.constexpr):
    """Return numbers of the matrix; they are read once a step, so other things keep the cache."""
    inside = (k < K)[None, :]
    return tl.load(matrix + k[None, :], mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def multiply_tile(
    x, norm, weight, scales, bias, residual, out, x_scales, rows, num_out, x_stride, eps,
    K: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_N columns of up to ROWS rows per program, or one split's part of them.

    With PARTS, `out` is float32 [SPLITS, rows, N] and gets the sums alone. WIDE: matrix units get
    float32, as for a float32 model and in the interpreter, which knows no bfloat16 there. With
    `scales` the matrix is in 8 bits, and each row's sum is multiplied by its own; with `x_scales`
    the input is in fp8 as the matrix is, and so are its rows.
    """
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    place = tl.minimum(column, num_out - 1)
    matrix = weight + place.to(tl.int64)[:, None] * K
    source, present = x + row[:, None] * x_stride, (row < rows)[:, None]
    scale = tl.zeros([ROWS], tl.float32)
    if norm is not None:
        scale = _tile_scale(source, present, eps, K, ROWS, BLOCK_K)
    total = _add_tile(
        source, present, scale, norm, matrix, split, K, ROWS, BLOCK_N, BLOCK_K, SPLITS, WIDE
    )
    up = total
    if GATED:
        matrix = weight + (place + num_out).to(tl.int64)[:, None] * K
        up = _add_tile(
            source, present, scale, norm, matrix, split, K, ROWS, BLOCK_N, BLOCK_K, SPLITS, WIDE
        )
    if scales is not None:
        factor = tl.load(scales + place)
        total *= factor[None, :]
        if GATED:
            factor = tl.load(scales + num_out + place)
            up *= factor[None, :]
    if x_scales is not None:
        factor = tl.load(x_scales + row, mask=row < rows, other=0.0)
        total *= factor[:, None]
        up *= factor[:, None]
    inside = present & (column < num_out)[None, :]
    target = row[:, None] * num_out + column[None, :]
    if PARTS:
        tl.store(out + split * rows * num_out + target, total, mask=inside)
    else:
        _finish(total, up, bias, residual, out, column[None, :], target, inside, GATED)


@triton.jit
def _tile_scale(source, present, eps, K: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return what each row is multiplied by to be normalised, [ROWS]."""
    total = tl.zeros([ROWS, BLOCK_K], tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = present & (k < K)[None, :]
        value = tl.load(source + k[None, :], mask=inside, other=0.0).to(tl.float32)
        total += value * value
    return tl.rsqrt(tl.sum(total, axis=1) / K + eps)


@triton.jit
def _add_tile(
    source, present, scale, norm, matrix, split, K: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Return the products of ROWS rows with rows of the matrix over one split, [ROWS, BLOCK_N]."""
    is_scaled: tl.constexpr = matrix.dtype.element_ty.primitive_bitwidth == 8
    is_rounded: tl.constexpr = source.dtype.element_ty.primitive_bitwidth == 8 and not WIDE
    total = tl.zeros([BLOCK_N, ROWS] if is_scaled else [ROWS, BLOCK_N], tl.float32)
    blocks: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    length: tl.constexpr = (blocks + SPLITS - 1) // SPLITS * BLOCK_K
    for start in tl.range(0, length, BLOCK_K):  # what the last split has too many is masked
        k = split * length + start + tl.arange(0, BLOCK_K)
        inside = (k < K)[None, :]
        numbers = _read(matrix, k, K)
        value = tl.load(source + k[None, :], mask=present & inside, other=0.0)
        value = _normalise(value, scale[:, None], norm, k[None, :], inside)
        if WIDE:
            value = value.to(tl.float32)
        numbers = numbers.to(value.dtype)  # 8 bits lose nothing
        if is_rounded:  # each block's sum is added in float32: Hopper's own sums keep 14 bits
            total = tl.dot(numbers, tl.trans(value), total, max_num_imprecise_acc=BLOCK_K)
        elif is_scaled:  # turned round: matrix units take from registers on the left alone
            total = tl.dot(numbers, tl.trans(value), total, input_precision="ieee")
        else:
            total = tl.dot(value, tl.trans(numbers), total, input_precision="ieee")
    return tl.trans(total) if is_scaled else total


@triton.jit
def _normalise(value, scale, norm, k, inside):
    """Return loaded input numbers as they are, or normalised; rounded as `rms_norm` rounds."""
    if norm is not None:
        dtype = value.dtype
        factor = tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)
        value = (value.to(tl.float32) * scale).to(dtype)
        value = (value.to(tl.float32) * factor).to(dtype)
    return value


@triton.jit
def _finish(total, up, bias, residual, out, column, place, inside, GATED: tl.constexpr):
    """Add the bias, round, gate or add the residual, round again and store."""
    dtype = out.dtype.element_ty
    if bias is not None:
        total += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    value = total.to(dtype)
    if GATED:
        value = gate_rounded(value, up.to(dtype))
    if residual is not None:
        other = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        value = (value.to(tl.float32) + other).to(dtype)
    tl.store(out + place, value, mask=inside)


@triton.jit
def join_parts(
    parts, bias, residual, out, num_out, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):
    """Add the parts of BLOCK numbers in their order per program, then finish them."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.load(parts + place, mask=inside, other=0.0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(parts + split * count + place, mask=inside, other=0.0)
    _finish(total, total, bias, residual, out, place % num_out, place, inside, False)
