"""Resampling keeps what the new rate can hold, to the sample in time, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from synth.contract import AudioArray
from workers.audio.filters import resample

PAIRS = [(44_100, 48_000), (44_100, 24_000), (44_100, 8_000), (24_000, 44_100), (8_000, 11_025)]


def sine(hertz: float, rate: int, *, seconds: float = 3.0) -> AudioArray:
    t = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


def resampled(samples: AudioArray, rate: int, new_rate: int, *, size: int = 9_999) -> AudioArray:
    blocks = [samples[start : start + size] for start in range(0, len(samples), size)]
    return np.concatenate(list(resample(blocks, rate, new_rate)))


@pytest.mark.parametrize(("rate", "new_rate"), PAIRS)
def test_tone_comes_out_at_the_same_moment_90_db_above_any_error(rate: int, new_rate: int) -> None:
    found = resampled(sine(997, rate), rate, new_rate)
    expected = sine(997, new_rate)
    inner = slice(new_rate // 10, -new_rate // 10)
    error = np.mean((found[inner] - expected[inner]) ** 2) / np.mean(expected[inner] ** 2)
    assert len(found) == len(expected)
    assert 10 * np.log10(error) < -90


@pytest.mark.parametrize(("rate", "new_rate"), [(44_100, 24_000), (44_100, 8_000)])
def test_tone_beyond_the_new_range_is_gone_and_not_folded_back(rate: int, new_rate: int) -> None:
    found = resampled(sine(0.55 * new_rate, rate), rate, new_rate)
    assert 20 * np.log10(np.std(found[1_000:-1_000]) / 0.354) < -80


def test_number_of_samples_is_that_of_the_same_time_and_equal_rates_pass_all_on() -> None:
    for count in (0, 1, 7, 1_000, 44_101):
        samples = np.full(count, 0.1, dtype=np.float32)
        made = list(resample([samples] if count else [], 44_100, 16_000))
        assert sum(map(len, made)) == round(count * 16_000 / 44_100)
    block = sine(300, 8_000)
    assert next(iter(resample([block], 8_000, 8_000))) is block
