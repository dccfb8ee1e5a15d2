"""Pitch is that of the voice, and melodies are compared whatever the pace and the pitch."""

from __future__ import annotations

import numpy as np
import pytest

from lab.training.evaluation.pitch import compare_melodies, frame_pitches, median_pitch
from lab.training.evaluation.spectra import HOP, RATE, Floats, Wave

TIMES = np.arange(RATE) / RATE


def harmonics(hz: float, count: int = 30, first: int = 1) -> Floats:
    """Return one second of harmonics that fall off like a voice's."""
    return np.asarray(
        sum(np.sin(2 * np.pi * k * hz * TIMES + k * k) / k for k in range(first, first + count))
    )


@pytest.mark.parametrize("hz", [70.0, 86.13, 129.2, 172.27, 215.33, 330.0])
def test_pitch_is_right_within_half_a_percent(hz: float) -> None:
    pitches = frame_pitches(harmonics(hz, count=int(RATE / 2 / hz) - 1))
    assert len(pitches) == RATE // HOP + 1
    assert np.median(pitches) == pytest.approx(hz, rel=0.005)


def test_pitch_is_of_the_voice_and_not_of_overtones_noise_or_hum() -> None:
    assert median_pitch(harmonics(110.0, first=2)) == pytest.approx(110.0, rel=0.01)
    noise = np.random.default_rng(0).normal(0, 0.1, RATE)
    assert (frame_pitches(noise) > 0).mean() < 0.2
    wave = np.concatenate([harmonics(200.0)[: RATE // 2], 0.01 * harmonics(90.0)])
    assert median_pitch(wave) == pytest.approx(200.0, rel=0.01)
    assert median_pitch(np.zeros(RATE)) is None
    assert median_pitch(harmonics(100.0)[:200]) is None


def sing(factors: list[float], pitch: float = 120.0, seconds: float = 0.25) -> Wave:
    """Return vowels of different colour, each at its factor of the pitch, without a break."""
    length = round(seconds * RATE)
    hz = np.repeat([pitch * factor for factor in factors], length)
    phase = 2 * np.pi * np.cumsum(hz) / RATE
    colours = np.repeat(np.arange(len(factors)) * 260.0 + 300, length)
    wave = sum(
        np.sin(k * phase) / (1 + ((k * hz - colours) / 200) ** 2)
        for k in range(1, 26)
    )  # fmt: skip
    return np.asarray(0.1 * wave, np.float32)


RISING, FALLING = [1.0, 1.1, 1.2, 1.3, 1.1, 0.9], [1.2, 1.1, 1.0, 0.9, 1.1, 1.3]


def test_the_same_melody_is_found_at_another_pace_and_pitch() -> None:
    compared = compare_melodies(sing(RISING, pitch=160, seconds=0.2), sing(RISING))
    assert compared.correlation > 0.95
    assert len(compared.said) == len(compared.wanted) == 1.5 * RATE // HOP + 1
    vowels = [compared.said[25 * index + 5 : 25 * index + 20] for index in range(6)]
    # Each vowel lies on its own; single frames are left out as octave errors.
    assert [np.nanmedian(vowel) for vowel in vowels] == pytest.approx(
        [160 * one for one in RISING], rel=0.03
    )


@pytest.mark.parametrize("factors", [FALLING, [1.0] * 6])
def test_another_melody_and_a_monotone_do_not_correlate(factors: list[float]) -> None:
    assert compare_melodies(sing(factors), sing(RISING)).correlation < 0.3


def test_nothing_voiced_has_no_melody() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    assert compare_melodies(noise, sing(RISING)).correlation == 0
