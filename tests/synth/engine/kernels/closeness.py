"""Compare what a kernel returned with its torch form, over sweeps of shapes and options."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16)


def sweep(*axes: Sequence[Any]) -> list[Any]:
    """Return all combinations for `parametrize`; thorough are those that bring no new pair.

    A kernel's mistakes show in a value, or in two that meet: quick are as few combinations as
    bring every value of each axis together with every value of the others.
    """
    cases = product(*(range(len(axis)) for axis in axes))
    left = {case: set(combinations(enumerate(case), 2)) for case in cases}
    quick: set[tuple[int, ...]] = set()
    while any(left.values()):
        best = max(left, key=lambda case: len(left[case]))
        quick.add(best)
        met = left[best].copy()
        for pairs in left.values():
            pairs -= met
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(axes, case, strict=True)),
            marks=() if case in quick else pytest.mark.thorough,
        )
        for case in left
    ]


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    drawn = torch.randn(shape, generator=generator, device=generator.device)
    return (drawn * scale).to(dtype)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Allow another order of float32 sums, and in bfloat16 what that does to a rounding.

    NaN is equal to nothing: what was not written is seen.
    """
    assert found.dtype is expected.dtype and found.shape == expected.shape
    # A sum that rounds the other way is off by one bit of bfloat16, then of what follows from it.
    bound = 2e-2 if found.dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)
    if found.dtype is torch.bfloat16:
        assert (found != expected).float().mean() < 0.05
