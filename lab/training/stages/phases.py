"""Teach the decoder's latents to tell phases and features, and to be a waveform but for one layer.

The layers of the waveform are left out; a single linear layer, the head, stands in for them. What
is to be learnt is then where in its period each harmonic is, and phases come within minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.training.codec_network import TaughtDecoder
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
class PhaseRecipe:
    """Hold what is tuned: windows a step, frames of each, and what the parts of the loss weigh.

    The mel spectrum's weight doubles over the budget; `reading_weight`, of what is read of the
    latents, falls to zero.
    """

    batch: int = 10
    frames: int = 9
    mel_weight: float = 1.0
    magnitude_weight: float = 0.5
    wave_weight: float = 1.0
    reading_weight: float = 2.0
    seed: int = 0


class PhaseStage:
    """Draw windows of coded speech and compare the head's waveform with the synthesised one."""

    name = "phases"

    def __init__(
        self,
        speech: Sequence[Utterance],
        quantizer: Quantizer,
        config: CodecConfig,
        recipe: PhaseRecipe,
        device: torch.device,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, device
        self.network = TaughtDecoder(config, quantizer.books).to(device)
        self.network.decoder.decoder.requires_grad_(False)
        self._source = WindowSource(speech, quantizer, recipe.frames)
        self._mean, self._size = (part.to(device) for part in self._source.scale())
        self._loss = SpectralLoss().to(device)
        self._uses_bfloat16 = multiplies_bfloat16(device)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        recipe, positions = self.recipe, self.network.positions
        rng = np.random.default_rng((recipe.seed, step))
        windows = self._source.draw_batch(rng, recipe.batch, self.device)
        harmonic, noise = self._wanted(windows, rng)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._uses_bfloat16):
            latents = self.network.decoder.quantizer(windows.codes)
            wave = self.network.listen(latents[..., (CONTEXT - _LEAD_IN) * positions :])
        parts = self._loss(wave.float()[:, _LEAD_IN * FRAME_SAMPLES :], harmonic, noise)
        off = self._read_off(latents, windows)
        phase = off[..., :NUM_PHASE_TARGETS].mean()
        total = recipe.mel_weight * (1 + progress) * parts["mel"]
        total = total + recipe.magnitude_weight * parts["magnitude"]
        total = total + recipe.wave_weight * parts["wave"]
        total = total + recipe.reading_weight * (1 - progress) * (off.mean() + phase)
        features = off[..., NUM_PHASE_TARGETS + 1 :].mean()
        return {"loss": total, **parts, "phase": phase, "features": features}

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
