"""Test the decoding half: lengths, batches, prefixes, clamped and refused codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from synth.engine.codec.halves import CodecDecoder, default_batch_frames
from synth.engine.codec.load import load_decoder
from synth.engine.errors import InvalidSpecError
from tests.synth.engine.codec.conftest import watched_passes


def some_codes(frames: int, seed: int = 0) -> Tensor:
    """Return codes [10, frames] that the golden codec knows."""
    return torch.randint(0, 128, (10, frames), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("limit", [1, 40, 150, 4096])
def test_a_batch_of_different_lengths_gives_the_audio_of_single_runs(
    golden_decoder: CodecDecoder, limit: int
) -> None:
    matrices = [some_codes(n, seed=n) for n in (9, 1, 17, 0, 9, 150)]

    batch = golden_decoder.decode(matrices, max_batch_frames=limit)

    for codes, audio in zip(matrices, batch, strict=True):
        assert audio.shape == (2048 * codes.shape[1],)
        assert audio.dtype is torch.float32
        (alone,) = golden_decoder.decode([codes], max_batch_frames=150)
        # Rounding alone: what leaks from padding or a neighbour is a hundredth and more. The
        # largest of 300,000 differences is the processor's affair, their norm hardly is.
        assert float((audio - alone).norm()) <= 1e-5 * float(alone.norm())
        # Longer than the limit it goes through in parts, as a stream does: exact within 1e-4.
        close = 3e-5 if codes.shape[1] <= limit else 1e-4
        if golden_decoder.compiled is not None:
            close = 0  # whatever the parts and the neighbours
        torch.testing.assert_close(audio, alone, atol=close, rtol=0)


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1, 40, 150, 4096])
def test_with_more_digits_a_batch_and_single_runs_differ_by_next_to_nothing(
    golden: GoldenFolder, limit: int
) -> None:
    exact = load_decoder(golden.checkpoint, "cpu", kernels="off")
    exact = exact.double()  # how a processor rounds sums plays no part here
    matrices = [some_codes(n, seed=n) for n in (9, 1, 17, 9, 150)]
    for codes, audio in zip(matrices, exact.decode(matrices, max_batch_frames=limit), strict=True):
        (alone,) = exact.decode([codes], max_batch_frames=150)
        torch.testing.assert_close(audio, alone, atol=1e-5, rtol=0)


def test_frames_in_flight_keep_to_the_limit_also_for_one_long_matrix(
    golden_decoder: CodecDecoder,
) -> None:
    with watched_passes(golden_decoder) as passes:
        golden_decoder.decode([some_codes(n) for n in (9, 50, 17, 17)], max_batch_frames=40)
    assert sorted((frames for _, frames in passes), reverse=True) == [40, 34, 10, 9]


def test_a_cpu_takes_fewer_frames_at_once_unless_told(golden_decoder: CodecDecoder) -> None:
    codes = [some_codes(100), some_codes(30), some_codes(30)]

    with watched_passes(golden_decoder) as passes:
        golden_decoder.decode(codes)

    assert [frames for _, frames in passes] == [64, 36, 60]
    assert default_batch_frames("cuda") == 2048
    with pytest.raises(ValueError, match="at least 1"):
        golden_decoder.decode(codes, max_batch_frames=0)


def test_a_prefix_of_the_codes_gives_the_prefix_of_the_audio(golden_decoder: CodecDecoder) -> None:
    codes = some_codes(150)

    whole, part = golden_decoder.decode([codes]), golden_decoder.decode([codes[:, :140]])

    close = 1e-5 if golden_decoder.compiled is None else 0  # which gives the very same numbers
    torch.testing.assert_close(whole[0][: 140 * 2048], part[0], atol=close, rtol=0)
    difference = whole[0][: 140 * 2048] - part[0]
    assert float(difference.norm()) <= 1e-5 * float(part[0].norm())


def test_codes_above_their_codebook_are_clamped_in_a_copy(golden_decoder: CodecDecoder) -> None:
    codes = some_codes(3)
    codes[0, 1], codes[4, 2] = 99999, 32767
    before = codes.clone()

    (found,) = golden_decoder.decode([codes])

    assert torch.equal(codes, before)
    clamped = before.clamp(max=127)
    clamped[0, 1] = 255
    assert torch.equal(found, golden_decoder.decode([clamped])[0])


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_any_integers_are_codes(golden_decoder: CodecDecoder, dtype: torch.dtype) -> None:
    codes = some_codes(2)
    (found,) = golden_decoder.decode([codes.to(dtype)])
    assert torch.equal(found, golden_decoder.decode([codes])[0])


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (torch.full((10, 2), -1), "negative"),
        (torch.zeros(9, 2, dtype=torch.int64), r"\(10, frames\)"),
        (torch.zeros(10, dtype=torch.int64), r"\(10, frames\)"),
        (torch.zeros(1, 10, 2, dtype=torch.int64), r"\(10, frames\)"),
        (torch.zeros(10, 2), "integers"),
        (torch.zeros(10, 2, dtype=torch.bool), "integers"),
    ],
)
def test_what_is_no_code_matrix_is_refused(
    golden_decoder: CodecDecoder, codes: Tensor, words: str
) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        golden_decoder.decode([some_codes(1), codes])


def test_no_frames_give_no_samples(golden_decoder: CodecDecoder) -> None:
    (audio,) = golden_decoder.decode([some_codes(0)])
    assert audio.shape == (0,)


def test_bfloat16_decodes_to_nearly_the_same_float32_audio(
    golden_checkpoint: Path, golden_decoder: CodecDecoder
) -> None:
    codes = some_codes(6)

    (found,) = load_decoder(golden_checkpoint, "cpu", "bfloat16").decode([codes])

    expected = golden_decoder.decode([codes])[0]
    assert found.dtype is torch.float32
    error = (found - expected).square().mean().sqrt()
    assert 1e-6 < error < 0.1 * expected.std()
