"""Multiply few rows with a matrix: the kernels of `gemv`, which says what they compute.

`norm`, `bias` and `residual` may be None. Columns behind the last one read what the last one reads,
so that what is read most needs no mask there; they are not stored.
"""

from __future__ import annotations

import triton
import triton.language as tl

from synth.engine.kernels.swiglu import gate_rounded


@triton.jit
def multiply_few(
    x,
    norm,
    weight,
    bias,
    residual,
    out,
    num_out,
    x_stride,
    eps,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GATED: tl.constexpr,
):
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
    one,
    other,
    scale,
    other_scale,
    norm,
    matrix,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return the products of one or two rows with rows of the matrix, [BLOCK_N] each."""
    total = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    other_total = total
    # Unrolled so that the next block's reads are under way while this one is multiplied.
    for start in tl.range(0, K, BLOCK_K, loop_unroll_factor=2):
        k = start + tl.arange(0, BLOCK_K)
        numbers = _read(matrix, k, K).to(tl.float32)
        value = _normalised(tl.load(one + k, mask=k < K, other=0.0), scale, norm, k, k < K)
        total += numbers * value.to(tl.float32)[None, :]
        if ROWS == 2:
            value = tl.load(other + k, mask=k < K, other=0.0)
            value = _normalised(value, other_scale, norm, k, k < K)
            other_total += numbers * value.to(tl.float32)[None, :]
    return tl.sum(total, axis=1), tl.sum(other_total, axis=1)


@triton.jit
def _read(matrix, k, K: tl.constexpr):
    """Return numbers of the matrix; they are read once a step, so other things keep the cache."""
    inside = (k < K)[None, :]
    return tl.load(matrix + k[None, :], mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def multiply_tile(
    x,
    norm,
    weight,
    bias,
    residual,
    out,
    rows,
    num_out,
    x_stride,
    eps,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    PARTS: tl.constexpr,
    GATED: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Compute BLOCK_N columns of up to ROWS rows per program, or one split's part of them.

    With PARTS, `out` is float32 [SPLITS, rows, N] and gets the sums alone. WIDE: matrix units get
    float32, as for a float32 model and in the interpreter, which knows no bfloat16 there.
    """
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    row = tl.arange(0, ROWS)
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
    source,
    present,
    scale,
    norm,
    matrix,
    split,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Return the products of ROWS rows with rows of the matrix over one split, [ROWS, BLOCK_N]."""
    total = tl.zeros([ROWS, BLOCK_N], tl.float32)
    blocks: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    length: tl.constexpr = (blocks + SPLITS - 1) // SPLITS * BLOCK_K
    for start in tl.range(0, length, BLOCK_K):  # what the last split has too many is masked
        k = split * length + start + tl.arange(0, BLOCK_K)
        inside = (k < K)[None, :]
        numbers = _read(matrix, k, K)
        value = tl.load(source + k[None, :], mask=present & inside, other=0.0)
        value = _normalised(value, scale[:, None], norm, k[None, :], inside)
        if WIDE:
            numbers, value = numbers.to(tl.float32), value.to(tl.float32)
        total = tl.dot(value, tl.trans(numbers), total, input_precision="ieee")
    return total


@triton.jit
def _normalised(value, scale, norm, k, inside):
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
