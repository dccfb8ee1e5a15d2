"""The limiter holds every peak below its ceiling and leaves alone what is below it anyway."""

from __future__ import annotations

import numpy as np
import pytest

from synth.contract import AudioArray
from workers.audio.filters import PeakLimiter, measure_loudness

CEILING = 10 ** (-1 / 20)


def limited(samples: AudioArray, rate: int, *, size: int = 1 << 18) -> tuple[AudioArray, float]:
    limiter = PeakLimiter(rate, ceiling=CEILING)
    blocks = [samples[start : start + size] for start in range(0, len(samples), size)]
    return np.concatenate(list(limiter.limit(blocks))), limiter.lowest_gain


def bursts(rng: np.random.Generator, rate: int) -> AudioArray:
    """Return noise far too loud with gaps between, as words have them."""
    seconds = np.arange(6 * rate) / rate
    return (rng.standard_normal(len(seconds)) * (np.sin(12 * seconds) > 0)).astype(np.float32)


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100, 48_000])
def test_no_true_peak_is_above_the_ceiling(rate: int, rng: np.random.Generator) -> None:
    samples = bursts(rng, rate)
    held, lowest = limited(samples, rate)
    assert len(held) == len(samples)
    assert measure_loudness([held], rate).true_peak_dbtp <= -0.95
    assert lowest < 0.5


def test_what_is_below_the_ceiling_stays_as_it_is(rng: np.random.Generator) -> None:
    samples = (0.1 * bursts(rng, 24_000)).astype(np.float32)
    held, lowest = limited(samples, 24_000)
    assert np.array_equal(held, samples)
    assert lowest == 1.0
    assert not any(len(block) for block in PeakLimiter(8_000, ceiling=CEILING).limit([]))


def test_single_peak_is_turned_down_around_itself_alone() -> None:
    samples = np.full(24_000, 0.1, dtype=np.float32)
    samples[12_000:12_010] = 1.5
    held, _ = limited(samples, 24_000)
    reach = 2 * 0.015 * 24_000 + 30
    far = np.abs(np.arange(24_000) - 12_005) > reach
    assert np.array_equal(held[far], samples[far])
    assert held[12_000:12_010].max() <= CEILING + 1e-6


@pytest.mark.parametrize("size", [1, 100, 5_000])
def test_blocks_of_any_size_give_the_same(size: int, rng: np.random.Generator) -> None:
    samples = bursts(rng, 8_000)[:9_000]
    whole, _ = limited(samples, 8_000)
    pieces, _ = limited(samples, 8_000, size=size)
    assert np.allclose(whole, pieces, atol=1e-5)


def test_gain_moves_without_a_jump(rng: np.random.Generator) -> None:
    tone = np.sin(2 * np.pi * 200 * np.arange(24_000) / 24_000) * np.linspace(0.2, 3, 24_000)
    held, _ = limited(tone.astype(np.float32), 24_000)
    is_loud = np.abs(tone) > 0.1
    gain = held[is_loud] / tone[is_loud]
    assert np.abs(np.diff(gain)).max() < 0.02
