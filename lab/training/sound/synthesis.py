"""Turn rows of features, pitches and a phase into the waveform that the decoder is to learn.

It comes in two parts. The harmonic one follows from the codes sample by sample; of the noise the
decoder need only match the spectrum.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.flite import NUM_CEPSTRA, SAMPLE_RATE
from lab.training.sound.acoustics import ALPHA
from lab.training.sound.pitch import GRID_HZ
from lab.training.sound.timing import FRAME_SAMPLES, FRAME_SECONDS, ROW_SAMPLES

_BAND_CENTRES_HZ = (500, 1500, 3000, 5000, 7000)  # of the strengths
_HIGHEST_HZ, _FADE_HZ = 7800, 200  # harmonics fade out below this frequency
_NYQUIST_HZ = SAMPLE_RATE / 2
_FULL_SCALE = math.log(32768.0)  # the cepstra are those of samples of 16 bits
_FFT_SIZE = 512


def envelope(cepstra: Tensor, hz: Tensor) -> Tensor:
    """Return the log magnitude of cepstra [..., 25] at frequencies [..., H], full scale at 0."""
    radians = 2 * math.pi * hz / SAMPLE_RATE
    warped = radians + 2 * torch.atan2(ALPHA * radians.sin(), 1 - ALPHA * radians.cos())
    cosine = warped.cos()
    later, last = torch.zeros_like(cosine), torch.zeros_like(cosine)
    for order in range(NUM_CEPSTRA - 1, 0, -1):  # Clenshaw's sum of cosines
        later, last = cepstra[..., order, None] + 2 * cosine * later - last, later
    return cepstra[..., 0, None] + cosine * later - last - _FULL_SCALE


def voicing(strengths: Tensor, hz: Tensor) -> Tensor:
    """Return the strength of voicing at frequencies [..., H], of the bands' strengths [..., 5]."""
    total = strengths[..., 0, None]
    for band, (low, high) in enumerate(pairwise(_BAND_CENTRES_HZ)):
        part = ((hz - low) / (high - low)).clamp(0, 1)
        total = total + (strengths[..., band + 1, None] - strengths[..., band, None]) * part
    return total


def synthesise(
    rows: Tensor, pitches: Tensor, phase: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the harmonic and the noise part of speech, each float32 [B, 640 T].

    Args:
        rows: [B, 4 T + 1, NUM_FEATURES], the first one before the first frame.
        pitches: [B, T + 1], the numbers at the frames' ends.
        phase: [B], in periods, where the first frame begins.
        noise: white, [B, 640 T].
    """
    return _harmonic(rows, pitches * GRID_HZ, phase), _noise(rows, noise)


def phases_within(pitches: Tensor, phase: Tensor, positions: int) -> tuple[Tensor, Tensor]:
    """Return phase in periods and pitch in Hz in the middle of positions of each frame.

    Both are [B, positions * T]; arguments as for `synthesise`.
    """
    middles = (torch.arange(positions, device=pitches.device) + 0.5) / positions
    return _course(pitches * GRID_HZ, phase, middles)


def _course(ends_hz: Tensor, phase: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
    """Return phase and pitch at these parts (0 to 1) of every frame, each [B, T * parts]."""
    first, last = ends_hz[:, :-1, None], ends_hz[:, 1:, None]
    periods = FRAME_SECONDS * (ends_hz[:, :-1] + ends_hz[:, 1:]) / 2
    begins = phase[:, None] + F.pad(periods.cumsum(1)[:, :-1], (1, 0))
    within = FRAME_SECONDS * (first * parts + (last - first) * parts.square() / 2)
    hz = first * (1 - parts) + last * parts
    return (begins[..., None] + within).flatten(1), hz.flatten(1)


def _harmonic(rows: Tensor, ends_hz: Tensor, phase: Tensor) -> Tensor:
    batch, count = rows.shape[0], rows.shape[1] - 1
    device = rows.device
    samples = (torch.arange(FRAME_SAMPLES, device=device) + 1.0) / FRAME_SAMPLES
    periods, hz = _course(ends_hz, phase, samples)
    row_hz = torch.cat([ends_hz[:, :1], hz[:, ROW_SAMPLES - 1 :: ROW_SAMPLES]], 1)  # [B, R + 1]
    harmonics = torch.arange(1, int((_HIGHEST_HZ - _FADE_HZ) / float(row_hz.min())) + 1.0)
    each_hz = row_hz[..., None] * harmonics.to(device)
    size = 2 * envelope(rows[..., :NUM_CEPSTRA], each_hz.clamp(max=_NYQUIST_HZ - 1)).exp()
    size = size * (row_hz[..., None] / SAMPLE_RATE).sqrt()
    size = size * voicing(rows[..., NUM_CEPSTRA:], each_hz)
    size = size * ((_HIGHEST_HZ - each_hz) / _FADE_HZ).clamp(0, 1)
    # Phases that fall with the square of the frequency spread a period's energy over the period.
    spread = -math.pi * (each_hz / 2500) ** 2 * 0.5
    part = (torch.arange(ROW_SAMPLES, device=device) + 1.0) / ROW_SAMPLES
    angle = (2 * math.pi * (periods - periods.floor())).view(batch, count, ROW_SAMPLES)
    turn = torch.polar(torch.ones_like(angle), angle)
    turned, wave = turn.clone(), torch.zeros_like(angle)
    for index in range(len(harmonics)):
        level, shift = (
            each[:, :-1, index, None] * (1 - part) + each[:, 1:, index, None] * part
            for each in (size, spread)
        )
        wave += level * (turned.real * shift.cos() - turned.imag * shift.sin())
        turned = turned * turn  # of the next harmonic
    return wave.flatten(1)


def _noise(rows: Tensor, noise: Tensor) -> Tensor:
    """Return white noise coloured around every row's end, its windows overlapping by half."""
    count, length = rows.shape[1], noise.shape[1]
    hz = torch.linspace(0, _NYQUIST_HZ, _FFT_SIZE // 2 + 1, device=rows.device)
    hz = hz.expand(*rows.shape[:2], -1)
    share = (1 - voicing(rows[..., NUM_CEPSTRA:], hz).square()).clamp(min=0).sqrt()
    size = envelope(rows[..., :NUM_CEPSTRA], hz).exp() * share
    window = torch.hann_window(2 * ROW_SAMPLES, device=rows.device)
    pieces = F.pad(noise, (ROW_SAMPLES, ROW_SAMPLES)).unfold(1, 2 * ROW_SAMPLES, ROW_SAMPLES)
    margin = (_FFT_SIZE - 2 * ROW_SAMPLES) // 2
    spectra = torch.fft.rfft(F.pad(pieces[:, :count] * window, (margin, margin)), _FFT_SIZE)
    coloured = torch.fft.irfft(spectra * size, _FFT_SIZE)
    whole = F.fold(
        coloured.transpose(1, 2),
        (1, (count - 1) * ROW_SAMPLES + _FFT_SIZE),
        (1, _FFT_SIZE),
        stride=(1, ROW_SAMPLES),
    )[:, 0, 0]
    return whole[:, _FFT_SIZE // 2 : _FFT_SIZE // 2 + length]
