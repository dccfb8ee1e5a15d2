"""Test compiled: where it is used, and that it gives what PyTorch gives."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from synth.engine.codec import compiled
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import load_decoder, uses_kernels
from synth.engine.codec.streams import CodecStream, decode_streams
from synth.engine.native import convolution
from synth.engine.native.build import NotCompiledError


def some_codes(decoder: CodecDecoder, frames: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 30, (decoder.config.num_codebooks, frames), generator=generator)


def alone(decoder: CodecDecoder, codes: Tensor) -> Tensor:
    """Return the audio of one call that takes all frames at once."""
    (audio,) = decoder.decode([codes], max_batch_frames=4096)
    return audio


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
@pytest.mark.parametrize("limit", [20, 64, 4096])
def test_neighbours_and_limits_change_no_bit(checkpoint: Path, limit: int) -> None:
    ours = load_decoder(checkpoint, "cpu")
    codes = [some_codes(ours, frames, seed=frames) for frames in (60, 1, 17, 0, 200, 17, 59)]
    together = ours.decode(codes, max_batch_frames=limit)
    for matrix, audio in zip(codes, together, strict=True):
        assert torch.equal(audio, alone(ours, matrix))


@pytest.mark.compiler
def test_other_threads_change_no_bit(checkpoint: Path) -> None:
    ours = load_decoder(checkpoint, "cpu")
    codes = [some_codes(ours, frames, seed=frames) for frames in (60, 1, 17, 40, 2, 33) * 2]
    expected = [alone(ours, matrix) for matrix in codes]

    def stream(matrix: Tensor) -> Tensor:
        own = CodecStream(ours)
        return torch.cat([own.decode(chunk) for chunk in torch.split(matrix, 7, dim=1)])

    with ThreadPoolExecutor(4) as pool:
        wholes = [pool.submit(alone, ours, matrix) for matrix in codes]
        streams = [pool.submit(stream, matrix) for matrix in codes]
        batches = [pool.submit(ours.decode, codes) for _ in range(3)]

    for found in (wholes, streams):
        assert all(torch.equal(a.result(), b) for a, b in zip(found, expected, strict=True))
    for batch in batches:
        assert all(torch.equal(a, b) for a, b in zip(batch.result(), expected, strict=True))


@pytest.mark.compiler
def test_codes_in_another_order_or_of_another_kind_are_the_same_codes(checkpoint: Path) -> None:
    ours = load_decoder(checkpoint, "cpu")
    codes = some_codes(ours, 20)
    expected, other = alone(ours, codes), codes.T.contiguous().T

    assert not other.is_contiguous()
    assert torch.equal(alone(ours, other), expected)
    assert torch.equal(CodecStream(ours).decode(other), expected)
    assert torch.equal(alone(ours, codes.to(torch.int16)), expected)


@pytest.mark.compiler
def test_codes_above_their_codebook_mean_its_last_row(checkpoint: Path) -> None:
    ours = load_decoder(checkpoint, "cpu")
    codes = some_codes(ours, 20)
    codes[0, 3], codes[1, 5], codes[3, 19] = 50, 30, 1 << 40
    last = codes.clone()
    last[0, 3], last[1, 5], last[3, 19] = 49, 29, 29

    assert torch.equal(alone(ours, codes), alone(ours, last))
    assert torch.equal(CodecStream(ours).decode(codes), alone(ours, last))


@pytest.mark.compiler
def test_a_compiled_stream_gives_what_a_plain_one_gives(checkpoint: Path) -> None:
    plain = load_decoder(checkpoint, "cpu", kernels="off")
    ours = load_decoder(checkpoint, "cpu")
    codes = some_codes(ours, 50)
    streams = CodecStream(ours), CodecStream(plain)

    for chunk in torch.split(codes, [1, 2, 30, 1, 16], dim=1):
        found, expected = (stream.decode(chunk) for stream in streams)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def streamed(decoder: CodecDecoder, codes: Sequence[Tensor]) -> list[Tensor]:
    """Return the audio of streams that start and end apart and go together in between."""
    streams = [CodecStream(decoder) for _ in codes]
    parts: list[list[Tensor]] = [[] for _ in codes]
    # Which streams take the next frames, and how many: two and three in a pass.
    for members, length in [
        ((1,), 37),
        ((0, 1), 1),
        ((0, 1, 2), 8),
        ((2, 0), 130),
        ((2, 1, 0), 30),
    ]:
        places = [streams[member].num_frames for member in members]
        chunks = [
            codes[member][:, place : place + length]
            for member, place in zip(members, places, strict=True)
        ]
        found = decode_streams([streams[member] for member in members], chunks)
        for member, audio in zip(members, found, strict=True):
            parts[member].append(audio)
    assert [stream.num_frames for stream in streams] == [169, 76, 168]
    return [torch.cat(part) for part in parts]


@pytest.mark.compiler
def test_streams_at_different_places_give_what_pytorch_gives(checkpoint: Path) -> None:
    plain = load_decoder(checkpoint, "cpu", kernels="off")
    ours = load_decoder(checkpoint, "cpu")
    codes = [some_codes(ours, 200, seed=seed) for seed in range(3)]

    found, expected = streamed(ours, codes), streamed(plain, codes)

    for matrix, one, other in zip(codes, found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
        assert torch.equal(one, alone(ours, matrix[:, : len(one) // 2048]))


@pytest.mark.compiler
@pytest.mark.parametrize("limit", [1, 7, 64, 300])
def test_parts_of_a_long_matrix_are_the_whole_in_every_bit(checkpoint: Path, limit: int) -> None:
    ours = load_decoder(checkpoint, "cpu")
    codes = some_codes(ours, 301)
    (found,) = ours.decode([codes], max_batch_frames=limit)
    assert torch.equal(found, alone(ours, codes))


@pytest.mark.compiler
def test_weights_are_held_once(checkpoint: Path) -> None:
    def num_bytes(half: nn.Module) -> int:
        return sum(weight.numel() * weight.element_size() for weight in half.parameters())

    plain, ours = (load_decoder(checkpoint, "cpu", kernels=choice) for choice in ("off", "auto"))

    # The test's layers are as narrow as 1 and 2 outputs; groups of outputs are filled up.
    assert num_bytes(plain) <= num_bytes(ours) <= 1.2 * num_bytes(plain)


def test_another_precision_is_left_to_pytorch(checkpoint: Path) -> None:
    assert not uses_kernels(load_decoder(checkpoint, "cpu", "bfloat16"))


def test_without_a_compiler_pytorch_does_it_and_the_log_says_why(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise NotCompiledError("there is no C compiler; install gcc, then start the worker again")

    monkeypatch.setattr(convolution, "native_library", refuse)
    with caplog.at_level(logging.INFO, logger=compiled.__name__):
        decoder = load_decoder(checkpoint, "cpu")

    assert not uses_kernels(decoder)
    (audio,) = decoder.decode([some_codes(decoder, 5)])
    assert audio.shape == (5 * 2048,) and bool(audio.isfinite().all())
    assert "decoding audio with PyTorch" in caplog.text and "install gcc" in caplog.text
