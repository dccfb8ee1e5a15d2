"""Test attention: one pass or splits, near neighbours or far ones."""

from __future__ import annotations

import torch
from torch import Tensor

from synth.engine.model.attention import SPLIT_POSITIONS, split_attention, step_attention, step_mask


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
