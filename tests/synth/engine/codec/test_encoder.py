"""Test the encoding half: frames, batches, prefixes and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.codec import layers, resample
from synth.engine.codec.halves import PIECE_FRAMES, CodecEncoder, encode_reference
from synth.engine.codec.load import load_encoder
from synth.engine.codec.resample import ResamplerChoice
from synth.engine.errors import ReferenceAudioError
from tests.synth.engine.codec.conftest import make_config, random_state


def noise(num_samples: int, seed: int = 3) -> Tensor:
    """Return noise with a swell, so that frames differ."""
    generator = torch.Generator().manual_seed(seed)
    swell = 0.1 + torch.linspace(0, 9, num_samples).sin().abs()
    return torch.randn(num_samples, generator=generator) * 0.3 * swell


def test_one_frame_for_each_hop_begun(encoder: CodecEncoder) -> None:
    for samples, frames in [(1, 1), (2047, 1), (2048, 1), (2049, 2), (9000, 5)]:
        codes = encoder.encode(noise(samples))
        assert codes.shape == (4, frames) and codes.dtype is torch.int64
        assert int(codes.min()) >= 0 and int(codes[0].max()) < 50 and int(codes[1:].max()) < 30
        assert encoder.encode(torch.zeros(samples)).shape == (4, frames)  # silence too


@pytest.mark.parametrize(
    "pieces", [(7, 64, 149), pytest.param((1, 2, 150), marks=pytest.mark.thorough)]
)
def test_a_clip_in_pieces_and_a_prefix_of_whole_frames_give_the_codes_of_one_pass(
    golden_encoder: CodecEncoder, pieces: tuple[int, ...]
) -> None:
    # Longer than the windows, 512 latents or 128 frames, so that keys fall out of both.
    waveform = noise(150 * 2048 - 700)
    with torch.inference_mode():  # without a past: whole modules
        samples = F.pad(waveform, (0, 700))[None, None]
        whole = golden_encoder.quantizer(golden_encoder.encoder(samples))[0]
    assert len(set(whole[0].tolist())) > 20
    for piece in pieces:
        assert torch.equal(golden_encoder.encode(waveform, piece_frames=piece), whole)
    assert torch.equal(golden_encoder.encode(waveform[: 17 * 2048]), whole[:, :17])


def test_what_goes_through_at_once_does_not_grow_with_the_clip(
    golden_encoder: CodecEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def widest(frames: int) -> int:
        sizes: list[int] = []

        def note(conv: object, x: Tensor, *rest: Any) -> Any:
            sizes.append(x.numel())
            return convolve(conv, x, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(layers, "_convolve", note)
            golden_encoder.encode(noise(frames * 2048))
        return max(sizes)

    convolve: Any = layers._convolve
    piece = widest(PIECE_FRAMES)

    assert widest(PIECE_FRAMES // 2) < piece
    assert widest(3 * PIECE_FRAMES) < 1.02 * piece  # with what the columns before left


def test_a_sample_that_a_filter_made_infinite_is_refused(encoder: CodecEncoder) -> None:
    with pytest.raises(ReferenceAudioError, match="not finite"):
        encode_reference(encoder, np.full((2, 100), 3e38, np.float32), 44100, BUILTIN)


def test_bfloat16_encodes_and_changes_some_codes(golden_checkpoint: Path) -> None:
    waveform = noise(40 * 2048)
    full, half = (
        load_encoder(golden_checkpoint, "cpu", precision).encode(waveform)
        for precision in ("float32", "bfloat16")
    )
    assert half.shape == full.shape
    assert 0 < (half != full).float().mean() < 1


def test_encoding_leaves_no_gradient_and_no_change(encoder: CodecEncoder) -> None:
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.encode(noise(4000))
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    after = encoder.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_wide_transformer_and_other_strides_work(write_codec: Callable[..., Path]) -> None:
    config = make_config(
        encoder_strides=(2, 4),
        decoder_rates=(4, 4),
        downsample_factors=(2,),
        upsample_factors=(1,),
        encoder_dim=8,
    )
    other = load_encoder(write_codec(random_state(config)), "cpu")
    assert other.encode(noise(33)).shape == (4, math.ceil(33 / 16))


BUILTIN = ResamplerChoice.BUILTIN


def clip(*shape: int) -> npt.NDArray[np.float32]:
    """Return noise as a decoder would hand it over."""
    return (np.random.default_rng(0).standard_normal(shape) * 0.2).astype(np.float32)


@pytest.mark.parametrize(
    ("rate", "samples", "resampled"), [(44100, 5000, 5000), (48000, 5000, 4594), (8000, 1000, 5513)]
)
def test_codes_cover_the_clip_at_the_codecs_rate(
    encoder: CodecEncoder, rate: int, samples: int, resampled: int
) -> None:
    codes = encode_reference(encoder, clip(samples), rate, BUILTIN)
    assert codes.shape == (4, 3) and codes.dtype == np.int16
    wave, name = resample.resample_waveform(torch.from_numpy(clip(samples)), rate, 44100, BUILTIN)
    assert (len(wave), name) == (resampled, "builtin")


def test_channels_are_averaged(golden_encoder: CodecEncoder) -> None:
    stereo = clip(2, 9000)
    found, mean, first = (
        encode_reference(golden_encoder, wave, 48000, BUILTIN)
        for wave in (stereo, stereo.mean(0), stereo[0])
    )
    assert np.array_equal(found, mean) and not np.array_equal(found, first)


def test_tensors_arrays_and_double_precision_are_the_same_clip(encoder: CodecEncoder) -> None:
    wave = clip(1, 6000)
    codes = [
        encode_reference(encoder, given, 44100, BUILTIN)
        for given in (wave, wave[0], torch.from_numpy(wave), wave.astype(np.float64))
    ]
    assert all(np.array_equal(codes[0], other) for other in codes[1:])


@pytest.mark.parametrize(
    ("waveform", "words"),
    [
        (np.zeros(0, np.float32), "no samples"),
        (np.zeros((2, 0), np.float32), "no samples"),
        (np.zeros((0, 10), np.float32), "no samples"),
        (np.array([0, np.nan], np.float32), "not finite"),
        (np.array([[0, 0], [np.inf, 0]], np.float32), "not finite"),
        (np.zeros((1, 1, 9), np.float32), "shape"),
        (np.zeros(9, np.int16), "floats"),
        (np.zeros((9000, 2), np.float32), "channels first"),
    ],
)
def test_what_is_no_clip_is_refused(
    encoder: CodecEncoder, waveform: npt.NDArray[np.float32], words: str
) -> None:
    with pytest.raises(ReferenceAudioError, match=words):
        encode_reference(encoder, waveform, 44100, BUILTIN)


def test_the_callers_array_is_not_changed_and_may_be_read_only(
    encoder: CodecEncoder, recwarn: pytest.WarningsRecorder
) -> None:
    wave = clip(2, 3000)
    before = wave.copy()
    encode_reference(encoder, wave, 48000, BUILTIN)
    assert np.array_equal(wave, before)
    wave.flags.writeable = False
    encode_reference(encoder, wave, 44100, BUILTIN)
    assert not recwarn.list
