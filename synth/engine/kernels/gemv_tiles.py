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
_MIN_PROGRAMS = 190  # with matrix units; fewer share rows of the matrix


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
        # One warp a program: it waits for no other one, and an input number that a thread has read
        # and converted serves all rows of the matrix at hand.
        block_n, most = (4, 256) if num_out >= 4 * 8 * _NUM_PROCESSORS else (2, 1024 // rows)
        return Tile(rows, block_n, _block_k(num_in, most), 1, 1, 1)
    # Every program reads the input too: with 32 rows of the matrix that is at most half as much.
    block_n, block_k, splits = 32, _block_k(num_in, 128), 1
    programs = _ceil_div(num_out, block_n)
    while not gated and programs * splits < _MIN_PROGRAMS and splits * 2 * block_k <= num_in:
        splits *= 2
    return Tile(MAX_ROWS, block_n, block_k, splits, 4, 4)


def _block_k(num_in: int, most: int) -> int:
    """Return a power of two from 16 to `most` that is not far above the numbers there are."""
    return min(most, max(16, 1 << (num_in - 1).bit_length()))


def _ceil_div(count: int, size: int) -> int:
    return -(-count // size)
