"""Loudness and true peaks are those of the standards, at any rate and in blocks of any size."""

from __future__ import annotations

from collections.abc import Iterator

import av
import numpy as np
import pytest
from av.filter import Graph

from synth.contract import AudioArray
from tests.workers.audio.bs1770 import integrated_lufs, true_peak_dbtp
from workers.audio.filters import FLOOR_DBTP, TruePeakMeter, frames, link, measure_loudness, push

RATES = [8_000, 11_025, 22_050, 24_000, 44_100, 48_000]


def sine(level_dbfs: float, *, hertz: float = 997, seconds: float = 20, rate: int) -> AudioArray:
    t = np.arange(round(seconds * rate)) / rate
    return (10 ** (level_dbfs / 20) * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


def in_blocks(samples: AudioArray, size: int) -> Iterator[AudioArray]:
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("level", [-3.0, -23.0, -40.0])
def test_sine_of_997_hz_has_its_level_less_three(rate: int, level: float) -> None:
    found = measure_loudness([sine(level, rate=rate)], rate)
    # BS.1770: 0 dBFS on one channel reads -3.01 LUFS.
    assert found.integrated_lufs == pytest.approx(level - 3.01, abs=0.1)
    assert found.true_peak_dbtp == pytest.approx(level, abs=0.1)


def test_quiet_parts_and_pauses_are_gated_out() -> None:
    # EBU Tech 3341, case 3, on one channel: -36, -23 and -36 dBFS read as -23 does alone.
    rate = 48_000
    quiet, loud = sine(-36, seconds=10, rate=rate), sine(-23, seconds=60, rate=rate)
    pause = np.zeros(5 * rate, dtype=np.float32)
    for parts, tolerance in ([quiet, loud, quiet], 0.1), ([loud, pause, loud, pause], 0.2):
        found = measure_loudness(parts, rate)
        assert found.integrated_lufs == pytest.approx(-26.0, abs=tolerance)


@pytest.mark.parametrize("rate", RATES)
def test_loudness_is_that_of_the_recommendations_formulas(
    rate: int, rng: np.random.Generator
) -> None:
    noise = rng.standard_normal(12 * rate) * 0.05
    noise *= np.repeat([1.0, 0.03, 2.0, 0.001], 3 * rate)
    samples = noise.astype(np.float32)
    found = measure_loudness([samples], rate)
    # The filter of low rates bends near their end, where noise has as much as elsewhere.
    tolerance = 0.5 if rate < 22_050 else 0.15
    assert found.integrated_lufs == pytest.approx(integrated_lufs(samples, rate), abs=tolerance)
    assert found.true_peak_dbtp == pytest.approx(true_peak_dbtp(samples), abs=0.5)


@pytest.mark.parametrize("size", [1, 37, 4_410, 1_000_000])
def test_blocks_of_any_size_measure_the_same(size: int) -> None:
    rate = 8_000
    samples = sine(-20, hertz=440, seconds=1.05, rate=rate)
    assert measure_loudness(in_blocks(samples, size), rate) == measure_loudness([samples], rate)


def test_what_is_too_short_or_silent_has_no_loudness() -> None:
    for seconds in (0.0, 0.01, 0.3):
        found = measure_loudness([sine(-20, seconds=seconds, rate=8_000)], 8_000)
        assert found.integrated_lufs is None
    assert measure_loudness([np.zeros(48_000, dtype=np.float32)], 48_000) == (None, FLOOR_DBTP)


def test_peak_between_samples_is_found() -> None:
    # A quarter of the rate, sampled at its flanks: no sample is above 0.354, the curve reaches 0.5.
    rate = 48_000
    t = np.arange(rate) / rate
    fade = np.minimum(1, np.minimum(t, t[::-1]) / 0.1)
    samples = (fade * 0.5 * np.sin(2 * np.pi * rate / 4 * t + np.pi / 4)).astype(np.float32)
    found = measure_loudness([samples], rate)
    assert np.abs(samples).max() < 0.36
    assert found.true_peak_dbtp == pytest.approx(-6.02, abs=0.1)


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100])
def test_true_peak_of_noise_is_the_one_that_ffmpeg_finds(
    rate: int, rng: np.random.Generator
) -> None:
    noise = np.convolve(rng.standard_normal(4 * rate), np.hanning(9), mode="same")
    samples = (noise / np.abs(noise).max() * 0.8).astype(np.float32)
    meter = TruePeakMeter()
    for block in in_blocks(samples, 1_111):
        meter.push(block)
    assert 20 * np.log10(meter.close()) == pytest.approx(_peak_by_ffmpeg(samples, rate), abs=0.1)


def _peak_by_ffmpeg(samples: AudioArray, rate: int) -> float:
    """Return the true peak in dB by `ebur128`, which oversamples in its own way."""
    graph = Graph()
    link(graph, graph.add("ebur128", "metadata=1:peak=true:framelog=quiet"), sample_rate=rate)
    push(graph, samples, rate, 0)
    found: list[av.AudioFrame] = list(frames(graph))
    return float(20 * np.log10(float(found[-1].metadata["lavfi.r128.true_peak"])))
