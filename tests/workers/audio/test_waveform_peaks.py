"""A waveform in numbers has the loudest sample of each of equal parts."""

from __future__ import annotations

import numpy as np
import pytest

from workers.audio.clip_measures import WaveformPeaks, peaks_of


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
    assert peaks_of(np.array([0.0, -0.5, 1.0, 3.0], dtype=np.float32), most=10) == [
        0, 128, 255, 255,
    ]  # fmt: skip


def test_nothing_has_no_values() -> None:
    assert peaks_of(np.zeros(0, dtype=np.float32), most=10) == []


def test_more_than_was_told_is_left_out() -> None:
    peaks = WaveformPeaks(10, most=5)
    peaks.push(np.zeros(8, dtype=np.float32))
    peaks.push(np.array([0, 0, 1, 1], dtype=np.float32))
    peaks.push(np.ones(3, dtype=np.float32))

    assert peaks.values() == [0, 0, 0, 0, 0]
