"""Columns are embedded, rows normalised and feed-forwards gated by kernels as the layers do it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.golden.models import Loaded
from lab.gpu_check.torch_forms import (
    add_rms_norm_torch,
    embed_columns_torch,
    rms_norm_torch,
    swiglu_torch,
)
from synth.engine.kernels.rowwise import add_rms_norm, embed_columns, rms_norm, swiglu
from synth.engine.model import layers
from synth.engine.model.layers import FeedForward
from synth.engine.model.linear import LinearForm, PlainLinear
from synth.engine.presets import preset
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw
from tests.synth.engine.kernels.rounding import to_bfloat16

SHAPES = [(1, 1), (3, 100), (1, 2560), (5, 64)]
EPS = 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_rows_are_normalised_as_the_torch_form_does(
    generator: torch.Generator, dtype: torch.dtype, rows: int, width: int
) -> None:
    x, weight = (draw(generator, *shape, dtype=dtype) for shape in ((rows, width), (width,)))
    assert_close(rms_norm(x, weight, EPS), rms_norm_torch(x, weight, EPS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_sum_and_its_norm_are_those_of_the_torch_form(
    generator: torch.Generator, dtype: torch.dtype, rows: int, width: int
) -> None:
    x, residual = (draw(generator, rows, width, dtype=dtype) for _ in range(2))
    weight = draw(generator, width, dtype=dtype)

    added, normed = add_rms_norm(x, residual, weight, EPS)

    expected_sum, expected = add_rms_norm_torch(x, residual, weight, EPS)
    assert torch.equal(added, expected_sum)
    assert_close(normed, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_of_a_product_are_added_in_their_order_and_rounded_before_the_residual(
    generator: torch.Generator, dtype: torch.dtype, parts: int
) -> None:
    x = draw(generator, parts, 3, 70, dtype=torch.float32)
    residual, weight = draw(generator, 3, 70, dtype=dtype), draw(generator, 70, dtype=dtype)

    added, normed = add_rms_norm(x, residual, weight, EPS)

    expected_sum, expected = add_rms_norm_torch(x, residual, weight, EPS)
    assert torch.equal(added, expected_sum)
    assert_close(normed, expected)


def test_rows_apart_in_memory_are_normalised_alike(generator: torch.Generator) -> None:
    wide = draw(generator, 4, 3, 40, dtype=torch.float32)
    weight = draw(generator, 40, dtype=torch.float32)
    assert_close(rms_norm(wide[:, 1], weight, EPS), rms_norm_torch(wide[:, 1], weight, EPS))


def test_rows_of_zeros_and_of_large_numbers_give_no_nan(device: torch.device) -> None:
    x = torch.stack([torch.zeros(48), torch.full((48,), 1e18)]).to(device)
    found = rms_norm(x, torch.ones(48, device=device), EPS)
    assert torch.equal(found[0], torch.zeros(48, device=device))
    assert_close(found[1], torch.ones(48, device=device))


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_form_is_the_norm_of_the_layers(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    x, weight = draw(generator, 5, 96, dtype=dtype), draw(generator, 96, dtype=dtype)
    assert_close(rms_norm_torch(x, weight, EPS), layers.rms_norm(x, weight, EPS))


BEGIN, END = 20, 29


def columns_of(generator: torch.Generator, tokens: list[int], codebooks: int, size: int) -> Tensor:
    """Return columns of these tokens beside random codes."""
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_form_is_the_gate_of_the_layers(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    config = preset("tiny").config.text_config
    width, inner = config.dim, config.intermediate_size
    layer = FeedForward(config).to(generator.device, dtype)
    layer.finalize(LinearForm.PLAIN)
    del layer.w2
    layer.w2 = PlainLinear(torch.eye(inner, device=generator.device, dtype=dtype), None)
    x = draw(generator, 3, width, dtype=dtype)
    assert layer.w13 is not None

    assert torch.equal(swiglu_torch(layer.w13(x)), layer(x))


def test_float32_is_rounded_to_bfloat16_as_torch_does(generator: torch.Generator) -> None:
    drawn = torch.randint(0, 2**32, (50_000,), generator=generator, device=generator.device)
    ties = (drawn[:1000] & 0xFFFF0000) | 0x8000
    edges = torch.tensor([0, 1 << 31, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 1])
    bits = torch.cat([drawn, ties, edges.to(drawn.device)]).cpu().numpy().astype(np.uint32)

    found = torch.from_numpy(to_bfloat16(bits).view(np.int16)).view(torch.bfloat16)

    expected = torch.from_numpy(bits.view(np.float32)).to(torch.bfloat16)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[~found.isnan()], expected[~expected.isnan()])
