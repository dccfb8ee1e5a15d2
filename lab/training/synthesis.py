"""Turn features into the waveform that the decoder is to learn: harmonics and noise on one grid.

Every component lies on a multiple of 21.53 Hz with a phase that never changes, so a frame's samples
follow from its features alone. The harmonic part is what a small decoder can learn sample by
sample; the noise part it need only match in spectrum.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.acoustics import NUM_BANDS, band_centres_hz
from lab.training.espeak import PITCH_GRID_HZ


def upsample(waves: Tensor) -> Tensor:
    """Return waves [B, 2 N] at twice the rate of [B, N], by a windowed sinc."""
    taps = 24
    places = torch.arange(-taps, taps + 1, dtype=torch.float32, device=waves.device)
    window = torch.hann_window(2 * taps + 3, periodic=False, device=waves.device)[1:-1]
    kernel = torch.sinc(places / 2) * window
    spread = torch.stack([waves, torch.zeros_like(waves)], dim=-1).flatten(1)
    return F.conv1d(F.pad(spread, (taps, taps))[:, None], kernel[None, None])[:, 0]


SAMPLE_RATE = 44100
CYCLE = 2048  # samples after which every component repeats
ROW_LENGTH = 512  # samples of one row of features
LEVEL = 0.7  # of the speech described, so that the sharpest periods stay below full scale
_BIN_HZ = SAMPLE_RATE / CYCLE
_SPLIT_HZ, _SPLIT_WIDTH_HZ = 1500.0, 500.0
# One full-scale power density becomes this power of a component of the cycle.
_POWER_PER_BIN = 2.0 * _BIN_HZ / (SAMPLE_RATE / 4)


@lru_cache(maxsize=4)
def _tables(device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return interpolation [bands, bins], the upper voicing's share [bins], phases [2, bins]."""
    hz = torch.arange(CYCLE // 2 + 1, dtype=torch.float64) * _BIN_HZ
    centres = torch.from_numpy(band_centres_hz())
    right = torch.searchsorted(centres, hz).clamp(1, NUM_BANDS - 1)
    low, high = centres[right - 1], centres[right]
    part = ((hz - low) / (high - low)).clamp(0, 1)
    weights = torch.zeros(NUM_BANDS, len(hz), dtype=torch.float64)
    weights[right - 1, torch.arange(len(hz))] = 1 - part
    weights[right, torch.arange(len(hz))] += part
    upper = torch.sigmoid((hz - _SPLIT_HZ) / (_SPLIT_WIDTH_HZ / 4))
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(len(hz), generator=generator, dtype=torch.float64) * 2 * math.pi
    # Phases that fall with the square of the frequency spread a period's energy over the period.
    harmonic = -math.pi * (hz / 2500) ** 2
    tables = weights.float(), upper.float(), torch.stack([harmonic, noise]).float()
    return tuple(table.to(device) for table in tables)  # type: ignore[return-value]


def synthesise(features: Tensor, grid_multiple: Tensor) -> tuple[Tensor, Tensor]:
    """Return the harmonic and the noise part of speech, each float32 [B, 512 R].

    Args:
        features: [B, R, NUM_FEATURES]; grid_multiple: int64 [B], the pitch on the voices' grid.

    The samples of a row pass from the row before (silence before the first) to their own, so that
    nothing depends on a later row.
    """
    weights, upper, phases = _tables(str(features.device))
    density = 10 ** (features[..., :NUM_BANDS] @ weights)  # [B, R, bins]
    low, high = features[..., NUM_BANDS, None], features[..., NUM_BANDS + 1, None]
    voicing = low * (1 - upper) + high * upper
    audible = torch.arange(density.shape[-1], device=features.device) * _BIN_HZ
    density = density * ((audible > 60) & (audible < 10600))
    comb = _comb(grid_multiple, density.shape[-1])
    spacing = grid_multiple[:, None, None] * (PITCH_GRID_HZ / _BIN_HZ)
    harmonic = (density * voicing * spacing * _POWER_PER_BIN).sqrt() * comb[:, None]
    noise = (density * (1 - voicing) * _POWER_PER_BIN).sqrt()
    return _wave(harmonic, phases[0]), _wave(noise, phases[1])


def _comb(grid_multiple: Tensor, bins: int) -> Tensor:
    """Return ones [B, bins] where a harmonic of the pitch lies."""
    step = grid_multiple[:, None] * round(PITCH_GRID_HZ / _BIN_HZ)
    index = torch.arange(bins, device=grid_multiple.device)
    return ((index % step == 0) & (index > 0)).float()


def _wave(amplitude: Tensor, phase: Tensor) -> Tensor:
    """Return the samples of components [B, R, bins], each row faded in over its 512 samples."""
    spectrum = torch.polar(amplitude, phase.expand_as(amplitude)) * (LEVEL * CYCLE / 2)
    cycles = torch.fft.irfft(spectrum, CYCLE)  # [B, R, CYCLE]
    before = F.pad(cycles, (0, 0, 1, 0))[:, :-1]
    rows = torch.arange(amplitude.shape[1], device=amplitude.device)
    place = (rows[:, None] * ROW_LENGTH + torch.arange(ROW_LENGTH, device=rows.device)) % CYCLE
    place = place.expand(len(amplitude), -1, -1)
    fade = torch.linspace(0, 1, ROW_LENGTH + 1, device=rows.device)[:-1]
    samples: Tensor = cycles.gather(2, place) * fade + before.gather(2, place) * (1 - fade)
    return samples.flatten(1)
