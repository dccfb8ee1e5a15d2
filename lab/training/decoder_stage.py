"""Teach the codec's decoder to sound: codes in, the waveform that their features describe out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lab.training.acoustics import ROWS_PER_FRAME
from lab.training.codebooks import Book
from lab.training.codec_network import build_decoder, codec_config, set_books
from lab.training.espeak import VOICES
from lab.training.shards import Clip, RunFolderError
from lab.training.synthesis import ROW_LENGTH, synthesise

FRAME_LENGTH = ROWS_PER_FRAME * ROW_LENGTH
SAMPLE_RATE = 44100
_RESOLUTIONS = ((512, 30), (1024, 60), (2048, 80))  # samples of a window, mel bands
_LONG_WINDOW = 3072  # wide enough to part the harmonics of the lowest voice
_HOPS = {512: 120, 1024: 230, 2048: 480, _LONG_WINDOW: 700}  # none divides the decoder's 512
_LONG_UP_TO_HZ = 4000
_HIGHEST_HZ = 11000.0


@dataclass(frozen=True, slots=True)
class DecoderRecipe:
    """Hold what is tuned: windows a step, frames of each that count and that only lead in.

    `detail_noise` is the share of windows whose finer codes are drawn anew, as a language model
    that cannot predict them does.
    """

    batch: int = 6
    frames: int = 6
    context: int = 8
    decoder_dim: int = 192
    layers: int = 4
    detail_noise: float = 0.15
    wave_weight: float = 2.0
    seed: int = 0


class DecoderStage:
    """Draw windows of coded clips and compare the decoder's waveform with the synthesised one."""

    name = "decoder"

    def __init__(
        self,
        clips: Sequence[Clip],
        codes: Sequence[Tensor],
        books: list[Book],
        recipe: DecoderRecipe,
        device: torch.device,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, device
        self.network = build_decoder(
            codec_config(
                num_books=len(books),
                book_size=len(books[0].rows),
                decoder_dim=recipe.decoder_dim,
                layers=recipe.layers,
            )
        )
        set_books(self.network, books)
        self.network.to(device)
        self._loss = SpectralLoss().to(device)
        pairs = list(zip(clips, codes, strict=True))
        if any(clip.num_frames != clip_codes.shape[1] for clip, clip_codes in pairs):
            raise RunFolderError("The codes were made from other speech; run --stage codes again.")
        usable = [pair for pair in pairs if pair[0].num_frames >= recipe.frames]
        self._clips = [clip for clip, _ in usable]
        self._codes = [clip_codes for _, clip_codes in usable]

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        codes, features, pitches = self._batch(np.random.default_rng((self.recipe.seed, step)))
        with torch.no_grad():
            harmonic, noise = synthesise(features, pitches)
        latents = self.network.quantizer(codes)
        # The decoder sees one frame before those that count: more than it looks back.
        skipped = (self.recipe.context - 1) * ROWS_PER_FRAME
        wave = self.network.decoder(latents[..., skipped:])[:, 0]
        wave = wave[:, FRAME_LENGTH:]
        harmonic, noise = harmonic[:, FRAME_LENGTH:], noise[:, FRAME_LENGTH:]
        parts = self._loss(wave, harmonic, noise)
        total = parts["mel"] + 0.5 * parts["magnitude"]
        total = total + self.recipe.wave_weight * parts["wave"]
        return {"loss": total, **parts}

    def _batch(self, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return codes [B, K, context + frames], features of the last frames + 1, pitches [B]."""
        recipe = self.recipe
        codes, features, pitches = [], [], []
        for _ in range(recipe.batch):
            index = int(rng.integers(len(self._clips)))
            clip, clip_codes = self._clips[index], self._codes[index]
            first = int(rng.integers(0, clip.num_frames - recipe.frames + 1))
            wanted = np.arange(first - recipe.context, first + recipe.frames)
            window = clip_codes[:, np.clip(wanted, 0, None)].clone()
            if rng.random() < recipe.detail_noise:
                other = self._codes[int(rng.integers(len(self._clips)))]
                drawn = rng.integers(other.shape[1], size=window.shape[1])
                window[3:] = other[3:, drawn]
            codes.append(window)
            rows = np.arange((first - 1) * ROWS_PER_FRAME, (first + recipe.frames) * ROWS_PER_FRAME)
            taken = clip.features[np.clip(rows, 0, None)].astype(np.float32)
            features.append(torch.from_numpy(taken))
            pitches.append(VOICES[clip.voice].grid_multiple)
        return (
            torch.stack(codes).to(self.device),
            torch.stack(features).to(self.device),
            torch.tensor(pitches, device=self.device),
        )


class SpectralLoss(nn.Module):
    """Hold windows and mel filters for `forward`."""

    def __init__(self) -> None:
        super().__init__()
        for size in _HOPS:
            self.register_buffer(f"window_{size}", torch.hann_window(size))
        for size, bands in _RESOLUTIONS:
            self.register_buffer(f"mel_{size}", mel_filters(size, bands))

    def forward(self, wave: Tensor, harmonic: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Compare [B, N] with the sum of a harmonic and a noise part.

        Returns:
            `mel`: mean difference of log10 mel spectra; `magnitude`: of log10 magnitudes up to
            4 kHz at a resolution that shows each harmonic; `wave`: complex difference from the
            harmonic part, where that part is the larger, as a share of its size.
        """
        target = harmonic + noise
        mel = wave.new_zeros(())
        for size, _ in _RESOLUTIONS:
            filters = self.get_buffer(f"mel_{size}")
            ours, theirs = (self._spectrum(x, size).abs() for x in (wave, target))
            log_ours, log_theirs = (torch.log10(filters @ x + 1e-2) for x in (ours, theirs))
            mel = mel + (log_ours - log_theirs).abs().mean() / len(_RESOLUTIONS)
        bins = _LONG_UP_TO_HZ * _LONG_WINDOW // SAMPLE_RATE
        ours, theirs = (self._spectrum(x, _LONG_WINDOW)[:, :bins].abs() for x in (wave, target))
        magnitude = (torch.log10(ours + 0.1) - torch.log10(theirs + 0.1)).abs().mean()
        return {"mel": mel, "magnitude": magnitude, "wave": self._wave(wave, harmonic, noise)}

    def _wave(self, wave: Tensor, harmonic: Tensor, noise: Tensor) -> Tensor:
        size = 1024
        ours, tones, rest = (self._spectrum(x, size) for x in (wave, harmonic, noise))
        # Louder bins count by the root of their size, else vowels' lowest harmonics are all.
        sure = (tones.abs() > rest.abs()).float() / (tones.abs() + 0.3).sqrt()
        off = ((ours - tones).abs() * sure).sum()
        return off / ((tones.abs() * sure).sum() + 1e-3)

    def _spectrum(self, x: Tensor, size: int) -> Tensor:
        window = self.get_buffer(f"window_{size}")
        return torch.stft(x, size, _HOPS[size], size, window, center=False, return_complex=True)


def mel_filters(size: int, bands: int) -> Tensor:
    """Return triangles [bands, size / 2 + 1] of equal height."""
    hz = torch.linspace(0, SAMPLE_RATE / 2, size // 2 + 1)
    top = 2595 * torch.log10(torch.tensor(1 + _HIGHEST_HZ / 700))
    edges = 700 * (10 ** (torch.linspace(0, float(top), bands + 2) / 2595) - 1)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)
