"""Test the way from a clip's waveform to a voice's codes."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synth.engine.codec import resample
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files.load import load_encoder
from synth.engine.codec.files.reference import encode_reference
from synth.engine.codec.resample import ResamplerChoice, SincFilter
from synth.engine.errors import ReferenceAudioError

BUILTIN = ResamplerChoice.BUILTIN


@pytest.fixture
def encoder(checkpoint: Path) -> CodecEncoder:
    """Return the small codec's encoding half."""
    return load_encoder(checkpoint, "cpu")


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
    monkeypatch.setattr(resample, "_filters", OrderedDict())

    for seconds in (1, 3, 2):
        encoded = encode_reference(encoder, clip(48_000 * seconds), 48_000, BUILTIN)
        assert encoded.codes.shape[1] == math.ceil(44_100 * seconds / 2048)

    assert made == [(48_000, 44_100)]
