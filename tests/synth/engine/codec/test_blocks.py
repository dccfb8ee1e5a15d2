"""Test the codec's blocks: causal, of the right length, and equal to their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.config import HEAD_DIM, TransformerConfig
from synth.engine.codec.layers import (
    MAX_KEPT_POSITIONS,
    ROPE_BASE,
    CausalConv1d,
    CausalConvTranspose1d,
    Chain,
    ConvNeXtBlock,
    NormedConv1d,
    ResidualUnit,
    RopeRows,
    Snake,
    group_by_length,
)
from synth.engine.codec.stages import (
    QuantizerStack,
    WindowedTransformer,
    windowed_attention,
)
from synth.engine.model.layers import rope_table
from tests.synth.engine.codec.conftest import randomised


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(7, 1, 1), (7, 1, 9), (4, 2, 1), (16, 8, 1)]
)
def test_causal_convolution_gives_one_output_a_stride_begun(
    kernel: int, stride: int, dilation: int
) -> None:
    layer = randomised(CausalConv1d(2, 3, kernel, stride=stride, dilation=dilation), 0, 0.3)
    for length in (1, 2, 15, 16, 33):
        assert layer(torch.randn(1, 2, length)).shape == (1, 3, math.ceil(length / stride))


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
    layer = randomised(layer, 0, 0.3)
    x = torch.randn(1, 4, 40)
    later = torch.cat((x[..., :25], x[..., 25:] + 1), dim=-1)
    first, second = layer(x), layer(later)
    same = 25 * (first.shape[-1] // 40)
    torch.testing.assert_close(first[..., :same], second[..., :same])
    assert not torch.allclose(first[..., same : same + 1], second[..., same : same + 1])


@pytest.mark.parametrize(
    ("layer", "taps", "x", "expected"),
    [
        (  # the last tap meets the newest input
            CausalConv1d(1, 1, 3, dilation=2),
            [100.0, 10.0, 1.0],
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            [1, 2, 13, 24, 135, 246],
        ),
        (  # the tail is cut, and nothing on the left
            CausalConvTranspose1d(1, 1, 4, stride=2),
            [1.0, 2.0, 3.0, 4.0],
            [1.0, 10.0],
            [1, 2, 13, 24],
        ),
    ],
    ids=["dilated", "transposed"],
)
def test_taps_meet_their_inputs(
    layer: CausalConv1d | CausalConvTranspose1d,
    taps: list[float],
    x: list[float],
    expected: list[float],
) -> None:
    with torch.no_grad():
        layer.conv.weight.copy_(torch.tensor([[taps]]))
        layer.conv.bias.zero_()  # type: ignore[union-attr]  # built with a bias
    assert layer(torch.tensor([[x]])).flatten().tolist() == expected


def test_snake_adds_a_squared_sine_over_alpha_and_leaves_its_input() -> None:
    snake = Snake(2).requires_grad_(False)
    snake.alpha.copy_(torch.tensor([[[0.5], [2.0]]]))
    x = torch.randn(1, 2, 5)
    before = x.clone()

    found = snake(x)

    torch.testing.assert_close(found, x + (snake.alpha * x).sin() ** 2 / (snake.alpha + 1e-9))
    assert torch.equal(x, before)


def test_a_module_that_may_look_back_and_takes_no_past_is_an_error() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        Chain(nn.Conv1d(4, 4, 3))(torch.randn(1, 4, 9))


@pytest.mark.parametrize("channels", [4, 8, 16, 24, 32])
@pytest.mark.parametrize(("kernel", "stride"), [(8, 1), (16, 1), (8, 4), (8, 8), (16, 8)])
def test_bfloat16_convolution_of_few_channels_is_right_on_every_processor(
    channels: int, kernel: int, stride: int
) -> None:
    conv = NormedConv1d(channels, 16, kernel, stride=stride, bias=False)
    conv = randomised(conv, 0, 1.0).to(torch.bfloat16)
    x = torch.randn(1, channels, 200, generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = F.conv1d(x.double(), conv.weight.double(), stride=stride)
    assert conv(x).dtype == torch.bfloat16
    assert (conv(x).double() - exact).norm() < 0.01 * exact.norm()


def test_every_input_is_in_one_group_longest_first_and_groups_keep_to_the_limit() -> None:
    lengths = [3, 9, 1, 7, 7, 12, 2]
    for limit in (1, 10, 25, 1000):
        groups = list(group_by_length(lengths, limit))
        assert sorted(index for group in groups for index in group) == list(range(7))
        for group in groups:
            assert len(group) == 1 or max(lengths[i] for i in group) * len(group) <= limit
    assert list(group_by_length([3, 9, 5], 27)) == [[1, 2, 0]]
    assert list(group_by_length([3, 9, 5], 26)) == [[1, 2], [0]]
    assert list(group_by_length([], 5)) == []


@pytest.fixture
def stack() -> QuantizerStack:
    return randomised(QuantizerStack(3, 12, 5, 30), 2, 0.5)


def test_search_takes_the_row_of_the_largest_cosine(stack: QuantizerStack) -> None:
    quantizer, z = stack.steps[0], torch.randn(2, 12, 40)
    points = quantizer.in_proj(z).transpose(1, 2).double()
    rows = F.normalize(quantizer.codebook.weight.double(), dim=-1)
    cosines = F.normalize(points, dim=-1) @ rows.t()
    assert torch.equal(quantizer.search(z), cosines.argmax(-1))


def test_the_length_of_a_row_does_not_draw_the_search_and_the_first_of_equals_wins(
    stack: QuantizerStack,
) -> None:
    quantizer, z = stack.steps[0], torch.randn(1, 12, 40)
    before = quantizer.search(z)
    quantizer.codebook.weight.mul_(torch.linspace(0.1, 9, 30)[:, None])
    assert torch.equal(quantizer.search(z), before)
    quantizer.codebook.weight[:] = quantizer.codebook.weight[7].clone()
    assert set(quantizer.search(z)[0].tolist()) == {0}


def test_the_search_is_float32_in_a_bfloat16_model(stack: QuantizerStack) -> None:
    quantizer = stack.steps[0].bfloat16()
    z = torch.randn(1, 12, 200).bfloat16()
    points = quantizer.in_proj(z).float().transpose(1, 2)
    rows = F.normalize(quantizer.codebook.weight.float(), dim=-1)
    assert torch.equal(quantizer.search(z), (F.normalize(points, dim=-1) @ rows.t()).argmax(-1))


def by_full_mask(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Compute windowed attention in float64 with the whole square of scores."""
    positions = torch.arange(q.shape[2])
    distance = positions[:, None] - positions[None, :]
    scores = q.double() @ k.double().transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill((distance < 0) | (distance >= window), -torch.inf)
    mixed: Tensor = scores.softmax(-1) @ v.double()
    return mixed.float()


