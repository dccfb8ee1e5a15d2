"""Test the codec's kernels against their torch forms, and these against the codec's own layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed")

from lab.gpu_check.kernel_cases import snake_cases
from lab.gpu_check.torch_forms import add_branch_torch, snake_torch
from synth.engine.codec.layers import Snake
from synth.engine.kernels.rowwise import add_branch, snake

DTYPES = (torch.float32, torch.bfloat16)
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

    def context(self, left: int) -> Tensor:
        return self.x.flip(2)[..., :1].expand(-1, -1, left) * 0.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 1, 1), {}),
        ((2, 5, 37), {}),
        ((2, 17, 511), {}),
        ((1, 3, 506), {"left": 6}),
        ((1, 3, 1024), {"left": 6}),
        ((2, 3, 1025), {"left": 54}),
        ((3, 33, 32), {"left": 18}),
        ((2, 130, 3), {"left": 1}),
    ],
)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_context", [False, True])
def test_it_is_its_torch_form(
    device: torch.device,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    options: dict[str, Any],
    with_bias: bool,
    with_context: bool,
) -> None:
    given = Inputs(*shape, dtype=dtype, device=device)
    options = {**options, "bias": given.bias if with_bias else None}
    if with_context:
        options["context"] = given.context(options.get("left", 0))
    before = given.x.clone()

    found = snake(given.x, given.alpha, given.inverse, **options)

    expected = snake_torch(given.x, given.alpha, given.inverse, **options)
    assert torch.equal(given.x, before)
    assert found.shape == expected.shape and found.dtype is dtype and found.is_contiguous()
    torch.testing.assert_close(found, expected, **CLOSE[dtype])
    left = options.get("left", 0)
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


def test_the_torch_form_is_the_codecs_layer_to_the_last_bit(device: torch.device) -> None:
    given = Inputs(2, 6, 90, dtype=torch.float32, device=device)
    layer = Snake(6).requires_grad_(False).to(device)
    layer.alpha.copy_(given.alpha.view(1, -1, 1))
    assert torch.equal(layer(given.x), snake_torch(given.x, given.alpha, given.inverse))


def test_in_bfloat16_the_torch_form_is_nearer_to_float32_than_the_layer(
    device: torch.device,
) -> None:
    given = Inputs(1, 6, 400, dtype=torch.bfloat16, device=device)
    layer = Snake(6).requires_grad_(False).to(device, torch.bfloat16)
    layer.alpha.copy_(given.alpha.view(1, -1, 1))
    exact = snake_torch(given.x.float(), given.alpha.float(), given.inverse)

    ours = (snake_torch(given.x, given.alpha, given.inverse) - exact).abs().mean()

    assert ours < 0.85 * (layer(given.x) - exact).abs().mean()


@pytest.mark.gpu
def test_cases_of_the_benchmark_agree(device: torch.device) -> None:
    for case in snake_cases(device, torch.bfloat16):
        torch.testing.assert_close(case.kernel(), case.torch_form(), **CLOSE[torch.bfloat16])
