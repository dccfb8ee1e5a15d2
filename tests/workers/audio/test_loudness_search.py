"""The gain that is found brings limited speech to its target, as far as the limiter may go."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from synth.contract import AudioArray
from tests.sources import PROJECT
from tests.workers.audio.bs1770 import integrated_lufs, true_peak_dbtp
from tests.workers.rendering.takes_support import RATE, voiced
from workers.audio.mastering import MAX_EXTRA_DB, MAX_PASSES, Level, find_level

CLIPS = sorted((PROJECT / "synth" / "demo" / "clips").glob("*.wav"))
CEILING_DBTP = -1.05


class Signal:
    """Samples that can be read again and again, in blocks; it counts how often."""

    def __init__(self, samples: AudioArray) -> None:
        self.samples, self.num_passes = samples, 0

    def __iter__(self) -> Iterator[AudioArray]:
        self.num_passes += 1
        return iter(np.array_split(self.samples, 1 + len(self.samples) // 8192))


def read(path: Path) -> tuple[AudioArray, int]:
    with wave.open(str(path)) as opened:
        raw = np.frombuffer(opened.readframes(opened.getnframes()), dtype="<i2")
        return raw.astype(np.float32) / np.float32(2**15), opened.getframerate()


def found(signal: Signal, rate: int, target: float) -> Level:
    level = find_level(signal, rate, target_lufs=target, ceiling_dbtp=CEILING_DBTP)
    assert level is not None and signal.num_passes <= MAX_PASSES
    return level


def limited(samples: AudioArray, rate: int, level: Level) -> AudioArray:
    return np.concatenate(list(level.apply([samples], rate)[0]))


@pytest.mark.parametrize("path", CLIPS, ids=lambda path: path.stem)
@pytest.mark.parametrize("target", [-23.0, -16.0, -14.0])
def test_demo_speech_comes_within_half_a_unit_of_usual_targets(path: Path, target: float) -> None:
    samples, rate = read(path)
    level = found(Signal(samples), rate, target)
    heard = limited(samples, rate, level)
    assert integrated_lufs(heard, rate) == pytest.approx(target, abs=0.5)
    assert true_peak_dbtp(heard) <= -0.9
    assert 0 <= level.extra_db <= MAX_EXTRA_DB


def test_gain_without_a_limiter_takes_one_pass() -> None:
    signal = Signal(voiced(2.0, level=0.02))
    assert (found(signal, RATE, -30.0).extra_db, signal.num_passes) == (0, 1)


def test_target_out_of_reach_ends_at_the_limiter_s_bound() -> None:
    samples, rate = read(CLIPS[0])
    level = found(Signal(samples), rate, -6.0)
    assert level.extra_db == MAX_EXTRA_DB
    assert integrated_lufs(limited(samples, rate, level), rate) < -8


@pytest.mark.parametrize("seconds", [0.2, 2.0])
def test_silence_has_no_gain(seconds: float) -> None:
    silence = Signal(np.zeros(round(seconds * RATE), dtype=np.float32))
    assert find_level(silence, RATE, target_lufs=-16.0, ceiling_dbtp=CEILING_DBTP) is None
