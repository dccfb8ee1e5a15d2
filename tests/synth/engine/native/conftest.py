"""Compile the code for every class of processors that this one belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pytest
import torch
from torch import Tensor

from synth.engine.model import linear as matrix
from synth.engine.native import convolution
from synth.engine.native.build import TARGETS, Target, cache_folders, processor_flags
from synth.engine.native.convolution import Ahead, NativeConvolution, convolve
from synth.engine.native.library import Library, load_library


@cache
def _load(target: Target) -> Library:
    return load_library(target, cache_folders(None))


@pytest.fixture(params=TARGETS, ids=lambda target: target.name)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library:
    """Return the code of a class, which all weights are then laid out for."""
    target: Target = request.param
    if not set(target.needs) <= processor_flags():
        pytest.skip(f"this processor is not of the class {target.name}")
    loaded = _load(target)
    for module in (matrix, convolution):
        monkeypatch.setattr(module, "native_library", lambda: loaded)
    return loaded


@pytest.fixture
def threads() -> Iterator[None]:
    """Put the number of PyTorch's threads back behind a test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Convolution(NativeConvolution):
    """Be a step on its own."""

    def __call__(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Map [B, in, T] to [B, out, T * stride].

        `before` [B, in, context], each row contiguous, is what comes ahead of the input and then
        what lies ahead of the next columns; None stands for zeros.
        """
        if before is None:
            return convolve([self], [x])[0]
        assert before.shape == (x.shape[0], self.wide.channels, self.context)
        assert before.dtype is torch.float32 and before[0].is_contiguous()
        return convolve([self], [x], Ahead([before.data_ptr()], before.stride(0)))[0]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return normally distributed numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def split(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Cut x [B, D, T] into chunks of so many columns, each in memory of its own."""
    return [piece.contiguous() for piece in torch.split(x, list(sizes), dim=2)]


def close(found: Tensor, expected: Tensor) -> None:
    """Hold what compiled code gives to what is expected in double precision."""
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=1e-5)
