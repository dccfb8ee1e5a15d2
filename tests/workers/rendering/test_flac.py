"""Takes are kept as FLAC of 24 bits."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import soundfile

from workers.rendering.codes import encode_flac

RATE = 44_100
FULL = 2**23


def numbers_of(encoded: bytes) -> npt.NDArray[np.int32]:
    """Return a take's samples as whole numbers of 24 bits."""
    samples, rate = soundfile.read(io.BytesIO(encoded), dtype="int32")
    assert rate == RATE and soundfile.info(io.BytesIO(encoded)).subtype == "PCM_24"
    found: npt.NDArray[np.int32] = samples >> 8
    return found


def test_samples_of_a_take_are_rounded_to_24_bits_and_cut_at_full_scale() -> None:
    audio = np.array([0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -3.0, 1 / FULL, 0.4 / FULL], np.float32)
    found, half = numbers_of(encode_flac(audio, RATE)), FULL // 2
    assert found.tolist() == [0, half, -half, FULL - 1, -FULL, FULL - 1, -FULL, 1, 0]
    assert numbers_of(encode_flac(np.zeros(1, np.float32), RATE)).tolist() == [0]


def test_a_take_is_as_the_encoder_itself_would_round_it() -> None:
    audio = (np.random.default_rng(0).standard_normal(100_000) * 0.2).astype(np.float32)
    buffer = io.BytesIO()
    soundfile.write(buffer, audio.clip(-1, 1), RATE, format="FLAC", subtype="PCM_24")
    assert np.array_equal(numbers_of(encode_flac(audio, RATE)), numbers_of(buffer.getvalue()))
