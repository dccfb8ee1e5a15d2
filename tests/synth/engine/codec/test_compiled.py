"""Test synth.engine.codec.compiled: where it is used, and that it gives what PyTorch gives."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from synth.engine.codec import compiled
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.fusing import uses_kernels
from synth.engine.codec.load import load_decoder
from synth.engine.codec.stream import CodecStream
from synth.engine.native import convolution
from synth.engine.native.build import NotCompiledError


def some_codes(decoder: CodecDecoder, frames: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 30, (decoder.config.num_codebooks, frames), generator=generator)


@pytest.mark.compiler
def test_the_compiled_decoder_gives_what_pytorch_gives(checkpoint: Path) -> None:
    plain = load_decoder(checkpoint, "cpu", kernels="off")
    ours = load_decoder(checkpoint, "cpu")
    codes = [some_codes(ours, frames, seed=frames) for frames in (1, 2, 19, 40, 200)]

    found, expected = ours.decode(codes), plain.decode(codes)

    assert uses_kernels(ours) and not uses_kernels(plain)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32 and float(other.std()) > 0.01
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.compiler
def test_neighbours_and_other_threads_change_no_bit_of_the_layers(checkpoint: Path) -> None:
    wave = load_decoder(checkpoint, "cpu").decoder
    latents = torch.randn(3, 24, 60, generator=torch.Generator().manual_seed(1))

    together = wave(latents)
    with ThreadPoolExecutor(3) as pool:
        alone = list(pool.map(wave, torch.split(latents, 1)))

    assert torch.equal(torch.cat(alone), together)


@pytest.mark.compiler
def test_a_compiled_stream_gives_what_a_plain_one_gives(checkpoint: Path) -> None:
    plain = load_decoder(checkpoint, "cpu", kernels="off")
    ours = load_decoder(checkpoint, "cpu")
    codes = some_codes(ours, 50)
    streams = CodecStream(ours), CodecStream(plain)

    for chunk in torch.split(codes, [1, 2, 30, 1, 16], dim=1):
        found, expected = (stream.decode(chunk) for stream in streams)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.compiler
def test_weights_are_held_once(checkpoint: Path) -> None:
    def num_bytes(half: nn.Module) -> int:
        return sum(weight.numel() * weight.element_size() for weight in half.parameters())

    plain, ours = (load_decoder(checkpoint, "cpu", kernels=choice) for choice in ("off", "auto"))

    # The test's layers are as narrow as 1 and 2 outputs; groups of outputs are filled up.
    assert num_bytes(plain) <= num_bytes(ours) <= 1.2 * num_bytes(plain)


def test_another_precision_is_left_to_pytorch(checkpoint: Path) -> None:
    assert not uses_kernels(load_decoder(checkpoint, "cpu", torch.bfloat16))


def test_without_a_compiler_pytorch_does_it_and_the_log_says_why(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise NotCompiledError("there is no C compiler: install gcc, then start the worker again")

    monkeypatch.setattr(convolution, "native_library", refuse)
    with caplog.at_level(logging.INFO, logger=compiled.__name__):
        decoder = load_decoder(checkpoint, "cpu")

    assert not uses_kernels(decoder)
    (audio,) = decoder.decode([some_codes(decoder, 5)])
    assert audio.shape == (5 * 2048,) and bool(audio.isfinite().all())
    assert "PyTorch turns codes into audio" in caplog.text and "install gcc" in caplog.text
