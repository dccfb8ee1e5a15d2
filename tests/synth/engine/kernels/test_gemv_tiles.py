"""The cut of a product fits its shape and fills the device."""

from __future__ import annotations

import itertools

import pytest

from synth.engine.kernels.gemv import FEW_ROWS, MAX_ROWS, choose_tile

FULL = [(6144, 2560, False), (2560, 4096, False), (9728, 2560, True), (2560, 9728, False)]
SMALL = [(1, 1, False), (7, 16, False), (160, 64, True), (64, 4096, False)]


@pytest.mark.parametrize(("num_out", "num_in", "gated"), FULL + SMALL)
def test_splits_and_blocks_cover_every_number_and_no_split_is_empty(
    num_out: int, num_in: int, gated: bool
) -> None:
    for rows in range(1, MAX_ROWS + 1):
        tile = choose_tile(rows, num_out, num_in, gated=gated)

        blocks = -(-num_in // tile.block_k)
        length = -(-blocks // tile.splits)
        assert (tile.splits - 1) * length < blocks <= tile.splits * length
        assert tile.rows >= rows
        assert not (gated and tile.splits > 1)


@pytest.mark.parametrize(("num_out", "num_in", "gated"), FULL)
def test_full_model_gives_every_multiprocessor_a_program(
    num_out: int, num_in: int, gated: bool
) -> None:
    for rows in (1, 2, 8, 16):
        tile = choose_tile(rows, num_out, num_in, gated=gated)

        assert -(-num_out // tile.block_n) * tile.splits >= 132


def test_cut_is_the_same_for_every_number_of_rows_that_matrix_units_take() -> None:
    for num_out, num_in, gated in FULL + SMALL:
        tiles = {
            choose_tile(rows, num_out, num_in, gated=gated)
            for rows in range(FEW_ROWS + 1, MAX_ROWS + 1)
        }

        assert len(tiles) == 1


def test_blocks_are_what_triton_takes() -> None:
    for rows, num_out, num_in in itertools.product((1, 2, 3, 16), (1, 5, 4097), (1, 17, 9728)):
        tile = choose_tile(rows, num_out, num_in)

        for size in (tile.block_n, tile.block_k, tile.num_warps):
            assert size & (size - 1) == 0
        assert tile.block_k >= 16
