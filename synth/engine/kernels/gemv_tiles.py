"""Choose how a product of few rows with a matrix is cut into programs, by its shape alone.

A product of few rows takes as long as reading the matrix. That goes at full speed only with some
30 KB of reads under way in each of the 132 multiprocessors of an H100 or H200: programs are small
enough that there are several for each, and large enough that each has many reads of 16 bytes. The
choice depends on nothing but the shape, so that the same sums are added in the same order always.
"""

from __future__ import annotations

from dataclasses import dataclass

FEW_ROWS = 2  # up to here every thread multiplies by itself; above, matrix units take 16 rows
MAX_ROWS = 16  # above, a library's product is as fast

_NUM_PROCESSORS = 132


@dataclass(frozen=True, slots=True)
class Tile:
    """Hold a cut: a program reads `block_n` rows of the matrix, `block_k` numbers at a time.

    `splits` programs share a row of the matrix; each adds up a part of its numbers. `rows` are
    those of the input that a program computes with, filled up where there are fewer.
    """

    rows: int
    block_n: int
    block_k: int
    splits: int
    num_warps: int
    num_stages: int


def choose_tile(rows: int, num_out: int, num_in: int, *, gated: bool = False) -> Tile:
    """Return the cut for `rows` in 1 to MAX_ROWS and a matrix [num_out, num_in].

    With `gated`, `num_out` counts pairs of rows, and nothing is split.
    """
    if rows <= FEW_ROWS:
        # Each thread keeps an input number for several rows of the matrix, which saves reading and
        # converting it again.
        block_n = 16 if num_out >= 16 * 2 * _NUM_PROCESSORS else 8
        return Tile(rows, block_n, _block_k(num_in, 512), 1, 4, 1)
    block_n, num_warps = (32, 4) if num_out >= 32 * 2 * _NUM_PROCESSORS else (16, 2)
    block_k = _block_k(num_in, 128)
    programs, splits = _ceil_div(num_out, block_n), 1
    while not gated and programs * splits < 2 * _NUM_PROCESSORS and splits * 2 * block_k <= num_in:
        splits *= 2
    return Tile(MAX_ROWS, block_n, block_k, splits, num_warps, 4)


def _block_k(num_in: int, most: int) -> int:
    """Return a power of two from 16 to `most` that is not far above the numbers there are."""
    return min(most, max(16, 1 << (num_in - 1).bit_length()))


def _ceil_div(count: int, size: int) -> int:
    return -(-count // size)
