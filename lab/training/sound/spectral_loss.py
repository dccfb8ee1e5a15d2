"""Say how far a waveform is from one that is to be learnt, and from one that is to be copied."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.training.flite import SAMPLE_RATE

_MEL_BANDS = {256: 24, 512: 40, 1024: 64}  # of windows of that many samples
_WAVE_SIZES = (256, 512)
_COPY_SIZES = (64, 256, 1024)
_LONG_WINDOW = 1024  # wide enough to part the harmonics of a low voice
_HOPS = {256: 60, 512: 115, 1024: 230}  # none divides the decoder's 160
_LONG_UP_TO_HZ = 4000
_LEVEL_SIZE, _LEVEL_HOPS = 512, 6  # powers are averaged over 43 ms before they are compared
_LEVEL_FLOOR = 1e-5


class SpectralLoss(nn.Module):
    """Hold windows and mel filters for `forward`."""

    def __init__(self) -> None:
        super().__init__()
        for size in _HOPS:
            self.register_buffer(f"window_{size}", torch.hann_window(size))
        for size, bands in _MEL_BANDS.items():
            self.register_buffer(f"mel_{size}", mel_filters(size, bands))

    def forward(self, wave: Tensor, harmonic: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Compare [B, N] with the sum of a harmonic and a noise part.

        Returns:
            `mel`: mean difference of log10 mel spectra; `magnitude`: of log10 magnitudes up to
            4 kHz at a resolution that shows each harmonic; `wave`: complex difference from the
            harmonic part, where that part is the larger, as a share of its size; `level`: mean
            difference of log10 mel powers over a frame's time. Single spectra of noise are mostly
            below their mean, so that `mel` alone makes consonants too quiet.
        """
        target = harmonic + noise
        mel = self._mel(wave, target, floor=1e-2)
        bins = _LONG_UP_TO_HZ * _LONG_WINDOW // SAMPLE_RATE
        ours, theirs = (self._spectrum(x, _LONG_WINDOW)[:, :bins].abs() for x in (wave, target))
        magnitude = (torch.log10(ours + 0.05) - torch.log10(theirs + 0.05)).abs().mean()
        off = [self._wave(wave, harmonic, noise, size) for size in _WAVE_SIZES]
        wave_off = torch.stack(off).mean()
        level = (self._levels(wave) - self._levels(target)).abs().mean()
        return {"mel": mel, "magnitude": magnitude, "wave": wave_off, "level": level}

    def _levels(self, x: Tensor) -> Tensor:
        """Return log10 of mel powers, averaged over time, [B, bands, times]."""
        filters = self.get_buffer(f"mel_{_LEVEL_SIZE}")
        powers = filters @ self._spectrum(x, _LEVEL_SIZE).abs().square()
        return torch.log10(F.avg_pool1d(powers, _LEVEL_HOPS) + _LEVEL_FLOOR)

    def _mel(self, wave: Tensor, target: Tensor, floor: float) -> Tensor:
        parts = []
        for size in _MEL_BANDS:
            filters = self.get_buffer(f"mel_{size}")
            ours, theirs = (
                torch.log10(filters @ self._spectrum(x, size).abs() + floor) for x in (wave, target)
            )
            parts.append((ours - theirs).abs().mean())
        return torch.stack(parts).mean()

    def _wave(self, wave: Tensor, harmonic: Tensor, noise: Tensor, size: int) -> Tensor:
        ours, tones, rest = (self._spectrum(x, size) for x in (wave, harmonic, noise))
        # Louder bins count by the root of their size, else vowels' lowest harmonics are all.
        sure = (tones.abs() > rest.abs()).float() / (tones.abs() + 0.2).sqrt()
        off = ((ours - tones).abs() * sure).sum()
        return off / ((tones.abs() * sure).sum() + 1e-3)

    def _spectrum(self, x: Tensor, size: int) -> Tensor:
        window = self.get_buffer(f"window_{size}")
        return torch.stft(x, size, _HOPS[size], size, window, center=False, return_complex=True)


class CopyLoss(SpectralLoss):
    """Compare with a waveform every sample of which can be learnt."""

    def forward(self, wave: Tensor, wanted: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        """Return `wave`, the complex difference as a share, and `mel`, that of log10 spectra."""
        shares = []
        for size in _COPY_SIZES:
            window = torch.hann_window(size, device=wave.device)
            ours, theirs = (
                torch.stft(x, size, size // 4, size, window, center=False, return_complex=True)
                for x in (wave, wanted)
            )
            weight = 1 / (theirs.abs() + 0.05 * size / 256).sqrt()
            off = ((ours - theirs).abs() * weight).sum()
            shares.append(off / ((theirs.abs() * weight).sum() + 1e-3))
        return {"wave": torch.stack(shares).mean(), "mel": self._mel(wave, wanted, floor=3e-3)}


def mel_filters(size: int, bands: int) -> Tensor:
    """Return triangles [bands, size / 2 + 1] of equal height."""
    hz = torch.linspace(0, SAMPLE_RATE / 2, size // 2 + 1)
    top = 2595 * torch.log10(torch.tensor(1 + SAMPLE_RATE / 2 / 700))
    edges = 700 * (10 ** (torch.linspace(0, float(top), bands + 2) / 2595) - 1)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)
