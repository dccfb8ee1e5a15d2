"""Loudness, peaks, limiter, waveform, resampling, stretching: any rate, blocks of any size."""

from __future__ import annotations

import av
import numpy as np
import pytest
from av.filter import Graph

from synth.audio.filters import (
    FLOOR_DBTP,
    PeakLimiter,
    TruePeakMeter,
    WaveformPeaks,
    frames,
    link,
    measure_loudness,
    peaks_of,
    push,
    resample,
    stretch,
)
from synth.contract import AudioArray
from synth.formats import MAX_SPEED, MIN_SPEED
from tests.workers.audio.bs1770 import integrated_lufs, true_peak_dbtp
from tests.workers.clips import tone

RATE = 44_100
RATES = [8_000, 11_025, 22_050, 24_000, RATE, 48_000]
CEILING = 10 ** (-1 / 20)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def sine(level_dbfs: float, rate: int, *, hertz: float = 997, seconds: float = 8) -> AudioArray:
    t = np.arange(round(seconds * rate)) / rate
    return (10 ** (level_dbfs / 20) * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


def in_blocks(samples: AudioArray, size: int = 10_000) -> list[AudioArray]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("level", [-3.0, -23.0, -40.0])
def test_sine_of_997_hz_has_its_level_less_three(rate: int, level: float) -> None:
    found = measure_loudness([sine(level, rate)], rate)
    # BS.1770: 0 dBFS on one channel reads -3.01 LUFS.
    assert found == pytest.approx((level - 3.01, level), abs=0.1)


def test_quiet_parts_and_pauses_are_gated_out() -> None:
    # EBU Tech 3341, case 3, on one channel: -36, -23 and -36 dBFS read as -23 does alone.
    rate = 48_000
    quiet, loud = sine(-36, rate, seconds=10), sine(-23, rate, seconds=60)
    pause = np.zeros(5 * rate, dtype=np.float32)
    for parts, tolerance in ([quiet, loud, quiet], 0.1), ([loud, pause, loud, pause], 0.2):
        found = measure_loudness(parts, rate)
        assert found.integrated_lufs == pytest.approx(-26.0, abs=tolerance), f"{len(parts)} parts"


@pytest.mark.parametrize("rate", RATES)
def test_loudness_is_that_of_the_recommendations_formulas(
    rate: int, rng: np.random.Generator
) -> None:
    noise = rng.standard_normal(12 * rate) * 0.05
    samples = (noise * np.repeat([1.0, 0.03, 2.0, 0.001], 3 * rate)).astype(np.float32)
    found = measure_loudness([samples], rate)
    # The filter of low rates bends near their end, where noise has as much as elsewhere.
    tolerance = 0.5 if rate < 22_050 else 0.15
    assert found.integrated_lufs == pytest.approx(integrated_lufs(samples, rate), abs=tolerance)
    assert found.true_peak_dbtp == pytest.approx(true_peak_dbtp(samples), abs=0.5)


@pytest.mark.parametrize("size", [1, 37, 4_410, 1_000_000])
def test_blocks_of_any_size_measure_the_same(size: int) -> None:
    samples = sine(-20, 8_000, hertz=440, seconds=1.05)
    assert measure_loudness(in_blocks(samples, size), 8_000) == measure_loudness([samples], 8_000)


def test_what_is_too_short_or_silent_has_no_loudness() -> None:
    for seconds in (0.0, 0.01, 0.3):
        found = measure_loudness([sine(-20, 8_000, seconds=seconds)], 8_000)
        assert found.integrated_lufs is None, f"{seconds} s"
    assert measure_loudness([np.zeros(48_000, dtype=np.float32)], 48_000) == (None, FLOOR_DBTP)


def test_peak_between_samples_is_found() -> None:
    # A quarter of the rate, sampled at its flanks: no sample is above 0.354, the curve reaches 0.5.
    rate = 48_000
    t = np.arange(rate) / rate
    fade = np.minimum(1, np.minimum(t, t[::-1]) / 0.1)
    samples = (fade * 0.5 * np.sin(2 * np.pi * rate / 4 * t + np.pi / 4)).astype(np.float32)
    assert np.abs(samples).max() < 0.36
    assert measure_loudness([samples], rate).true_peak_dbtp == pytest.approx(-6.02, abs=0.1)


@pytest.mark.parametrize("rate", [8_000, 24_000, RATE])
def test_true_peak_of_noise_is_the_one_that_ffmpeg_finds(
    rate: int, rng: np.random.Generator
) -> None:
    noise = np.convolve(rng.standard_normal(4 * rate), np.hanning(9), mode="same")
    samples = (noise / np.abs(noise).max() * 0.8).astype(np.float32)
    meter, graph = TruePeakMeter(), Graph()
    for block in in_blocks(samples, 1_111):
        meter.push(block)
    # `ebur128` oversamples in its own way.
    link(graph, graph.add("ebur128", "metadata=1:peak=true:framelog=quiet"), sample_rate=rate)
    push(graph, samples, rate, 0)
    last: av.AudioFrame = list(frames(graph))[-1]
    expected = float(last.metadata["lavfi.r128.true_peak"])
    assert 20 * np.log10([meter.close()]) == pytest.approx(20 * np.log10([expected]), abs=0.1)


def limited(samples: AudioArray, rate: int, *, size: int = 1 << 18) -> tuple[AudioArray, float]:
    limiter = PeakLimiter(rate, ceiling=CEILING)
    return np.concatenate(list(limiter.limit(in_blocks(samples, size)))), limiter.lowest_gain


def bursts(rng: np.random.Generator, rate: int) -> AudioArray:
    """Return noise far too loud with gaps between, as words have them."""
    seconds = np.arange(6 * rate) / rate
    return (rng.standard_normal(len(seconds)) * (np.sin(12 * seconds) > 0)).astype(np.float32)


@pytest.mark.parametrize("rate", [8_000, 24_000, RATE, 48_000])
def test_no_true_peak_is_above_the_ceiling(rate: int, rng: np.random.Generator) -> None:
    samples = bursts(rng, rate)
    held, lowest = limited(samples, rate)
    assert len(held) == len(samples) and lowest < 0.5
    assert measure_loudness([held], rate).true_peak_dbtp <= -0.95


def test_what_is_below_the_ceiling_stays_as_it_is(rng: np.random.Generator) -> None:
    samples = (0.1 * bursts(rng, 24_000)).astype(np.float32)
    held, lowest = limited(samples, 24_000)
    assert np.array_equal(held, samples) and lowest == 1.0
    assert not any(len(block) for block in PeakLimiter(8_000, ceiling=CEILING).limit([]))


def test_single_peak_is_turned_down_around_itself_alone() -> None:
    samples = np.full(24_000, 0.1, dtype=np.float32)
    samples[12_000:12_010] = 1.5
    held, _ = limited(samples, 24_000)
    far = np.abs(np.arange(24_000) - 12_005) > 2 * 0.015 * 24_000 + 30
    assert np.array_equal(held[far], samples[far])
    assert held[12_000:12_010].max() <= CEILING + 1e-6


@pytest.mark.parametrize("size", [1, 100, 5_000])
def test_blocks_of_any_size_are_limited_the_same(size: int, rng: np.random.Generator) -> None:
    samples = bursts(rng, 8_000)[:9_000]
    whole, pieces = limited(samples, 8_000)[0], limited(samples, 8_000, size=size)[0]
    assert np.allclose(whole, pieces, atol=1e-5)


def test_gain_moves_without_a_jump() -> None:
    wave = np.sin(2 * np.pi * 200 * np.arange(24_000) / 24_000) * np.linspace(0.2, 3, 24_000)
    held, _ = limited(wave.astype(np.float32), 24_000)
    is_loud = np.abs(wave) > 0.1
    assert np.abs(np.diff(held[is_loud] / wave[is_loud])).max() < 0.02


def resampled(hertz: float, rate: int, new_rate: int) -> AudioArray:
    samples = sine(-6, rate, hertz=hertz, seconds=3)
    return np.concatenate(list(resample(in_blocks(samples, 9_999), rate, new_rate)))


@pytest.mark.parametrize(
    ("rate", "new_rate"),
    [(RATE, 48_000), (RATE, 24_000), (RATE, 8_000), (24_000, RATE), (8_000, 11_025)],
)
def test_tone_comes_out_at_the_same_moment_90_db_above_any_error(rate: int, new_rate: int) -> None:
    found, expected = resampled(997, rate, new_rate), sine(-6, new_rate, seconds=3)
    inner = slice(new_rate // 10, -new_rate // 10)
    error = np.mean((found[inner] - expected[inner]) ** 2) / np.mean(expected[inner] ** 2)
    assert len(found) == len(expected)
    assert 10 * np.log10(error) < -90


@pytest.mark.parametrize("new_rate", [24_000, 8_000])
def test_tone_beyond_the_new_range_is_gone_and_not_folded_back(new_rate: int) -> None:
    found = resampled(0.55 * new_rate, RATE, new_rate)
    assert 20 * np.log10(np.std(found[1_000:-1_000]) / 0.354) < -80


def test_number_of_samples_is_that_of_the_same_time_and_equal_rates_pass_all_on() -> None:
    for count in (0, 1, 7, 1_000, 44_101):
        made = resample(in_blocks(np.full(count, 0.1, dtype=np.float32), 99_999), RATE, 16_000)
        assert sum(map(len, made)) == round(count * 16_000 / RATE), count
    block = sine(-6, 8_000)
    assert next(iter(resample([block], 8_000, 8_000))) is block


def stretched(samples: AudioArray, speed: float, *, block: int = 10_000) -> AudioArray:
    return np.concatenate(list(stretch(in_blocks(samples, block), RATE, speed=speed)))


@pytest.mark.parametrize("speed", [MIN_SPEED, 0.5, 0.9, 1.5, 2.0, 3.0, MAX_SPEED])
def test_length_follows_the_speed_and_the_pitch_stays(speed: float) -> None:
    samples = tone(seconds=4.0, rate=RATE)[:, 0]
    made = stretched(samples, speed)
    peak = np.argmax(np.abs(np.fft.rfft(made))) * RATE / len(made)
    assert len(made) == round(len(samples) / speed)
    assert peak == pytest.approx(220, abs=2)


def test_speed_of_one_changes_no_sample_and_another_one_no_loudness() -> None:
    samples = tone(seconds=2.0, rate=RATE)[:, 0]
    assert np.array_equal(stretched(samples, 1.0), samples)
    assert np.std(stretched(samples, 1.7)) == pytest.approx(np.std(samples), rel=0.03)
    assert list(stretch([], RATE, speed=2.0)) == []


@pytest.mark.parametrize("speed", [0.4, 2.7])
def test_blocks_of_any_size_are_stretched_to_the_same_samples(speed: float) -> None:
    samples = tone(seconds=1.0, rate=RATE)[:, 0]
    small, large = (stretched(samples, speed, block=block) for block in (777, 10**6))
    assert np.array_equal(small, large)


def test_last_words_are_not_cut_off() -> None:
    """The end is a tone of its own, which the filters would keep back."""
    end = tone(seconds=0.05, rate=RATE)[:, 0]
    made = stretched(np.concatenate([np.zeros(RATE, np.float32), end]), 0.25)
    assert np.std(made[-round(0.1 * RATE) :]) == pytest.approx(np.std(end), rel=0.3)


@pytest.mark.parametrize("size", [1, 13, 700, 10_000])
@pytest.mark.parametrize("most", [1, 7, 400])
def test_parts_are_those_of_the_whole_in_blocks_of_any_size(
    size: int, most: int, rng: np.random.Generator
) -> None:
    samples = rng.uniform(-1, 1, 3_001).astype(np.float32)
    peaks = WaveformPeaks(len(samples), most=most)
    for start in range(0, len(samples), size):
        peaks.push(samples[start : start + size])
    part_of = np.arange(len(samples)) * most // len(samples)
    expected = [round(255 * float(np.abs(samples[part_of == part]).max())) for part in range(most)]
    assert peaks.values() == expected


def test_short_signal_has_a_value_for_each_sample() -> None:
    few = np.array([0.0, -0.5, 1.0, 3.0], dtype=np.float32)
    assert peaks_of(few, most=10) == [0, 128, 255, 255]
    assert peaks_of(few[:0], most=10) == []


def test_more_than_was_told_is_left_out() -> None:
    peaks = WaveformPeaks(10, most=5)
    peaks.push(np.zeros(8, dtype=np.float32))
    peaks.push(np.array([0, 0, 1, 1], dtype=np.float32))
    peaks.push(np.ones(3, dtype=np.float32))
    assert peaks.values() == [0, 0, 0, 0, 0]
