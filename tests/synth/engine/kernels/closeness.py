"""Compare what a kernel returned with its torch form."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16)


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """Return normal numbers."""
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
