"""Teach the decoder's layers of the waveform to take the place of the head.

Latents and head stay as the stage before has made them, so every sample is known: no noise is to
be guessed, and nothing about phases to be found out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.training.codec_network import TaughtDecoder
from lab.training.flite import Utterance
from lab.training.sound.spectral_loss import CopyLoss
from lab.training.sound.timing import FRAME_SAMPLES
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.windows import WindowSource
from synth.engine.codec.config import CodecConfig

_ALPHA = 0.15  # of every Snake at the beginning: nearly a straight line
_LEAD_IN = 1  # frames that the layers see before those that count


@dataclass(frozen=True, slots=True)
class DecoderRecipe:
    """Hold what is tuned: windows a step, and frames of each."""

    batch: int = 10
    frames: int = 9
    seed: int = 0


class DecoderStage:
    """Draw windows of coded speech and compare the decoder's waveform with the head's."""

    name = "decoder"

    def __init__(
        self,
        speech: Sequence[Utterance],
        quantizer: Quantizer,
        config: CodecConfig,
        recipe: DecoderRecipe,
        device: torch.device,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, device
        self.network = TaughtDecoder(config, quantizer.books).to(device)
        self.network.requires_grad_(False)
        self.network.decoder.decoder.requires_grad_(True)
        self._source = WindowSource(speech, quantizer, recipe.frames)
        self._loss = CopyLoss().to(device)

    @torch.no_grad()
    def take_latents(self, weights: Mapping[str, Tensor], *, fresh: bool) -> None:
        """Take over what the stage `phases` has made.

        Args:
            fresh: begin the layers of the waveform at random, not as `weights` has them.
        """
        waveform = "decoder.decoder."
        own = {k: v for k, v in self.network.state_dict().items() if k.startswith(waveform)}
        self.network.load_state_dict({**weights, **own} if fresh else dict(weights))
        if not fresh:
            return
        for name, weight in self.network.decoder.decoder.named_parameters():
            if name.endswith("alpha"):
                weight.fill_(_ALPHA)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        rng = np.random.default_rng((self.recipe.seed, step))
        windows = self._source.draw_batch(rng, self.recipe.batch, self.device)
        with torch.no_grad():
            latents = self.network.decoder.quantizer(windows.codes)
            latents = latents[..., self.network.positions :]
            wanted = self.network.listen(latents)[:, _LEAD_IN * FRAME_SAMPLES :]
        wave = self.network.speak(latents)[:, _LEAD_IN * FRAME_SAMPLES :]
        parts = self._loss(wave, wanted)
        noise = (wave.detach() - wanted).square().sum() / wanted.square().sum().clamp(min=1e-9)
        total = 2 * parts["wave"] + parts["mel"]
        return {"loss": total, **parts, "decibels": -10 * torch.log10(noise)}
