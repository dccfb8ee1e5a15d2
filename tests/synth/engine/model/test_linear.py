"""Test linear: every form gives the product, whatever stands beside a vector."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.model.linear import (
    KEPT_ROWS,
    Int8Linear,
    LinearForm,
    PackedLinear,
    ScaledRows,
    make_linear,
)
from synth.engine.native.library import find_processor

needs_packing = pytest.mark.skipif(
    not find_processor().packs_bf16, reason="this processor or build packs no bfloat16"
)


def int8_error(weight: Tensor, x: Tensor) -> float:
    """Return the error of an 8-bit product as a share of the exact product's norm."""
    exact = F.linear(x.double(), weight.double())
    found = Int8Linear(weight, None)(x.float())
    return float((found - exact).norm() / exact.norm())


def _weight(rows: int = 48, columns: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(rows, columns, generator=generator) * 0.1,
        torch.randn(rows, generator=generator),
    )


@pytest.mark.parametrize("shape", [(32,), (1, 32), (5, 32), (2, 3, 32)])
def test_a_packed_matrix_gives_the_plain_product(shape: tuple[int, ...]) -> None:
    weight, bias = _weight()
    x = torch.randn(*shape)
    for given in (None, bias):
        found = PackedLinear(weight, given)(x)
        torch.testing.assert_close(found, F.linear(x, weight, given), atol=1e-5, rtol=0)


@needs_packing
def test_a_packed_bfloat16_matrix_rounds_the_result_once() -> None:
    weight, _ = _weight()
    weight, x = weight.bfloat16(), torch.randn(7, 32).bfloat16()
    found = PackedLinear(weight, None)(x)
    exact = F.linear(x.double(), weight.double())
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), exact, atol=1e-3, rtol=2**-8)


def test_eight_bits_are_off_by_little_and_the_error_is_told() -> None:
    weight, bias = _weight(300, 200)
    x = torch.randn(6, 200)
    found = Int8Linear(weight, bias)(x)
    exact = F.linear(x, weight, bias)
    assert float((found - exact).norm() / exact.norm()) < 0.03
    assert 0.001 < int8_error(weight, x) < 0.03
    zeros = Int8Linear(weight, bias)(torch.zeros(2, 200))
    assert torch.equal(zeros, bias.expand(2, -1))


def test_in_eight_bits_a_vector_does_not_depend_on_its_neighbours() -> None:
    weight, _ = _weight(64, 40)
    before = torch.backends.quantized.engine
    linear = make_linear(weight, None, LinearForm.INT8)
    assert torch.backends.quantized.engine == before
    x = torch.randn(4, 40)
    crowd = torch.cat([x[:1], x[1:] * 1000])
    assert torch.equal(linear(x)[0], linear(crowd)[0])
    assert torch.equal(linear(x)[2], linear(x[2:3])[0])


FP8 = torch.float8_e4m3fn


def nearest_fp8(values: Tensor) -> Tensor:
    """Return the nearest number with three bits behind the leading one, down to steps of 2**-9."""
    exponent = torch.frexp(values.abs().clamp(min=2**-6))[1] - 1
    step = torch.ldexp(torch.ones_like(values), (exponent - 3).to(values.dtype))
    return (values / step).round() * step  # of two equally near ones the even


@pytest.mark.parametrize(("dtype", "largest"), [(torch.int8, 127), (FP8, 448)])
def test_each_row_is_rounded_to_the_nearest_numbers_of_eight_bits(
    dtype: torch.dtype, largest: int
) -> None:
    weight, _ = _weight(1500, 24)  # more than are rounded at once
    weight[3], weight[4], weight[5] = 0, weight[4] * 1e5, weight[5] * 1e-5
    before = weight.clone()

    rows = ScaledRows.of(weight, dtype)

    assert torch.equal(weight, before)  # a float32 matrix keeps its numbers
    assert rows.numbers.dtype is dtype and rows.is_fp8 == (dtype is FP8)
    scaled = weight / rows.scale[:, None]
    nearest = nearest_fp8(scaled) if dtype is FP8 else scaled.round()
    assert torch.equal(rows.numbers.float(), nearest)
    others = [row for row in range(1500) if row != 3]
    assert (rows.numbers[others].float().abs().amax(1) == largest).all()
    assert not rows.numbers[3].float().any()


def test_in_fp8_few_inputs_keep_their_numbers_and_many_are_rounded() -> None:
    weight, bias = _weight(300, 200)
    linear = make_linear(weight.bfloat16(), bias.bfloat16(), LinearForm.FP8_ROWS)
    x = torch.randn(KEPT_ROWS + 1, 200, generator=torch.Generator().manual_seed(2)).bfloat16()
    rows, inputs = ScaledRows.of(weight.bfloat16(), FP8), ScaledRows.of(x, FP8)
    matrix = rows.numbers.double() * rows.scale.double()[:, None]
    rounded = inputs.numbers.double() * inputs.scale.double()[:, None]

    few, many = linear(x[:KEPT_ROWS]), linear(x.view(1, *x.shape))[0]

    for found, given in ((few, x[:KEPT_ROWS].double()), (many, rounded)):
        exact = F.linear(given, matrix, bias.bfloat16().double())
        assert found.dtype is torch.bfloat16
        torch.testing.assert_close(found.double(), exact, atol=2e-3, rtol=2**-8)
    assert not torch.equal(few, many[:KEPT_ROWS])
    exact = F.linear(x.double(), weight.double(), bias.double())
    errors = [float((found.double() - exact[: len(found)]).norm()) for found in (few, many)]
    size = float(exact.norm())
    assert 0.005 < errors[0] / size < errors[1] / size < 0.05


@pytest.mark.thorough
def test_limits_put_on_the_libraries_decide_what_the_processor_can_do() -> None:
    limits = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    code = "from synth.engine.native.library import find_processor as f; print(f().bf16)"

    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **limits},
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.split()[0] == "False"
