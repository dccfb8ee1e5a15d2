"""Levels, silence and clipping are what the definitions say."""

from __future__ import annotations

import numpy as np
import pytest

from workers.audio.clip_measures import FLOOR_DBFS, dbfs, measure, warnings_for

FINE = {"duration_seconds": 5.0, "silence_share": 0.1, "clipped_share": 0.0, "sample_rate": 44_100}


def test_level_of_full_scale_is_zero_and_of_nothing_the_floor() -> None:
    assert dbfs(1.0) == 0
    assert dbfs(0.5) == pytest.approx(-6.02, abs=0.01)
    assert dbfs(0.0) == FLOOR_DBFS


def test_square_wave_has_equal_peak_and_rms() -> None:
    waveform = np.tile(np.array([0.5, -0.5], dtype=np.float32), 8_000)

    measures = measure(waveform, 16_000)

    assert measures == {
        "duration_seconds": 1.0,
        "peak_dbfs": -6.02,
        "rms_dbfs": -6.02,
        "silence_share": 0.0,
        "noise_floor_dbfs": -6.02,
    }


def test_noise_floor_is_what_is_left_between_words() -> None:
    waveform = np.full(16_000, 0.001, dtype=np.float32)
    waveform[:12_000] = 0.5

    assert measure(waveform, 16_000)["noise_floor_dbfs"] == pytest.approx(-60.0, abs=0.1)


def test_silence_is_counted_in_windows() -> None:
    waveform = np.zeros(16_000, dtype=np.float32)
    waveform[:4_000] = 0.3

    assert measure(waveform, 16_000)["silence_share"] == pytest.approx(0.75, abs=0.02)


def test_clip_shorter_than_a_window_is_measured() -> None:
    assert measure(np.full(3, 0.1, dtype=np.float32), 44_100)["silence_share"] == 0.0


def test_fine_clip_has_no_warning() -> None:
    assert warnings_for(FINE) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"duration_seconds": 2.9}, "clip_short"),
        ({"duration_seconds": 30.1}, "clip_long"),
        ({"silence_share": 0.51}, "clip_mostly_silent"),
        ({"clipped_share": 0.002}, "clip_clipped"),
        ({"sample_rate": 8_000}, "clip_low_rate"),
        ({"damaged_packets": 1}, "clip_damaged"),
    ],
)
def test_each_weakness_has_its_own_warning(change: dict[str, float], code: str) -> None:
    assert [warning["code"] for warning in warnings_for(FINE | change)] == [code]
