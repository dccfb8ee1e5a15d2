"""Test the grouping of inputs into padded batches."""

from __future__ import annotations

import pytest
import torch

from synth.engine.codec.batching import group_by_length, pad_right


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
