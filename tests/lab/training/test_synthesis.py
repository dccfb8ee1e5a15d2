"""Speech is what its features say: described, synthesised, and judged by its loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.training.acoustics import NUM_BANDS, NUM_FEATURES, Floats, band_centres_hz, describe
from lab.training.decoder_stage import SpectralLoss
from lab.training.espeak import SAMPLE_RATE, VOICES, TrainedVoice
from lab.training.evaluation.measure import median_pitch
from lab.training.synthesis import CYCLE, ROW_LENGTH, synthesise

PITCH = 129.2


def pulses(seconds: float = 0.5) -> Floats:
    """Return a train of pulses at the pitch, full of harmonics of equal size."""
    wave = np.zeros(int(seconds * SAMPLE_RATE))
    wave[np.round(np.arange(0, len(wave), SAMPLE_RATE / PITCH)).astype(int)[:-1]] = 0.5
    return wave


def middle(wave: Floats, pitch: float = PITCH) -> Floats:
    """Return the features of ten places in the middle of a wave, clear up to the top."""
    centres = (len(wave) / 2 + 100.0 * np.arange(10)).astype(np.float64)
    return describe(wave, centres, pitch, np.ones(10))


def test_pulses_at_their_pitch_are_voiced_and_noise_and_silence_are_not() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE)
    assert middle(pulses())[:, NUM_BANDS].min() > 0.9
    assert middle(noise)[:, NUM_BANDS].mean() < 0.3
    assert middle(pulses(), pitch=PITCH * 1.4)[:, NUM_BANDS].max() < 0.3
    features = middle(np.zeros(SAMPLE_RATE))
    assert np.allclose(features[:, :NUM_BANDS], -6)
    assert not features[:, NUM_BANDS:].any()


def test_the_envelope_tells_where_and_how_much_power_there_is() -> None:
    bands = middle(pulses())[:, 2:NUM_BANDS]
    assert np.ptp(bands.mean(0)) < 0.25  # of a decade: the comb itself would swing by several
    tone = 0.1 * np.sin(2 * np.pi * 3000 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)
    loudest = int(middle(tone)[:, :NUM_BANDS].mean(0).argmax())
    assert band_centres_hz()[loudest] == pytest.approx(3000, rel=0.06)
    wave = pulses()
    difference = middle(wave) - middle(wave / 10)
    assert difference[:, 5:40].mean() == pytest.approx(2.0, abs=0.1)


def steady(voicing: float = 1.0, level: float = -3.0, rows: int = 64) -> torch.Tensor:
    """Return features [1, rows, features] of one sound held."""
    features = torch.full((1, rows, NUM_FEATURES), level)
    features[..., -2:] = voicing
    return features


@pytest.mark.parametrize("voice", VOICES, ids=lambda voice: voice.name)
def test_pitch_is_the_voice_s(voice: TrainedVoice) -> None:
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


def test_voicing_and_level_move_power() -> None:
    for voicing, silent in ((1.0, 1), (0.0, 0)):
        parts = synthesise(steady(voicing=voicing), torch.tensor([4]))
        assert float(parts[silent].abs().max()) < 1e-3
        assert float(parts[1 - silent].std()) > 1e-2
    loud, quiet = (
        synthesise(steady(level=level), torch.tensor([2]))[0].std() for level in (-2.0, -4.0)
    )
    assert float(loud / quiet) == pytest.approx(10, rel=1e-3)
    assert np.isfinite(float(loud))


def speech(multiple: int = 3, voicing: float = 0.8) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the harmonic and noise parts of a held sound."""
    features = torch.full((1, 24, NUM_FEATURES), -3.0)
    features[..., -2:] = voicing
    return synthesise(features, torch.tensor([multiple]))


def test_the_right_wave_costs_nothing_and_silence_the_whole() -> None:
    (harmonic, noise), (wrong, _) = speech(), speech(multiple=4)
    loss = SpectralLoss()

    def cost(wave: torch.Tensor) -> dict[str, float]:
        return {name: float(part) for name, part in loss(wave, harmonic, noise).items()}

    right, silent = cost(harmonic + noise), cost(torch.zeros_like(harmonic))
    assert right["mel"] == right["magnitude"] == 0
    assert silent["wave"] > 0.95 and silent["mel"] > 0.5
    # Another pitch costs more than another noise.
    off_pitch, off_noise = cost(wrong + noise), cost(harmonic - noise)
    assert all(off_pitch[part] > 2 * off_noise[part] for part in ("magnitude", "wave"))
    shifted = cost(torch.roll(harmonic + noise, 40, dims=1))  # told by its phase alone
    assert shifted["wave"] > 0.5 and shifted["magnitude"] < 0.1
