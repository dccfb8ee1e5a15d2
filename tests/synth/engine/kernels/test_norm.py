"""Rows are added and normalised by a kernel as the layers do it."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from synth.engine.kernels.norm import add_rms_norm, add_rms_norm_torch, rms_norm, rms_norm_torch
from synth.engine.model import layers
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw

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
