"""Features describe a sound by its envelope and its voicing."""

from __future__ import annotations

import numpy as np
import pytest

from lab.training.acoustics import NUM_BANDS, Floats, band_centres_hz, describe
from lab.training.espeak import SAMPLE_RATE

PITCH = 129.2


def pulses(seconds: float = 0.5) -> Floats:
    """Return a train of pulses at the pitch, full of harmonics of equal size."""
    wave = np.zeros(int(seconds * SAMPLE_RATE))
    wave[np.round(np.arange(0, len(wave), SAMPLE_RATE / PITCH)).astype(int)[:-1]] = 0.5
    return wave


def middle(wave: Floats, pitch: float = PITCH) -> Floats:
    """Return the features of ten places in the middle of a wave, clear up to the top."""
    centres = (len(wave) / 2 + 100.0 * np.arange(10)).astype(np.float64)
    return describe(wave, centres, pitch, np.ones(10))


def test_pulses_are_voiced_and_noise_is_not() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE)
    assert middle(pulses())[:, NUM_BANDS].min() > 0.9
    assert middle(noise)[:, NUM_BANDS].mean() < 0.3


def test_voicing_is_lost_at_a_pitch_that_is_not_the_wave_s() -> None:
    assert middle(pulses(), pitch=PITCH * 1.4)[:, NUM_BANDS].max() < 0.3


def test_harmonics_of_equal_size_make_a_flat_envelope() -> None:
    bands = middle(pulses())[:, 2:NUM_BANDS]
    assert np.ptp(bands.mean(0)) < 0.25  # of a decade: the comb itself would swing by several


def test_a_tone_fills_the_band_at_its_frequency_most() -> None:
    tone = 0.1 * np.sin(2 * np.pi * 3000 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)
    loudest = int(middle(tone)[:, :NUM_BANDS].mean(0).argmax())
    assert band_centres_hz()[loudest] == pytest.approx(3000, rel=0.06)


def test_ten_times_the_level_is_two_decades_of_power() -> None:
    wave = pulses()
    difference = middle(wave) - middle(wave / 10)
    assert difference[:, 5:40].mean() == pytest.approx(2.0, abs=0.1)


def test_silence_is_the_floor_and_unvoiced() -> None:
    features = middle(np.zeros(SAMPLE_RATE))
    assert np.allclose(features[:, :NUM_BANDS], -6)
    assert not features[:, NUM_BANDS:].any()
