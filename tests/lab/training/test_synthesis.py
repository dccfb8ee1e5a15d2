"""Synthesised speech is what its features say, and repeats with the frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.training.acoustics import NUM_FEATURES
from lab.training.espeak import VOICES
from lab.training.evaluation.measure import median_pitch
from lab.training.synthesis import CYCLE, ROW_LENGTH, synthesise


def steady(voicing: float = 1.0, level: float = -3.0, rows: int = 64) -> torch.Tensor:
    """Return features [1, rows, features] of one sound held."""
    features = torch.full((1, rows, NUM_FEATURES), level)
    features[..., -2:] = voicing
    return features


@pytest.mark.parametrize("voice", VOICES, ids=lambda voice: voice.name)
def test_pitch_is_the_voice_s(voice) -> None:  # type: ignore[no-untyped-def]
    harmonic, noise = synthesise(steady(), torch.tensor([voice.grid_multiple]))
    assert median_pitch((harmonic + noise)[0].numpy()) == pytest.approx(voice.pitch_hz, rel=0.01)


def test_a_held_sound_repeats_with_every_cycle() -> None:
    harmonic, noise = synthesise(steady(voicing=0.5), torch.tensor([3]))
    wave = (harmonic + noise)[0, 4 * ROW_LENGTH :]
    assert torch.allclose(wave[:CYCLE], wave[CYCLE : 2 * CYCLE], atol=1e-5)


def test_no_sample_depends_on_a_later_row() -> None:
    features = steady()
    changed = features.clone()
    changed[:, 40:] -= 2

    first, second = (synthesise(part, torch.tensor([2]))[0] for part in (features, changed))

    assert torch.equal(first[:, : 40 * ROW_LENGTH], second[:, : 40 * ROW_LENGTH])
    assert not torch.allclose(first[:, 41 * ROW_LENGTH :], second[:, 41 * ROW_LENGTH :])


def test_voicing_moves_power_from_noise_to_harmonics() -> None:
    for voicing, silent in ((1.0, 1), (0.0, 0)):
        parts = synthesise(steady(voicing=voicing), torch.tensor([4]))
        assert float(parts[silent].abs().max()) < 1e-3
        assert float(parts[1 - silent].std()) > 1e-2


def test_two_decades_of_power_are_ten_times_the_level() -> None:
    loud, quiet = (
        synthesise(steady(level=level), torch.tensor([2]))[0].std() for level in (-2.0, -4.0)
    )
    assert float(loud / quiet) == pytest.approx(10, rel=1e-3)
    assert np.isfinite(float(loud))
