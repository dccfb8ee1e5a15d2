"""Test matrix: products, whatever their shape, form and neighbours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.model.linear import NativeGate, NativeLinear
from synth.engine.native.library import Library
from tests.synth.engine.model.test_linear import int8_error

pytestmark = pytest.mark.compiler

FORMS = ["float32", "bfloat16", "int8"]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def native(weight: Tensor, bias: Tensor | None, form: str) -> NativeLinear:
    dtype = torch.bfloat16 if form == "bfloat16" else torch.float32
    return NativeLinear(weight.to(dtype), bias, int8=form == "int8")


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 33, 600])
@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_products_are_those_of_pytorch(library: Library, form: str, rows: int) -> None:
    weight, bias, x = numbers(50, 37), numbers(50, seed=1), numbers(rows, 37, seed=2)
    if form == "bfloat16":
        weight, x = weight.bfloat16().float(), x.bfloat16().float()
    linear = native(weight, bias, form)

    found = linear(x.to(linear.dtype))

    assert found.dtype is linear.dtype
    expected = F.linear(x.double(), weight.double(), bias.double())
    close = 1e-5 if form == "float32" else 2**-7  # a result is rounded to bfloat16 once
    torch.testing.assert_close(found.double(), expected, atol=close, rtol=close)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_the_same_in_every_bit_alone_and_among_others(library: Library, form: str) -> None:
    linear = native(numbers(96, 200), None, form)
    x = numbers(41, 200, seed=2).to(linear.dtype)

    together = linear(x)

    for row in (0, 7, 8, 31, 40):
        assert torch.equal(linear(x[row : row + 1])[0], together[row])
    assert torch.equal(linear(x[5:12]), together[5:12])


@pytest.mark.parametrize("form", FORMS)
def test_threads_change_no_bit(library: Library, form: str) -> None:
    linear = native(numbers(700, 64), None, form)
    x, before = numbers(9, 64).to(linear.dtype), torch.get_num_threads()
    found = []

    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(linear(x))
    torch.set_num_threads(before)

    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_eight_bits_are_as_near_as_those_of_pytorch(library: Library) -> None:
    weight, x = numbers(256, 512), numbers(16, 512, seed=3)
    exact = F.linear(x.double(), weight.double())

    found = NativeLinear(weight, None, int8=True)(x)

    error = float((found - exact).norm() / exact.norm())
    assert error <= 1.05 * int8_error(weight, x)


def test_of_eight_bits_each_number_is_the_nearest_there_is(library: Library) -> None:
    """A matrix that changes nothing shows what a row's numbers were rounded to."""
    linear = native(torch.eye(61), None, "int8")
    x = numbers(7, 61, seed=4) * 10.0 ** torch.arange(-3, 4).unsqueeze(1)
    levels = 64 if library.target == "avx2" else 127

    found = linear(x)

    nearest = x.abs().amax(1, keepdim=True) / levels / 2
    assert bool(((found - x).abs() <= nearest * (1 + 1e-4)).all())


@pytest.mark.parametrize("place", [5, 44])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_is_not_finite_spoils_no_other(
    library: Library, form: str, value: float, place: int
) -> None:
    linear = native(numbers(40, 45), None, form)
    x = numbers(6, 45).to(linear.dtype)
    poisoned = x.clone()
    poisoned[2, place] = value

    found, expected = linear(poisoned), linear(x)

    assert not bool(found[2].isfinite().any())
    kept = [0, 1, 3, 4, 5]
    assert torch.equal(found[kept], expected[kept])


@pytest.mark.parametrize("form", FORMS)
def test_a_row_of_zeros_gives_zeros(library: Library, form: str) -> None:
    linear = native(numbers(40, 64), None, form)
    assert not linear(torch.zeros(2, 64, dtype=linear.dtype)).any()


@pytest.mark.parametrize("hidden", [16, 40, 57])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_open_as_in_a_feed_forward(library: Library, dtype: torch.dtype, hidden: int) -> None:
    gate, up = numbers(hidden, 48).to(dtype), numbers(hidden, 48, seed=1).to(dtype)
    x = numbers(3, 5, 48, seed=2).to(dtype)
    both = NativeGate(gate, up)

    first, second = both(x).chunk(2, dim=-1)
    gated = both.gated(x)

    far, share = (1e-5, 1e-5) if dtype is torch.float32 else (0.04, 0.02)
    torch.testing.assert_close(first, F.linear(x, gate), atol=far, rtol=share)
    torch.testing.assert_close(second, F.linear(x, up), atol=far, rtol=share)
    torch.testing.assert_close(gated, F.silu(first) * second, atol=far, rtol=share)


def test_far_gates_are_shut_or_open(library: Library) -> None:
    gate = torch.tensor([[-400.0], [400.0], [0.0]])
    both = NativeGate(gate, torch.ones(3, 1))
    assert both.gated(torch.ones(1, 1)).tolist() == [[0.0, 400.0, 0.0]]


def test_the_memory_of_a_matrix_is_that_of_its_numbers(library: Library) -> None:
    weight = numbers(64, 128)
    assert NativeLinear(weight, None).num_bytes == 64 * 128 * 4
    assert NativeLinear(weight.bfloat16(), None).num_bytes == 64 * 128 * 2
    assert NativeLinear(weight, None, int8=True).num_bytes == 64 * 128
