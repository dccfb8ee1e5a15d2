"""Test matrix: products, whatever their shape, form and neighbours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.model.linear import NativeGate, NativeLinear
from synth.engine.native.library import Library
from tests.synth.engine.model.test_linear import int8_error
from tests.synth.engine.native.conftest import numbers

pytestmark = pytest.mark.compiler

FORMS = ["float32", "bfloat16", "int8"]


def native(weight: Tensor, bias: Tensor | None, form: str) -> NativeLinear:
    dtype = torch.bfloat16 if form == "bfloat16" else torch.float32
    return NativeLinear(weight.to(dtype), bias, int8=form == "int8")


@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_products_are_those_of_pytorch(library: Library, form: str) -> None:
    weight, bias = numbers(50, 37), numbers(50, seed=1)
    linear = native(weight, bias, form)
    close = 1e-5 if form == "float32" else 2**-7  # a result is rounded to bfloat16 once
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 33, 600):
        x = numbers(rows, 37, seed=2).to(linear.dtype)
        found = linear(x)
        assert found.dtype is linear.dtype
        expected = F.linear(x.double(), weight.to(linear.dtype).double(), bias.double())
        torch.testing.assert_close(found.double(), expected, atol=close, rtol=close)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("form", FORMS)
def test_neither_neighbours_nor_threads_change_a_bit(library: Library, form: str) -> None:
    linear = native(numbers(96, 200), None, form)
    x = numbers(41, 200, seed=2).to(linear.dtype)
    together = linear(x)
    for row in (0, 7, 8, 31, 40):
        assert torch.equal(linear(x[row : row + 1])[0], together[row])
    assert torch.equal(linear(x[5:12]), together[5:12])

    linear = native(numbers(700, 64), None, form)
    x, found = numbers(9, 64).to(linear.dtype), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(linear(x))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert not linear(torch.zeros(2, 64, dtype=linear.dtype)).any()


def test_eight_bits_are_as_near_as_those_of_pytorch_and_take_their_memory(library: Library) -> None:
    weight, x = numbers(256, 512), numbers(16, 512, seed=3)
    exact = F.linear(x.double(), weight.double())
    found = NativeLinear(weight, None, int8=True)(x)
    sizes = [native(weight, None, form).weight.nbytes for form in FORMS]
    assert sizes == [256 * 512 * 4, 256 * 512 * 2, 256 * 512]
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


@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_is_not_finite_spoils_no_other(library: Library, form: str) -> None:
    linear, kept = native(numbers(40, 45), None, form), [0, 1, 3, 4, 5]
    x = numbers(6, 45).to(linear.dtype)
    expected = linear(x)
    for place in (5, 44):
        for value in (float("nan"), float("inf"), -float("inf")):
            poisoned = x.clone()
            poisoned[2, place] = value
            found = linear(poisoned)
            assert not bool(found[2].isfinite().any())
            assert torch.equal(found[kept], expected[kept])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_open_as_in_a_feed_forward(library: Library, dtype: torch.dtype) -> None:
    x = numbers(3, 5, 48, seed=2).to(dtype)
    far, share = (1e-5, 1e-5) if dtype is torch.float32 else (0.04, 0.02)
    for hidden in (16, 40, 57):
        gate, up = numbers(hidden, 48).to(dtype), numbers(hidden, 48, seed=1).to(dtype)
        both = NativeGate(gate, up)
        first, second = both(x).chunk(2, dim=-1)
        torch.testing.assert_close(first, F.linear(x, gate), atol=far, rtol=share)
        torch.testing.assert_close(second, F.linear(x, up), atol=far, rtol=share)
        gated = F.silu(first) * second
        torch.testing.assert_close(both.gated(x), gated, atol=far, rtol=share)

    far_gates = NativeGate(torch.tensor([[-400.0], [400.0], [0.0]]), torch.ones(3, 1))
    assert far_gates.gated(torch.ones(1, 1)).tolist() == [[0.0, 400.0, 0.0]]
