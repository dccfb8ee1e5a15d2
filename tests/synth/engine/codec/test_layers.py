"""Test the convolutional blocks: causal, of the right length, and equal to their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from synth.engine.codec.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    ConvNeXtBlock,
    NormedConv1d,
    ResidualUnit,
    Snake,
    group_by_length,
    pad_right,
)


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    """Return the module with random weights, as blocks are built without any."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module.requires_grad_(False)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(7, 1, 1), (7, 1, 9), (4, 2, 1), (16, 8, 1)]
)
@pytest.mark.parametrize("length", [1, 2, 15, 16, 33])
def test_causal_convolution_gives_one_output_a_stride_begun(
    kernel: int, stride: int, dilation: int, length: int
) -> None:
    layer = randomised(CausalConv1d(2, 3, kernel, stride=stride, dilation=dilation))
    assert layer(torch.randn(1, 2, length)).shape == (1, 3, math.ceil(length / stride))


def test_causal_convolution_puts_its_last_tap_on_the_newest_input() -> None:
    layer = CausalConv1d(1, 1, 3, dilation=2)
    with torch.no_grad():
        layer.conv.weight.copy_(torch.tensor([[[100.0, 10.0, 1.0]]]))
        layer.conv.bias.zero_()  # type: ignore[union-attr]  # built with a bias
    found = layer(torch.arange(1.0, 7.0)[None, None])
    assert found.flatten().tolist() == [1, 2, 13, 24, 135, 246]


def test_transposed_convolution_cuts_its_tail_and_nothing_on_the_left() -> None:
    layer = CausalConvTranspose1d(1, 1, 4, stride=2)
    with torch.no_grad():
        layer.conv.weight.copy_(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]))
        layer.conv.bias.zero_()  # type: ignore[union-attr]  # built with a bias
    found = layer(torch.tensor([[[1.0, 10.0]]]))
    assert found.flatten().tolist() == [1, 2, 13, 24]


def test_snake_adds_a_squared_sine_over_alpha_and_leaves_its_input() -> None:
    snake = Snake(2)
    with torch.no_grad():
        snake.alpha.copy_(torch.tensor([[[0.5], [2.0]]]))
    x = torch.randn(1, 2, 5)
    before = x.clone()

    found = snake(x)

    alpha = torch.tensor([0.5, 2.0])[None, :, None]
    torch.testing.assert_close(found, x + (alpha * x).sin() ** 2 / (alpha + 1e-9))
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "layer",
    [
        CausalConv1d(4, 4, 7, dilation=3),
        CausalConvTranspose1d(4, 4, 16, stride=8),
        ResidualUnit(4, 9),
        ConvNeXtBlock(4),
    ],
)
def test_no_block_lets_an_input_change_an_earlier_output(layer: nn.Module) -> None:
    layer = randomised(layer)
    x = torch.randn(1, 4, 40)
    later = torch.cat((x[..., :25], x[..., 25:] + 1), dim=-1)

    first, second = layer(x), layer(later)

    same = 25 * (first.shape[-1] // 40)
    torch.testing.assert_close(first[..., :same], second[..., :same])
    assert not torch.allclose(first[..., same : same + 1], second[..., same : same + 1])


def test_convnext_block_is_its_formula() -> None:
    block = randomised(ConvNeXtBlock(3))
    assert isinstance(block, ConvNeXtBlock)
    x = torch.randn(2, 3, 9)

    found = block(x)

    y: Tensor = block.dwconv(x).transpose(1, 2)
    y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
    y = (y * block.norm.weight + block.norm.bias) @ block.pwconv1.weight.t() + block.pwconv1.bias
    y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
    y = y @ block.pwconv2.weight.t() + block.pwconv2.bias
    torch.testing.assert_close(found, x + (block.gamma * y).transpose(1, 2))


@pytest.mark.parametrize("channels", [4, 8, 16, 24, 32])
@pytest.mark.parametrize(("kernel", "stride"), [(8, 1), (16, 1), (8, 4), (8, 8), (16, 8)])
def test_bfloat16_convolution_of_few_channels_is_right_on_every_processor(
    channels: int, kernel: int, stride: int
) -> None:
    numbers = torch.Generator().manual_seed(0)
    conv = NormedConv1d(channels, 16, kernel, stride=stride, bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.randn(conv.weight.shape, generator=numbers))
    conv.to(torch.bfloat16)
    x = torch.randn(1, channels, 200, generator=numbers).to(torch.bfloat16)

    with torch.no_grad():
        given = conv(x)
        exact = torch.nn.functional.conv1d(x.double(), conv.weight.double(), stride=stride)

    assert given.dtype == torch.bfloat16
    assert (given.double() - exact).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize("limit", [1, 10, 25, 1000])
def test_every_input_is_in_one_group_and_groups_keep_to_the_limit(limit: int) -> None:
    lengths = [3, 9, 1, 7, 7, 12, 2]
    groups = list(group_by_length(lengths, limit))
    assert sorted(index for group in groups for index in group) == list(range(7))
    for group in groups:
        assert len(group) == 1 or max(lengths[i] for i in group) * len(group) <= limit


def test_a_limit_that_holds_all_gives_one_group_longest_first() -> None:
    assert list(group_by_length([3, 9, 5], 27)) == [[1, 2, 0]]
    assert list(group_by_length([3, 9, 5], 26)) == [[1, 2], [0]]


def test_no_inputs_give_no_group() -> None:
    assert list(group_by_length([], 5)) == []


def test_padding_is_zeros_on_the_right() -> None:
    found = pad_right([torch.tensor([1, 2]), torch.tensor([3])], 3)
    assert found.tolist() == [[1, 2, 0], [3, 0, 0]]
