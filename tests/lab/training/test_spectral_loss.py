"""The decoder's loss is nothing for the right wave, and tells pitch and phase."""

from __future__ import annotations

import torch

from lab.training.acoustics import NUM_FEATURES
from lab.training.decoder_stage import SpectralLoss
from lab.training.synthesis import synthesise


def speech(multiple: int = 3, voicing: float = 0.8) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the harmonic and noise parts of a held sound."""
    features = torch.full((1, 24, NUM_FEATURES), -3.0)
    features[..., -2:] = voicing
    return synthesise(features, torch.tensor([multiple]))


def test_the_right_wave_costs_nothing() -> None:
    harmonic, noise = speech()
    parts = SpectralLoss()(harmonic + noise, harmonic, noise)
    assert float(parts["mel"]) == 0
    assert float(parts["magnitude"]) == 0


def test_silence_costs_the_whole_wave() -> None:
    harmonic, noise = speech()
    parts = SpectralLoss()(torch.zeros_like(harmonic), harmonic, noise)
    assert float(parts["wave"]) > 0.95
    assert float(parts["mel"]) > 0.5


def test_another_pitch_costs_more_than_another_noise() -> None:
    harmonic, noise = speech()
    wrong, _ = speech(multiple=4)
    loss = SpectralLoss()

    off_pitch = loss(wrong + noise, harmonic, noise)
    off_noise = loss(harmonic - noise, harmonic, noise)

    for part in ("magnitude", "wave"):
        assert float(off_pitch[part]) > 2 * float(off_noise[part])


def test_a_shifted_wave_is_told_by_its_phase_alone() -> None:
    harmonic, noise = speech()
    loss = SpectralLoss()

    parts = loss(torch.roll(harmonic + noise, 40, dims=1), harmonic, noise)

    assert float(parts["wave"]) > 0.5
    assert float(parts["magnitude"]) < 0.1
