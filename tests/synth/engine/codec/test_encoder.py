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
from torch import Tensor

from synth.engine.codec import layers, resample
from synth.engine.codec.halves import PIECE_FRAMES, CodecEncoder, encode_reference
from synth.engine.codec.load import load_encoder
from synth.engine.codec.resample import ResamplerChoice, SincFilter
from synth.engine.errors import ReferenceAudioError
from tests.synth.engine.codec.conftest import make_config, random_state


def noise(num_samples: int, seed: int = 3) -> Tensor:
    """Return noise with a swell, so that frames differ."""
    generator = torch.Generator().manual_seed(seed)
    swell = 0.1 + torch.linspace(0, 9, num_samples).sin().abs()
    return torch.randn(num_samples, generator=generator) * 0.3 * swell


@pytest.mark.parametrize(
    ("samples", "frames"), [(1, 1), (2047, 1), (2048, 1), (2049, 2), (9000, 5)]
)
def test_one_frame_for_each_hop_begun(encoder: CodecEncoder, samples: int, frames: int) -> None:
    (codes,) = encoder.encode([noise(samples)])
    assert codes.shape == (4, frames)
    assert codes.dtype is torch.int64
    assert int(codes.min()) >= 0 and int(codes[0].max()) < 50 and int(codes[1:].max()) < 30


@pytest.mark.parametrize("limit", [1, 3, 10, 100])
def test_a_batch_of_different_lengths_gives_the_codes_of_single_runs(
    golden_encoder: CodecEncoder, limit: int
) -> None:
    waveforms = [noise(n, seed=n) for n in (9000, 2048, 700, 30000, 9001)]
    batch = golden_encoder.encode(waveforms, max_batch_frames=limit)
    for waveform, codes in zip(waveforms, batch, strict=True):
        assert torch.equal(codes, golden_encoder.encode([waveform])[0])


@pytest.mark.parametrize("piece", [1, 2, 7, 64, 149])
def test_a_clip_in_pieces_gives_the_codes_of_one_pass(
    golden_encoder: CodecEncoder, piece: int
) -> None:
    # Longer than the windows, 512 latents or 128 frames, so that keys fall out of both.
    waveform = noise(150 * 2048 - 700)
    (whole,) = golden_encoder.encode([waveform], max_batch_frames=150)

    (pieces,) = golden_encoder.encode([waveform], max_batch_frames=piece)

    assert len(set(whole[0].tolist())) > 20
    assert torch.equal(pieces, whole)


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
            golden_encoder.encode([noise(frames * 2048)])
        return max(sizes)

    convolve: Any = layers._convolve
    piece = widest(PIECE_FRAMES)

    assert widest(PIECE_FRAMES // 2) < piece
    assert widest(3 * PIECE_FRAMES) < 1.02 * piece  # with what the columns before left


def test_less_than_one_frame_at_once_is_refused(golden_encoder: CodecEncoder) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        golden_encoder.encode([noise(100)], max_batch_frames=0)


def test_a_prefix_of_whole_frames_gives_the_prefix_of_the_codes(
    golden_encoder: CodecEncoder,
) -> None:
    waveform = noise(40 * 2048)
    whole, part = golden_encoder.encode([waveform, waveform[: 17 * 2048]])
    assert torch.equal(whole[:, :17], part)


def test_no_waveforms_give_no_codes(encoder: CodecEncoder) -> None:
    assert encoder.encode([]) == []


@pytest.mark.parametrize(
    ("waveform", "words"),
    [
        (torch.zeros(0), "no samples"),
        (torch.tensor([0.0, torch.nan]), "not finite"),
        (torch.tensor([0.0, torch.inf]), "not finite"),
        (torch.zeros(2, 100), "one axis"),
        (torch.zeros(100, dtype=torch.int16), "one axis of floats"),
    ],
)
def test_a_waveform_that_is_none_is_refused(
    encoder: CodecEncoder, waveform: Tensor, words: str
) -> None:
    with pytest.raises(ReferenceAudioError, match=words):
        encoder.encode([noise(100), waveform])


def test_silence_has_codes(encoder: CodecEncoder) -> None:
    (codes,) = encoder.encode([torch.zeros(5000)])
    assert codes.shape == (4, 3)


def test_bfloat16_encodes_and_changes_some_codes(golden_checkpoint: Path) -> None:
    waveform = noise(40 * 2048)
    full = load_encoder(golden_checkpoint, "cpu").encode([waveform])[0]

    half = load_encoder(golden_checkpoint, "cpu", "bfloat16").encode([waveform])[0]

    assert half.shape == full.shape
    assert 0 < (half != full).float().mean() < 1


def test_encoding_leaves_no_gradient_and_no_change(encoder: CodecEncoder) -> None:
    before = {name: value.clone() for name, value in encoder.state_dict().items()}

    encoder.encode([noise(4000)])

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

    (codes,) = other.encode([noise(33)])

    assert codes.shape == (4, math.ceil(33 / 16))


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
    encoded = encode_reference(encoder, clip(samples), rate, BUILTIN)

    assert encoded.num_samples == resampled
    assert encoded.codes.shape == (4, 3)
    assert encoded.codes.dtype == np.int16
    assert encoded.resampler_name == "builtin"


def test_channels_are_averaged(golden_encoder: CodecEncoder) -> None:
    stereo = clip(2, 9000)

    found = encode_reference(golden_encoder, stereo, 48000, BUILTIN)

    expected = encode_reference(golden_encoder, stereo.mean(0), 48000, BUILTIN)
    assert np.array_equal(found.codes, expected.codes)
    first = encode_reference(golden_encoder, stereo[0], 48000, BUILTIN)
    assert not np.array_equal(found.codes, first.codes)


def test_tensors_arrays_and_double_precision_are_the_same_clip(encoder: CodecEncoder) -> None:
    wave = clip(1, 6000)
    codes = [
        encode_reference(encoder, given, 44100, BUILTIN).codes
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


def test_the_callers_array_is_not_changed(encoder: CodecEncoder) -> None:
    wave = clip(2, 3000)
    before = wave.copy()
    encode_reference(encoder, wave, 48000, BUILTIN)
    assert np.array_equal(wave, before)


def test_a_read_only_array_is_taken_without_a_warning(
    encoder: CodecEncoder, recwarn: pytest.WarningsRecorder
) -> None:
    wave = clip(3000)
    wave.flags.writeable = False
    encode_reference(encoder, wave, 44100, BUILTIN)
    assert not recwarn.list


def test_the_filter_between_two_rates_is_made_for_the_first_clip_alone(
    encoder: CodecEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []

    class Counted(SincFilter):
        def __init__(self, rate_in: int, rate_out: int, device: torch.device) -> None:
            made.append((rate_in, rate_out))
            super().__init__(rate_in, rate_out, device)

    monkeypatch.setattr(resample, "SincFilter", Counted)
    resample.resampling_filter.cache_clear()

    for seconds in (1, 3, 2):
        encoded = encode_reference(encoder, clip(48_000 * seconds), 48_000, BUILTIN)
        assert encoded.codes.shape[1] == math.ceil(44_100 * seconds / 2048)

    assert made == [(48_000, 44_100)]
    resample.resampling_filter.cache_clear()
