"""Test where kernels are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from synth.engine.codec.files.load import CodecCache, load_decoder, load_encoder
from synth.engine.codec.fusing import uses_kernels, wants_kernels
from synth.engine.codec.residual import Snake
from synth.engine.errors import InvalidSpecError


def test_a_cpu_never_gets_triton(checkpoint: Path) -> None:
    assert not wants_kernels("auto", "cpu")
    decoder = load_decoder(checkpoint, "cpu")
    assert all(snake.inverse is None for snake in decoder.modules() if isinstance(snake, Snake))
    assert not uses_kernels(load_decoder(checkpoint, "cpu", kernels="off"))
    assert not uses_kernels(load_encoder(checkpoint, "cpu"))


def test_another_word_for_the_choice_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidSpecError, match="'on' is not a setting for kernels"):
        load_decoder(checkpoint, "cpu", kernels="on")


def test_halves_with_and_without_kernels_are_kept_apart(checkpoint: Path) -> None:
    cache = CodecCache()
    decoder = cache.decoder(checkpoint, "cpu")

    assert cache.decoder(checkpoint, "cpu", kernels="off") is not decoder
    assert cache.decoder(checkpoint, "cpu") is decoder


@pytest.mark.gpu
def test_a_cuda_device_gets_kernels_unless_told_not_to(checkpoint: Path) -> None:
    device = torch.device("cuda")

    assert uses_kernels(load_decoder(checkpoint, device))
    assert not uses_kernels(load_decoder(checkpoint, device, kernels="off"))
