"""YIN finds the pitch of harmonic sounds and none in noise."""

from __future__ import annotations

import numpy as np
import pytest

from lab.training.evaluation.pitch import Floats, frame_pitches, median_pitch

RATE = 44100
TIMES = np.arange(RATE) / RATE


def harmonics(hz: float, count: int = 30, first: int = 1) -> Floats:
    """Return one second of harmonics that fall off like a voice's."""
    return np.asarray(
        sum(np.sin(2 * np.pi * k * hz * TIMES + k * k) / k for k in range(first, first + count))
    )


@pytest.mark.parametrize("hz", [70.0, 86.13, 129.2, 172.27, 215.33, 330.0])
def test_pitch_is_right_within_half_a_percent(hz: float) -> None:
    assert median_pitch(harmonics(hz)) == pytest.approx(hz, rel=0.005)


def test_a_missing_fundamental_does_not_raise_the_pitch() -> None:
    assert median_pitch(harmonics(110.0, first=2)) == pytest.approx(110.0, rel=0.01)


def test_noise_has_no_pitch() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, RATE)

    assert (frame_pitches(noise) > 0).mean() < 0.2


def test_quiet_hum_in_pauses_does_not_count() -> None:
    wave = np.concatenate([harmonics(200.0)[: RATE // 2], 0.01 * harmonics(90.0)])

    assert median_pitch(wave) == pytest.approx(200.0, rel=0.01)


def test_too_little_voice_gives_none() -> None:
    assert median_pitch(np.zeros(RATE)) is None
    assert median_pitch(harmonics(100.0)[:800]) is None
