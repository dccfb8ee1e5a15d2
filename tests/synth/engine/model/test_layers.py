"""Test layers: the roundings that float32 vectors cannot tell apart."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from synth.engine.model.config import TransformerConfig
from synth.engine.model.layers import (
    SPLIT_POSITIONS,
    FeedForward,
    head_norm,
    rms_norm,
    split_attention,
    step_attention,
    step_mask,
)
from synth.engine.model.linear import LinearForm


def test_the_block_norm_casts_before_the_weight_and_the_head_norm_after() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 32, generator=generator).bfloat16()
    weight = (1 + 0.3 * torch.randn(32, generator=generator)).bfloat16()
    wide = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    block, head = rms_norm(x, weight, 1e-6), head_norm(x, weight, 1e-6)
    assert torch.equal(block, wide.bfloat16() * weight)
    assert torch.equal(head, (wide * weight.float()).bfloat16())
    assert not torch.equal(block, head)


def test_a_step_sees_only_visible_positions_whatever_lies_beyond() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 8, generator=generator)
    keys, values = torch.randn(2, 2, 2, 6, 8, generator=generator)
    mask = step_mask(torch.tensor([2, 4]), 6)
    out = step_attention(q, keys, values, mask)
    keys, values = keys.clone(), values.clone()
    keys[0, :, 3:], values[0, :, 3:] = 1e4, 1e4
    assert torch.equal(step_attention(q, keys, values, mask), out)


def test_joining_the_two_matrices_does_not_change_the_feed_forward() -> None:
    config = TransformerConfig(1, 16, 1, 1, 1, 16, 24, False, False, False)
    layer = FeedForward(config)
    x = torch.randn(3, 16)
    assert layer.w1 is not None and layer.w3 is not None
    expected = layer.w2(torch.nn.functional.silu(layer.w1(x)) * layer.w3(x))

    with pytest.raises(RuntimeError):
        layer(x)
    layer.finalize(LinearForm.PLAIN)
    layer.finalize(LinearForm.PLAIN)

    torch.testing.assert_close(layer(x), expected, atol=1e-6, rtol=0)


def _inputs(length: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 6, 8, generator=generator)
    keys, values = torch.randn(2, 3, 2, length, 8, generator=generator)
    return q, keys, values


def test_splits_give_what_one_pass_gives() -> None:
    q, keys, values = _inputs(3 * SPLIT_POSITIONS)
    mask = step_mask(torch.tensor([0, SPLIT_POSITIONS - 1, 2 * SPLIT_POSITIONS + 5]), keys.shape[2])
    found = split_attention(q, keys, values, mask)
    torch.testing.assert_close(found, step_attention(q, keys, values, mask), atol=1e-6, rtol=0)


def test_with_splits_a_stream_does_not_see_how_far_its_neighbours_are() -> None:
    q, keys, values = _inputs(3 * SPLIT_POSITIONS)
    near, far = torch.tensor([7, 9, 11]), torch.tensor([7, 700, 11])

    alone = split_attention(
        q,
        keys[:, :, :SPLIT_POSITIONS],
        values[:, :, :SPLIT_POSITIONS],
        step_mask(near, SPLIT_POSITIONS),
    )
    among = split_attention(q, keys, values, step_mask(far, keys.shape[2]))

    assert torch.equal(alone[[0, 2]], among[[0, 2]])


def test_the_mask_shows_a_stream_everything_up_to_its_position() -> None:
    mask = step_mask(torch.tensor([1, 3]), 5)[:, 0, 0]
    assert (mask == 0).tolist() == [[True] * 2 + [False] * 3, [True] * 4 + [False]]
    assert mask[0, 2:].isneginf().all()
