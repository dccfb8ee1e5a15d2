"""Group inputs of different lengths into right-padded batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def group_by_length(lengths: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Yield groups of indices, longest first, whose padded size is at most `limit` positions.

    An input longer than `limit` is a group of its own: the limit saves memory, it forbids nothing.
    """
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group and lengths[group[0]] * (len(group) + 1) > limit:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def pad_right(items: Sequence[Tensor], length: int) -> Tensor:
    """Stack tensors [..., n] into [B, ..., length], with zeros after each one's own end."""
    return torch.stack([F.pad(item, (0, length - item.shape[-1])) for item in items])
