"""Test the search for the nearest code and the way back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.codec.config import HEAD_DIM, TransformerConfig
from synth.engine.codec.stages import (
    MAX_KEPT_POSITIONS,
    ROPE_BASE,
    QuantizerStack,
    RopeRows,
    VectorQuantizer,
    WindowedTransformer,
    windowed_attention,
)
from synth.engine.model.layers import rope_table


@pytest.fixture
def stack() -> QuantizerStack:
    """Return three quantizers of 30 codes with random weights."""
    module = QuantizerStack(3, 12, 5, 30)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return module.requires_grad_(False)


def only(stack: QuantizerStack) -> VectorQuantizer:
    """Return the first quantizer."""
    first = stack.quantizers[0]
    assert isinstance(first, VectorQuantizer)
    return first


def test_search_takes_the_row_of_the_largest_cosine(stack: QuantizerStack) -> None:
    quantizer, z = only(stack), torch.randn(2, 12, 40)

    found = quantizer.search(z)

    points = quantizer.in_proj(z).transpose(1, 2).double()
    cosines = (
        F.normalize(points, dim=-1) @ F.normalize(quantizer.codebook.weight.double(), dim=-1).t()
    )
    assert torch.equal(found, cosines.argmax(-1))


def test_the_length_of_a_row_does_not_draw_the_search(stack: QuantizerStack) -> None:
    quantizer, z = only(stack), torch.randn(1, 12, 40)
    before = quantizer.search(z)
    quantizer.codebook.weight.mul_(torch.linspace(0.1, 9, 30)[:, None])
    assert torch.equal(quantizer.search(z), before)


def test_the_first_of_equal_rows_wins(stack: QuantizerStack) -> None:
    quantizer = only(stack)
    quantizer.codebook.weight[:] = quantizer.codebook.weight[7].clone()
    assert set(quantizer.search(torch.randn(1, 12, 20))[0].tolist()) == {0}


def test_lookup_uses_rows_as_stored_not_their_direction(stack: QuantizerStack) -> None:
    quantizer = only(stack)

    found = quantizer.lookup(torch.tensor([[3, 4]]))

    rows = quantizer.codebook.weight[[3, 4]]
    expected = F.linear(rows, quantizer.out_proj.weight[..., 0], quantizer.out_proj.bias)
    torch.testing.assert_close(found[0].t(), expected)


def test_each_step_quantizes_what_the_steps_before_left(stack: QuantizerStack) -> None:
    z = torch.randn(1, 12, 9)

    codes, total = stack.encode(z)

    left = z
    for row, quantizer in zip(codes.unbind(1), stack.quantizers, strict=True):
        assert isinstance(quantizer, VectorQuantizer)
        assert torch.equal(quantizer.search(left), row)
        left = left - quantizer.lookup(row)
    torch.testing.assert_close(total, z - left)
    torch.testing.assert_close(stack.decode(codes), total)


def test_codes_above_the_table_mean_its_last_row_and_are_not_changed(stack: QuantizerStack) -> None:
    codes = torch.tensor([[[5, 30], [99999, 0], [29, 127]]])
    before = codes.clone()

    found = stack.decode(codes)

    assert torch.equal(codes, before)
    assert torch.equal(found, stack.decode(codes.clamp(max=29)))


def test_the_search_is_float32_in_a_bfloat16_model(stack: QuantizerStack) -> None:
    quantizer = only(stack).bfloat16()
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


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 17, 61])
@pytest.mark.parametrize("window", [1, 8])
def test_attention_in_blocks_equals_attention_with_a_full_mask(length: int, window: int) -> None:
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
    """Return a transformer of three layers and a window of 5, with random weights."""
    module = WindowedTransformer(TransformerConfig(16, 3, 2, 24, 5))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return module.requires_grad_(False)


def test_an_output_sees_as_far_back_as_all_windows_reach(transformer: WindowedTransformer) -> None:
    x, reach = torch.randn(1, 16, 40), 3 * (5 - 1)
    changed = x.clone()
    changed[..., 20] += 1

    difference = (transformer(x) - transformer(changed)).abs().amax((0, 1))

    assert torch.equal(difference[:20], torch.zeros(20))
    assert (difference[20 : 20 + reach + 1] > 0).all()
    assert torch.equal(difference[20 + reach + 1 :], torch.zeros(40 - 21 - reach))


def test_a_prefix_gives_the_prefix(transformer: WindowedTransformer) -> None:
    x = torch.randn(2, 16, 23)
    torch.testing.assert_close(
        transformer(x)[..., :11], transformer(x[..., :11]), atol=1e-5, rtol=0
    )


def test_bfloat16_runs_and_stays_near(transformer: WindowedTransformer) -> None:
    x = torch.randn(1, 16, 12)
    found = transformer.to(torch.bfloat16)(x.bfloat16())
    assert found.dtype is torch.bfloat16
    assert (found.float() - transformer.float()(x)).abs().mean() < 0.05


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
