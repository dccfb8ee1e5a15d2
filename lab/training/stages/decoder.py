"""Teach the codec's decoder to sound: codes in, the waveform that a speaker's rows describe out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.training.codebooks import NUM_EXACT_BOOKS, encode_clip
from lab.training.flite import Utterance
from lab.training.sound.clips import aligned_clip, fewest_frames
from lab.training.sound.pitch import NUM_PHASES
from lab.training.sound.spectral_loss import SpectralLoss
from lab.training.sound.synthesis import synthesise
from lab.training.sound.timing import FRAME_SAMPLES, ROWS_PER_FRAME
from lab.training.speakers import trained_speaker
from lab.training.stages.phases import SPEAKERS, build_taught_decoder
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.windows import (
    NUM_PHASE_TARGETS,
    Windows,
    cut_window,
    phase_targets,
    stack_windows,
)
from synth.engine.codec.config import CodecConfig

_LEAD_IN = 2  # frames that the layers of the waveform see before those that count
_FINER_FIRST = NUM_EXACT_BOOKS + 2  # the books that tell the finer parts of a sound


@dataclass(frozen=True, slots=True)
class DecoderRecipe:
    """Hold what is tuned: windows a step, frames of each that count and that only lead in.

    `detail_noise` is the share of windows whose finer codes are mixed up, as a language model that
    cannot predict them does. `phase_weight` is of what is read of the phases, and falls to zero.
    """

    batch: int = 7
    frames: int = 9
    context: int = 8
    detail_noise: float = 0.15
    magnitude_weight: float = 0.5
    wave_weight: float = 2.0
    phase_weight: float = 1.0
    seed: int = 0


class DecoderStage:
    """Draw windows of coded clips and compare the decoder's waveform with the synthesised one."""

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
        self._space, self._books = quantizer
        self.network = build_taught_decoder(config, quantizer).to(device)
        self._loss = SpectralLoss().to(device)
        self._speech = [each for each in speech if fewest_frames(each) >= recipe.frames]

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        recipe = self.recipe
        rng = np.random.default_rng((recipe.seed, step))
        windows = self._batch(rng)
        harmonic, noise = self._wanted(windows, rng)
        decoder = self.network.decoder
        latents = decoder.quantizer(windows.codes)
        wave = decoder.decoder(latents[..., (recipe.context - _LEAD_IN) * ROWS_PER_FRAME :])[:, 0]
        parts = self._loss(wave[:, _LEAD_IN * FRAME_SAMPLES :], harmonic, noise)
        read = self.network.read(latents[..., recipe.context * ROWS_PER_FRAME :])
        off = read[..., :NUM_PHASE_TARGETS] - phase_targets(windows)
        phase = off.square().mean()
        total = parts["mel"] + recipe.magnitude_weight * parts["magnitude"]
        total = total + recipe.wave_weight * parts["wave"]
        total = total + recipe.phase_weight * (1 - progress) * phase
        return {"loss": total, **parts, "phase": phase}

    @torch.no_grad()
    def _wanted(self, windows: Windows, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return the harmonic and the noise part of the frames that count."""
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        size = (len(windows.codes), (self.recipe.frames + 1) * FRAME_SAMPLES)
        noise = torch.randn(size, generator=generator).to(self.device)
        parts = synthesise(windows.rows, windows.pitches, windows.phase, noise)
        harmonic, rest = (part[:, FRAME_SAMPLES:] for part in parts)
        return harmonic, rest

    def _batch(self, rng: np.random.Generator) -> Windows:
        return stack_windows([self._draw(rng) for _ in range(self.recipe.batch)], self.device)

    def _draw(self, rng: np.random.Generator) -> Windows:
        recipe = self.recipe
        utterance = self._speech[int(rng.integers(len(self._speech)))]
        speaker = trained_speaker(utterance.teacher, int(rng.integers(SPEAKERS)))
        clip = aligned_clip(utterance, speaker)
        start = int(rng.integers(NUM_PHASES))
        codes = encode_clip(self._space, self._books, clip, start)
        if rng.random() < recipe.detail_noise:
            drawn = torch.from_numpy(rng.integers(clip.num_frames, size=clip.num_frames))
            codes[_FINER_FIRST:] = codes[_FINER_FIRST:, drawn]
        first = int(rng.integers(0, clip.num_frames - recipe.frames + 1))
        return cut_window(clip, codes, start, first, frames=recipe.frames, context=recipe.context)
