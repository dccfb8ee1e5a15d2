"""Teach the decoder's upsampler to give latents that are a waveform but for one linear layer.

The head stands in for the layers of the waveform, which are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.training.codebooks import Book
from lab.training.codec_network import TaughtDecoder, set_books
from lab.training.flite import Utterance
from lab.training.lm_network import multiplies_bfloat16
from lab.training.sound.spectral_loss import SpectralLoss
from lab.training.sound.synthesis import synthesise
from lab.training.sound.targets import NUM_PHASE_TARGETS, latent_targets
from lab.training.sound.timing import FRAME_SAMPLES
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.windows import CONTEXT, Windows, WindowSource
from synth.engine.codec.config import CodecConfig

_LEAD_IN = 2  # frames before those that count, which the head sees


@dataclass(frozen=True, slots=True)
class HeadRecipe:
    """Hold what is tuned: windows a step, frames of each, and what the parts of the loss weigh.

    The mel spectrum's weight doubles over the budget; `reading_weight`, of what is read of the
    latents, falls to zero. Where it is 0, nothing is read.
    """

    batch: int = 10
    frames: int = 9
    mel_weight: float = 1.0
    level_weight: float = 0.5
    magnitude_weight: float = 0.5
    wave_weight: float = 1.0
    reading_weight: float = 2.0
    seed: int = 0


class HeadStage:
    """Draw windows of coded speech and compare the head's waveform with the synthesised one."""

    name = "head"

    def __init__(
        self,
        speech: Sequence[Utterance],
        quantizer: Quantizer,
        config: CodecConfig,
        recipe: HeadRecipe,
        device: torch.device,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, device
        self.network = TaughtDecoder(config, quantizer.books).to(device)
        self._choose_layers(quantizer.books)
        self._source = WindowSource(speech, quantizer, recipe.frames)
        self._mean, self._size = (part.to(device) for part in self._source.scale())
        self._loss = SpectralLoss().to(device)
        self._uses_bfloat16 = multiplies_bfloat16(device)

    def _choose_layers(self, books: list[Book]) -> None:
        """Say which layers learn."""
        self.network.decoder.decoder.requires_grad_(False)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        recipe, positions = self.recipe, self.network.positions
        rng = np.random.default_rng((recipe.seed, step))
        windows = self._source.draw_batch(rng, recipe.batch, self.device)
        harmonic, noise = self._wanted(windows, rng)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._uses_bfloat16):
            latents = self.network.decoder.quantizer(windows.codes)
            wave = self._wave_of(latents[..., (CONTEXT - _LEAD_IN) * positions :])
        parts = self._loss(wave.float()[:, _LEAD_IN * FRAME_SAMPLES :], harmonic, noise)
        total = recipe.mel_weight * (1 + progress) * parts["mel"]
        total = total + recipe.magnitude_weight * parts["magnitude"]
        total = total + recipe.level_weight * parts["level"]
        total = total + recipe.wave_weight * parts["wave"]
        if not recipe.reading_weight:
            return {"loss": total, **parts}
        off = self._read_off(latents, windows)
        phase = off[..., :NUM_PHASE_TARGETS].mean()
        total = total + recipe.reading_weight * (1 - progress) * (off.mean() + phase)
        features = off[..., NUM_PHASE_TARGETS + 1 :].mean()
        return {"loss": total, **parts, "phase": phase, "features": features}

    def _wave_of(self, latents: Tensor) -> Tensor:
        """Return the waveform that is judged, [B, N]."""
        return self.network.listen(latents)

    def _read_off(self, latents: Tensor, windows: Windows) -> Tensor:
        """Return how far off is what is read of the latents, squared, of the frames that count."""
        positions = self.network.positions
        rows = (windows.rows[:, 1:] - self._mean) / self._size
        wanted = latent_targets(rows, windows.pitches, windows.phase, positions)
        read = self.network.read(latents[..., CONTEXT * positions :])
        return (read - wanted[:, positions:]).square()

    @torch.no_grad()
    def _wanted(self, windows: Windows, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return the harmonic and the noise part of the frames that count."""
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        size = (len(windows.codes), (self.recipe.frames + 1) * FRAME_SAMPLES)
        noise = torch.randn(size, generator=generator).to(self.device)
        parts = synthesise(windows.rows, windows.pitches, windows.phase, noise)
        harmonic, rest = (part[:, FRAME_SAMPLES:] for part in parts)
        return harmonic, rest


class TuneStage(HeadStage):
    """Train all layers of a decoder together, judged by its own waveform.

    What the head could not say, such as noise between its windows, the layers of the waveform can.
    """

    name = "tune"

    def _choose_layers(self, books: list[Book]) -> None:
        self.network.requires_grad_(False)
        self.network.decoder.requires_grad_(True)
        set_books(self.network.decoder, books)  # which stay

    def _wave_of(self, latents: Tensor) -> Tensor:
        return self.network.speak(latents)