@pytest.mark.parametrize("window", [1, 8])
def test_attention_in_blocks_equals_attention_with_a_full_mask(window: int) -> None:
    for length in (1, 7, 8, 9, 16, 17, 61):
        q, k, v = torch.randn(3, 2, 3, length, 64).unbind(0)
        found = windowed_attention(q, k, v, window)
        torch.testing.assert_close(found, by_full_mask(q, k, v, window), atol=2e-6, rtol=0)


def test_a_minute_of_encoder_frames_needs_no_square_of_scores() -> None:
    length, window = 5168, 512
    q, k, v = torch.randn(3, 1, 1, length, 64).unbind(0)
    with torch.profiler.profile(profile_memory=True) as profile:
        windowed_attention(q, k, v, window)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert 4 * length <= largest < length * length / 4  # bytes, where a square needs 4 a score


@pytest.fixture
def transformer() -> WindowedTransformer:
    return randomised(WindowedTransformer(TransformerConfig(16, 3, 2, 24, 5)), 1, 0.4)


def test_an_output_sees_as_far_back_as_all_windows_reach(transformer: WindowedTransformer) -> None:
    x, reach = torch.randn(1, 16, 40), 3 * (5 - 1)
    changed = x.clone()
    changed[..., 20] += 1
    difference = (transformer(x) - transformer(changed)).abs().amax((0, 1))
    assert torch.equal(difference[:20], torch.zeros(20))
    assert (difference[20 : 20 + reach + 1] > 0).all()
    assert torch.equal(difference[20 + reach + 1 :], torch.zeros(40 - 21 - reach))


def test_a_prefix_gives_the_prefix_and_bfloat16_stays_near(
    transformer: WindowedTransformer,
) -> None:
    x = torch.randn(2, 16, 23)
    whole, prefix = transformer(x), transformer(x[..., :11])
    torch.testing.assert_close(whole[..., :11], prefix, atol=1e-5, rtol=0)
    found = transformer.to(torch.bfloat16)(x.bfloat16())
    assert found.dtype is torch.bfloat16
    assert (found.float() - whole).abs().mean() < 0.05


def test_kept_rotary_rows_are_those_of_a_fresh_table_wherever_they_start() -> None:
    rows, device = RopeRows(), torch.device("cpu")
    whole = rope_table(torch.arange(MAX_KEPT_POSITIONS + 300), HEAD_DIM, ROPE_BASE)
    for start, stop in [(0, 1), (3, 40), (500, 700), (0, 5000), (9, 10), (16380, 16390)]:
        assert torch.equal(rows.rows(start, stop, device), whole[start:stop])


def test_what_a_measurement_keeps_does_not_hinder_training(
    transformer: WindowedTransformer,
) -> None:
    with torch.inference_mode():
        transformer(torch.randn(1, 16, 5))
    transformer.requires_grad_(True)
    transformer(torch.randn(1, 16, 5)).sum().backward()
    gradients = [weight.grad for name, weight in transformer.named_parameters() if "wqkv" in name]
    assert all(gradient is not None and gradient.abs().max() > 0 for gradient in gradients)
