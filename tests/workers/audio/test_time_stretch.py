"""Speech gets faster or slower and keeps its pitch, in blocks of any size."""

from __future__ import annotations

import numpy as np
import pytest

from synth.contract import AudioArray
from synth.formats import MAX_SPEED, MIN_SPEED
from tests.workers.clips import tone
from workers.audio.joined_takes import stretch

RATE = 44_100


def stretched(samples: AudioArray, speed: float, *, block: int = 10_000) -> AudioArray:
    blocks = [samples[start : start + block] for start in range(0, len(samples), block)]
    return np.concatenate(list(stretch(blocks, RATE, speed=speed)))


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
def test_blocks_of_any_size_give_the_same_samples(speed: float) -> None:
    samples = tone(seconds=1.0, rate=RATE)[:, 0]
    assert np.array_equal(
        stretched(samples, speed, block=777), stretched(samples, speed, block=10**6)
    )


def test_last_words_are_not_cut_off() -> None:
    """The end is a tone of its own, which the filters would keep back."""
    end = tone(seconds=0.05, rate=RATE)[:, 0]
    made = stretched(np.concatenate([np.zeros(RATE, np.float32), end]), 0.25)
    assert np.std(made[-round(0.1 * RATE) :]) == pytest.approx(np.std(end), rel=0.3)
