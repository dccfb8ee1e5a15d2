"""Test kernels of products, rows and the codec by their torch forms, and these by the layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.bench.models.shapes import preset
from lab.golden.models import Loaded
from lab.gpu_check import kernel_cases
from lab.gpu_check.torch_forms import (
    add_branch_torch,
    add_rms_norm_torch,
    embed_columns_torch,
    gemv_parts_torch,
    gemv_torch,
    rms_norm_torch,
    snake_torch,
    swiglu_torch,
)
from synth.engine.codec.layers import Snake
from synth.engine.kernels.gemv import FEW_ROWS, MAX_ROWS, choose_tile, gemv, gemv_parts
from synth.engine.kernels.rowwise import (
    add_branch,
    add_rms_norm,
    embed_columns,
    rms_norm,
    round_rows,
    snake,
    swiglu,
)
from synth.engine.model import layers
from synth.engine.model.dual_ar import HEAD_STEP
from synth.engine.model.layers import FeedForward
from synth.engine.model.linear import LinearForm, PlainLinear, ScaledRows
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw, sweep
from tests.synth.engine.kernels.interpreter import to_bfloat16

EPS = 1e-6


# What goes with a product.
EXTRAS = ["", "norm bias", "norm gated", "residual", "bias residual"]
SIZES = [(1, 16, 1), (1, 100, 7), (2, 100, 7), (1, 1500, 3), (2, 64, 40), (3, 300, 50)]
SIZES += [(8, 256, 33), (16, 90, 40)]
SIZES_IN_8_BITS = [(1, 100, 7), (2, 600, 9), (3, 300, 50), (20, 150, 40), (70, 96, 40)]
SIZES_IN_8_BITS += [(130, 64, 9)]
FP8 = torch.float8_e4m3fn
# Rows, inputs, outputs, and the 8 bits that the matrix is in.
PRODUCTS: list[tuple[int, int, int, torch.dtype | None]] = [(*one, None) for one in SIZES]
PRODUCTS += [(*one, dtype) for one in SIZES_IN_8_BITS for dtype in (torch.int8, FP8)]


def test_products_of_the_sweep_have_rows_on_both_sides_of_rounding() -> None:
    rows = {rows for rows, _, _, dtype in PRODUCTS if dtype is FP8}
    assert min(rows) <= FEW_ROWS < MAX_ROWS < max(rows)


@pytest.mark.parametrize(("product", "extras", "dtype"), sweep(PRODUCTS, EXTRAS, DTYPES))
def test_product_and_what_is_around_it_are_those_of_the_torch_form(
    generator: torch.Generator,
    product: tuple[int, int, int, torch.dtype | None],
    extras: str,
    dtype: torch.dtype,
) -> None:
    rows, num_in, num_out, eight_bits = product
    gated = "gated" in extras
    x = draw(generator, rows, num_in, dtype=dtype)
    height = num_out * (2 if gated else 1)
    matrix = draw(generator, height, num_in, dtype=dtype, scale=num_in**-0.5)
    weight = ScaledRows.of(matrix, eight_bits) if eight_bits else matrix
    shapes = {"norm": (num_in,), "bias": (num_out,), "residual": (rows, num_out)}
    if eight_bits is FP8 and rows > MAX_ROWS:
        del shapes["norm"]
    given = {
        name: draw(generator, *shape, dtype=dtype)
        for name, shape in shapes.items()
        if name in extras
    }
    expected = gemv_torch(x, weight, eps=EPS, gated=gated, **given)
    assert_close(gemv(x, weight, eps=EPS, gated=gated, **given), expected)


@pytest.mark.parametrize(("rows", "eight_bits"), [(5, torch.int8), (20, torch.int8), (20, FP8)])
def test_parts_of_a_matrix_in_8_bits_are_scaled(
    generator: torch.Generator, rows: int, eight_bits: torch.dtype
) -> None:
    x = draw(generator, rows, 700, dtype=torch.bfloat16)
    weight = ScaledRows.of(draw(generator, 40, 700, dtype=torch.float32), eight_bits)
    parts = gemv_parts(x, weight)
    assert parts.shape[0] > 1
    torch.testing.assert_close(parts, gemv_parts_torch(x, weight), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_rounded_to_fp8_as_the_matrix_is(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    wide = draw(generator, 7, 2, 300, dtype=dtype)
    wide[1], wide[2] = wide[1] * 1e4, wide[2] * 1e-4
    wide[3], wide[4, :, 5], wide[5, :, 7] = 0, float("nan"), float("inf")
    x = wide[:, 1]  # rows apart in memory

    found, expected = round_rows(x), ScaledRows.of(x, FP8)

    sound = [0, 1, 2, 3, 6]
    for name in ("numbers", "scale"):
        ours, theirs = (getattr(each, name)[sound].float() for each in (found, expected))
        assert torch.equal(ours, theirs), name
    assert float(found.numbers[0].float().abs().max()) == 448
    # A row that is no number stays none in a product, and alone.
    again = (found.numbers.float() * found.scale[:, None]).isfinite().all(1)
    assert again.tolist() == [True, True, True, True, False, False, True]


def test_many_rows_in_fp8_do_not_depend_on_the_rows_beside_them(
    generator: torch.Generator,
) -> None:
    weight = ScaledRows.of(draw(generator, 24, 96, dtype=torch.float32), FP8)
    x = draw(generator, 40, 96, dtype=torch.float32)
    other = x * 100
    other[33] = x[33]
    other[2] = float("nan")
    found = gemv(other, weight)
    assert torch.equal(gemv(x, weight)[33], found[33])
    assert found[2].isnan().all() and not found[3].isnan().any()


@pytest.mark.parametrize("rows", [1, 2, 3, 16])
def test_row_does_not_depend_on_the_rows_beside_it_nor_on_the_place(
    generator: torch.Generator, rows: int
) -> None:
    x, other = (draw(generator, rows, 96, dtype=torch.float32) for _ in range(2))
    weight = draw(generator, 24, 96, dtype=torch.float32)
    other[0] = x[0]
    assert torch.equal(gemv(x, weight)[0], gemv(other, weight)[0])
    wide = draw(generator, rows, 2, 96, dtype=torch.float32)  # rows apart in memory
    assert torch.equal(gemv(wide[:, 1], weight), gemv(wide[:, 1].clone(), weight))
    if rows > 1:
        x[1] = float("nan")
        found = gemv(x, weight)
        assert found[1].isnan().all() and not found[0].isnan().any()


def test_rows_that_more_rows_follow_keep_their_bits(generator: torch.Generator) -> None:
    x = draw(generator, 16, 300, dtype=torch.float32)
    weight = draw(generator, 24, 300, dtype=torch.float32)
    together = gemv(x, weight)
    for rows in (3, 7, 15):
        assert torch.equal(gemv(x[:rows], weight), together[:rows])


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_form_is_the_product_of_the_layers(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    x = draw(generator, 3, 96, dtype=dtype)
    weight = draw(generator, 20, 96, dtype=dtype, scale=96**-0.5)
    bias = draw(generator, 20, dtype=dtype)
    assert_close(gemv_torch(x, weight, bias=bias), PlainLinear(weight, bias)(x))


def test_every_product_of_the_benchmark_is_one_of_the_full_model() -> None:
    config = preset("full").config.text_config
    heads = (config.n_head + 2 * config.n_local_heads) * config.head_dim

    sizes = {each.name: (each.num_out, each.num_in) for each in kernel_cases._PRODUCTS}

    assert sizes == {
        "qkv": (heads, config.dim),
        "wo": (config.dim, config.n_head * config.head_dim),
        "w1 and w3": (config.intermediate_size, config.dim),
        "w2": (config.dim, config.intermediate_size),
        "head": (4097 + -4097 % HEAD_STEP, config.dim),
    }


FULL = [(6144, 2560, False), (2560, 4096, False), (9728, 2560, True), (2560, 9728, False)]
SMALL = [(1, 1, False), (7, 16, False), (160, 64, True), (64, 4096, False), (4097, 17, False)]


@pytest.mark.parametrize("processors", [28, 132])
@pytest.mark.parametrize(("num_out", "num_in", "gated"), FULL + SMALL)
def test_splits_and_blocks_cover_every_number_and_no_split_is_empty(
    num_out: int, num_in: int, gated: bool, processors: int
) -> None:
    tiles = {
        rows: choose_tile(rows, num_out, num_in, processors=processors, gated=gated)
        for rows in range(1, MAX_ROWS + 1)
    }
    for rows, tile in tiles.items():
        for size in (tile.block_n, tile.block_k, tile.num_warps):
            assert size & (size - 1) == 0  # what Triton takes
        assert tile.block_k >= 16
        blocks = -(-num_in // tile.block_k)
        length = -(-blocks // tile.splits)
        assert (tile.splits - 1) * length < blocks <= tile.splits * length
        assert tile.rows >= rows
        assert not (gated and tile.splits > 1)
        if (num_out, num_in, gated) in FULL:  # every multiprocessor has a program
            assert -(-num_out // tile.block_n) * tile.splits >= processors
    # The cut is the same for every number of rows that matrix units take.
    assert len({tile for rows, tile in tiles.items() if rows > FEW_ROWS}) == 1


@pytest.mark.parametrize(
    ("shape", "parts", "dtype"),  # parts of a product, added in their order and rounded
    sweep([(1, 1), (3, 100), (1, 2560), (5, 64)], [0, 1, 2, 4], DTYPES),
)
def test_rows_and_sums_are_normalised_as_the_torch_form_does(
    generator: torch.Generator, shape: tuple[int, int], parts: int, dtype: torch.dtype
) -> None:
    rows, width = shape
    residual, weight = (draw(generator, *shape, dtype=dtype) for shape in ((rows, width), (width,)))
    assert_close(rms_norm(residual, weight, EPS), rms_norm_torch(residual, weight, EPS))
    x = draw(generator, rows, width, dtype=dtype)
    if parts:
        x = draw(generator, parts, rows, width, dtype=torch.float32)
    added, normed = add_rms_norm(x, residual, weight, EPS)
    expected_sum, expected = add_rms_norm_torch(x, residual, weight, EPS)
    assert torch.equal(added, expected_sum)
    assert_close(normed, expected)


def test_rows_apart_of_zeros_or_of_large_numbers_are_normalised(
    generator: torch.Generator, device: torch.device
) -> None:
    wide = draw(generator, 4, 3, 40, dtype=torch.float32)
    weight = draw(generator, 40, dtype=torch.float32)
    assert_close(rms_norm(wide[:, 1], weight, EPS), rms_norm_torch(wide[:, 1], weight, EPS))
    x = torch.stack([torch.zeros(48), torch.full((48,), 1e18)]).to(device)
    found = rms_norm(x, torch.ones(48, device=device), EPS)
    assert torch.equal(found[0], torch.zeros(48, device=device))
    assert_close(found[1], torch.ones(48, device=device))


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_forms_are_the_norm_and_the_gate_of_the_layers(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    x, weight = draw(generator, 5, 96, dtype=dtype), draw(generator, 96, dtype=dtype)
    assert_close(rms_norm_torch(x, weight, EPS), layers.rms_norm(x, weight, EPS))
    config = preset("tiny").config.text_config
    inner = config.intermediate_size
    layer = FeedForward(config).to(generator.device, dtype)
    layer.finalize(LinearForm.PLAIN)
    del layer.w2
    layer.w2 = PlainLinear(torch.eye(inner, device=generator.device, dtype=dtype), None)
    x = draw(generator, 3, config.dim, dtype=dtype)
    assert layer.w13 is not None
    assert torch.equal(swiglu_torch(layer.w13(x)), layer(x))


BEGIN, END = 20, 29


def columns_of(generator: torch.Generator, tokens: list[int], codebooks: int, size: int) -> Tensor:
    device = generator.device
    codes = torch.randint(size, (len(tokens), codebooks), generator=generator, device=device)
    return torch.cat([torch.tensor(tokens, device=device)[:, None], codes], dim=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "codebooks"), [(7, 1), (48, 10), (600, 3)])
def test_tokens_at_and_beside_the_ends_of_the_semantic_ones_are_those_of_the_torch_form(
    generator: torch.Generator, dtype: torch.dtype, width: int, codebooks: int
) -> None:
    columns = columns_of(generator, [0, BEGIN - 1, BEGIN, END, END + 1, 39], codebooks, size=10)
    text = draw(generator, 40, width, dtype=dtype)
    audio = draw(generator, codebooks * 10, width, dtype=dtype)
    found = embed_columns(columns, text, audio, semantic_begin=BEGIN, semantic_end=END)
    expected = embed_columns_torch(columns, text, audio, semantic_begin=BEGIN, semantic_end=END)
    assert_close(found, expected)
    plain = torch.tensor([0, 1, 4, 5], device=text.device)
    assert torch.equal(found[plain], text[columns[plain, 0]])


@torch.inference_mode()
def test_torch_form_is_the_embedding_of_the_slow_ar(
    loaded: Loaded, loaded_bf16: Loaded, generator: torch.Generator
) -> None:
    for model in (loaded.model, loaded_bf16.model):
        slow, special = model.slow, model.special
        tokens = [3, special.semantic_begin, special.semantic_end, special.im_end]
        columns = columns_of(generator, tokens, slow.num_codebooks, slow.codebook_size)

        found = embed_columns_torch(
            columns.to(model.device),
            slow.embeddings.weight,
            slow.codebook_embeddings.weight,
            semantic_begin=special.semantic_begin,
            semantic_end=special.semantic_end,
        )

        assert torch.equal(found, slow.embed(columns.to(model.device)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2), (3, 2 * 1500), (2, 2, 2 * 96)])
def test_halves_are_gated_as_the_torch_form_does(
    generator: torch.Generator, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    joined = draw(generator, *shape, dtype=dtype, scale=3.0)
    assert_close(swiglu(joined), swiglu_torch(joined))


def test_far_negative_and_far_positive_gates_give_zero_and_themselves(device: torch.device) -> None:
    gate = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], device=device)
    joined = torch.cat([gate, torch.ones(5, device=device)])[None]
    found = swiglu(joined)[0]
    assert_close(found, torch.tensor([0.0, 0.0, 0.0, 100.0, 1e4], device=device))


def test_float32_is_rounded_to_bfloat16_as_torch_does(generator: torch.Generator) -> None:
    drawn = torch.randint(0, 2**32, (50_000,), generator=generator, device=generator.device)
    ties = (drawn[:1000] & 0xFFFF0000) | 0x8000
    edges = torch.tensor([0, 1 << 31, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 1])
    bits = torch.cat([drawn, ties, edges.to(drawn.device)]).cpu().numpy().astype(np.uint32)
    found = torch.from_numpy(to_bfloat16(bits).view(np.int16)).view(torch.bfloat16)
    expected = torch.from_numpy(bits.view(np.float32)).to(torch.bfloat16)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[~found.isnan()], expected[~expected.isnan()])


# The last bit of a sine may be another, which is one step of the dtype at most.
CLOSE: dict[torch.dtype, dict[str, Any]] = {
    torch.float32: {"atol": 2e-6, "rtol": 2e-6},
    torch.bfloat16: {"atol": 1e-2, "rtol": 1e-2},
}


class Inputs:
    """Hold a tensor [B, D, T] and numbers of its channels; two channels are loud and slow."""

    def __init__(self, *shape: int, dtype: torch.dtype, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(sum(shape))
        self.x = torch.randn(shape, generator=generator).mul_(3).to(device, dtype)
        self.alpha = torch.rand(shape[1], generator=generator).add_(0.2).to(device, dtype)
        self.alpha[:2] = torch.tensor([0.01, -30.0])[: shape[1]]
        self.inverse = 1 / (self.alpha.float() + 1e-9)
        self.bias = torch.randn(shape[1], generator=generator).to(device, dtype)


SHAPES = [(1, 1, 1, 0), (2, 5, 37, 0), (2, 17, 511, 0), (1, 3, 506, 6), (1, 3, 1024, 6)]
SHAPES += [(2, 3, 1025, 54), (3, 33, 32, 18), (2, 130, 3, 1)]


@pytest.mark.parametrize(
    ("sizes", "with_bias", "with_context", "dtype"),
    sweep(SHAPES, [False, True], [False, True], DTYPES),
)
def test_it_is_its_torch_form(
    device: torch.device,
    sizes: tuple[int, int, int, int],
    with_bias: bool,
    with_context: bool,
    dtype: torch.dtype,
) -> None:
    *shape, left = sizes
    given = Inputs(*shape, dtype=dtype, device=device)
    options: dict[str, Any] = {"left": left, "bias": given.bias if with_bias else None}
    if with_context:
        options["context"] = given.x.flip(2)[..., :1].expand(-1, -1, left) * 0.5
    before = given.x.clone()

    found = snake(given.x, given.alpha, given.inverse, **options)

    expected = snake_torch(given.x, given.alpha, given.inverse, **options)
    assert torch.equal(given.x, before)
    assert found.shape == expected.shape and found.dtype is dtype and found.is_contiguous()
    torch.testing.assert_close(found, expected, **CLOSE[dtype])
    assert torch.equal(found[..., :left], expected[..., :left])


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_strides_are_read(device: torch.device, dtype: torch.dtype) -> None:
    given = Inputs(2, 40, 50, dtype=dtype, device=device)
    ways = [
        given.x[..., 3:29],
        given.x.transpose(1, 2).contiguous().transpose(1, 2),
        given.x[:, ::2, 1::3],
        given.x.expand(2, 2, 40, 50)[:, 1],
    ]

    for x in ways:
        alpha, inverse = given.alpha[: x.shape[1]], given.inverse[: x.shape[1]]
        found = snake(x, alpha, inverse, left=2, context=x[..., :2])
        expected = snake_torch(x, alpha, inverse, left=2, context=x[..., :2])
        torch.testing.assert_close(found, expected, **CLOSE[dtype])
        assert (found.stride(1) == 1) == (x.stride(1) == 1)  # a convolution's layout is kept
        added = add_branch(x, x.flip(2), given.bias[: x.shape[1]])
        assert torch.equal(added, add_branch_torch(x, x.flip(2), given.bias[: x.shape[1]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_it_writes_over_its_input_and_nothing_else(
    device: torch.device, dtype: torch.dtype
) -> None:
    given = Inputs(2, 7, 60, dtype=dtype, device=device)
    part, before = given.x[..., 10:47], given.x.clone()
    expected = snake_torch(part, given.alpha, given.inverse, bias=given.bias)
    found = snake(part, given.alpha, given.inverse, bias=given.bias, in_place=True)
    assert found.data_ptr() == part.data_ptr()
    torch.testing.assert_close(given.x[..., 10:47], expected, **CLOSE[dtype])
    assert torch.equal(given.x[..., :10], before[..., :10])
    assert torch.equal(given.x[..., 47:], before[..., 47:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 1030), (3, 33, 32)])
def test_adding_a_branch_is_its_torch_form_to_the_last_bit(
    device: torch.device, dtype: torch.dtype, shape: tuple[int, int, int]
) -> None:
    given = Inputs(*shape, dtype=dtype, device=device)
    branch = given.x.flip(2) * 0.3
    found = add_branch(given.x, branch, given.bias)
    assert torch.equal(found, add_branch_torch(given.x, branch, given.bias))


def test_the_torch_form_is_the_codecs_layer_and_in_bfloat16_nearer_to_float32(
    device: torch.device,
) -> None:
    given = Inputs(2, 6, 90, dtype=torch.float32, device=device)
    layer = Snake(6).requires_grad_(False).to(device)
    layer.alpha.copy_(given.alpha.view(1, -1, 1))
    assert torch.equal(layer(given.x), snake_torch(given.x, given.alpha, given.inverse))
    given = Inputs(1, 6, 400, dtype=torch.bfloat16, device=device)
    layer.to(torch.bfloat16).alpha.copy_(given.alpha.view(1, -1, 1))
    exact = snake_torch(given.x.float(), given.alpha.float(), given.inverse)
    ours = (snake_torch(given.x, given.alpha, given.inverse) - exact).abs().mean()
    assert ours < 0.85 * (layer(given.x) - exact).abs().mean()


@pytest.mark.gpu
def test_cases_of_the_benchmark_agree(device: torch.device) -> None:
    for case in kernel_cases.snake_cases(device, torch.bfloat16):
        torch.testing.assert_close(case.kernel(), case.torch_form(), **CLOSE[torch.bfloat16])
