"""Products of few rows come out of the kernels as PyTorch computes them in float32."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.gpu_check import kernel_cases
from lab.gpu_check.torch_forms import add_rms_norm_torch, gemv_parts_torch, gemv_torch
from synth.engine.kernels.gemv import FEW_ROWS, MAX_ROWS, choose_tile, gemv, gemv_parts
from synth.engine.model.linear import PlainLinear
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw

EPS = 1e-6


@dataclass(frozen=True)
class Extras:
    """Name what goes with a product."""

    normed: bool = False
    bias: bool = False
    residual: bool = False
    gated: bool = False


PLAIN = Extras()
AROUND = [PLAIN, Extras(normed=True, bias=True), Extras(normed=True, gated=True)]
BEHIND = [Extras(residual=True), Extras(bias=True, residual=True)]


def run(
    form: object,
    generator: torch.Generator,
    dtype: torch.dtype,
    sizes: tuple[int, int, int],
    extras: Extras,
) -> Tensor:
    """Return what a form makes of numbers that are drawn anew from the seed."""
    generator.manual_seed(11)
    rows, num_in, num_out = sizes
    height = num_out * (2 if extras.gated else 1)
    x = draw(generator, rows, num_in, dtype=dtype)
    weight = draw(generator, height, num_in, dtype=dtype, scale=num_in**-0.5)
    norm, bias, residual = (
        draw(generator, num_in, dtype=dtype),
        draw(generator, num_out, dtype=dtype),
        draw(generator, rows, num_out, dtype=dtype),
    )
    assert callable(form)
    out: Tensor = form(
        x,
        weight,
        norm=norm if extras.normed else None,
        eps=EPS,
        bias=bias if extras.bias else None,
        residual=residual if extras.residual else None,
        gated=extras.gated,
    )
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extras", AROUND + BEHIND)
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 16, 1),
        (1, 100, 7),
        (2, 100, 7),
        (1, 1500, 3),
        (2, 64, 40),
        (3, 300, 50),
        (8, 256, 33),
        (16, 90, 40),
    ],
)
def test_product_and_what_is_around_it_are_those_of_the_torch_form(
    generator: torch.Generator, dtype: torch.dtype, extras: Extras, sizes: tuple[int, int, int]
) -> None:
    found = run(gemv, generator, dtype, sizes, extras)
    assert_close(found, run(gemv_torch, generator, dtype, sizes, extras))


@pytest.mark.parametrize("rows", [1, 2, 3, 16])
def test_row_does_not_depend_on_the_rows_beside_it(generator: torch.Generator, rows: int) -> None:
    x = draw(generator, rows, 96, dtype=torch.float32)
    weight = draw(generator, 24, 96, dtype=torch.float32)
    other = draw(generator, rows, 96, dtype=torch.float32)
    other[0] = x[0]

    assert torch.equal(gemv(x, weight)[0], gemv(other, weight)[0])


def test_rows_that_more_rows_follow_keep_their_bits(generator: torch.Generator) -> None:
    x = draw(generator, 16, 300, dtype=torch.float32)
    weight = draw(generator, 24, 300, dtype=torch.float32)
    together = gemv(x, weight)
    for rows in (3, 7, 15):
        assert torch.equal(gemv(x[:rows], weight), together[:rows])


def test_rows_apart_in_memory_give_the_same(generator: torch.Generator) -> None:
    wide = draw(generator, 3, 2, 48, dtype=torch.float32)
    weight = draw(generator, 10, 48, dtype=torch.float32)
    for rows in (1, 2, 3):
        assert torch.equal(gemv(wide[:rows, 1], weight), gemv(wide[:rows, 1].clone(), weight))


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_are_those_of_the_torch_form_and_add_up_to_the_product(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    x = draw(generator, 5, 700, dtype=dtype)
    weight = draw(generator, 40, 700, dtype=dtype, scale=700**-0.5)
    residual, norm = draw(generator, 5, 40, dtype=dtype), draw(generator, 40, dtype=dtype)

    parts = gemv_parts(x, weight)

    assert parts.shape[0] > 1
    torch.testing.assert_close(parts, gemv_parts_torch(x, weight), rtol=1e-5, atol=1e-5)
    added, _ = add_rms_norm_torch(parts, residual, norm, EPS)
    assert_close(added, gemv_torch(x, weight, residual=residual))


def test_nan_of_one_row_stays_in_it(generator: torch.Generator) -> None:
    for rows in (2, 5):
        x = draw(generator, rows, 64, dtype=torch.float32)
        x[1] = float("nan")
        weight = draw(generator, 8, 64, dtype=torch.float32)

        found = gemv(x, weight)

        assert found[1].isnan().all() and not found[0].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_form_is_the_product_of_the_layers(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    x = draw(generator, 3, 96, dtype=dtype)
    weight = draw(generator, 20, 96, dtype=dtype, scale=96**-0.5)
    bias = draw(generator, 20, dtype=dtype)
    assert_close(gemv_torch(x, weight, bias=bias), PlainLinear(weight, bias)(x))


def test_every_product_of_the_benchmark_is_one_of_the_full_model() -> None:
    from synth.engine.presets import preset

    config = preset("full").config.text_config
    heads = (config.n_head + 2 * config.n_local_heads) * config.head_dim

    sizes = {each.name: (each.num_out, each.num_in) for each in kernel_cases._PRODUCTS}

    assert sizes == {
        "qkv": (heads, config.dim),
        "wo": (config.dim, config.n_head * config.head_dim),
        "w1 and w3": (config.intermediate_size, config.dim),
        "w2": (config.dim, config.intermediate_size),
        "head": (4097, config.dim),
    }


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
