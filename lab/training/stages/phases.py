"""Teach the decoder's transformer phases and envelopes, before there is any sound.

A decoder that learns all at once takes hours to find out that its harmonics follow phase numbers.
Read off the transformer's output by one matrix, phases are learnt within minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from lab.training.codebooks import PHASE_BOOK, PITCH_BOOK, encode_clip
from lab.training.codec_network import build_decoder, set_books
from lab.training.flite import Utterance
from lab.training.latents import LATENT_DIM
from lab.training.sound.acoustics import NUM_FEATURES
from lab.training.sound.clips import Clip, aligned_clip
from lab.training.sound.pitch import HIGHEST, LOWEST, NUM_PHASES, phase_numbers
from lab.training.sound.timing import ROWS_PER_FRAME
from lab.training.speakers import trained_speaker
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.windows import (
    NUM_PHASE_TARGETS,
    Windows,
    cut_window,
    phase_targets,
    stack_windows,
)
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.halves import CodecDecoder

SPEAKERS = 100  # of each teacher, whom the decoder hears
_CONTEXT = 1
_MOST_CLIPS = 600
_LARGEST_SHIFT = 12  # of all pitches of a clip, as numbers


class TaughtDecoder(nn.Module):
    """Hold a decoder, and a matrix that reads phases and features off its transformer's output."""

    def __init__(self, decoder: CodecDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.reader = nn.Linear(LATENT_DIM, NUM_PHASE_TARGETS + NUM_FEATURES)

    def read(self, latents: Tensor) -> Tensor:
        """Return what is read of latents [B, LATENT_DIM, 4 T], [B, 4 T, targets]."""
        read: Tensor = self.reader(latents.transpose(1, 2).float())
        return read


def build_taught_decoder(config: CodecConfig, quantizer: Quantizer) -> TaughtDecoder:
    """Return one with random weights and the fitted codebooks."""
    decoder = build_decoder(config)
    set_books(decoder, quantizer.books)
    return TaughtDecoder(decoder)


@dataclass(frozen=True, slots=True)
class PhaseRecipe:
    """Hold what is tuned: windows a step, and frames of each."""

    batch: int = 24
    frames: int = 16
    seed: int = 0


class PhaseStage:
    """Draw windows of coded clips at moved pitches and compare what is read with what they are."""

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
        self._space, self._books = quantizer
        self.network = build_taught_decoder(config, quantizer).to(device)
        self.network.decoder.decoder.requires_grad_(False)
        self._clips = self._describe(speech[:_MOST_CLIPS])
        self._codes: dict[int, Tensor] = {}
        rows = torch.cat([torch.from_numpy(clip.rows) for clip in self._clips])
        self._mean, self._size = rows.mean(0).to(device), rows.std(0).to(device)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        windows = self._batch(np.random.default_rng((self.recipe.seed, step)))
        latents = self.network.decoder.quantizer(windows.codes)
        read = self.network.read(latents[..., _CONTEXT * ROWS_PER_FRAME :])
        rows = windows.rows[:, 1 + ROWS_PER_FRAME :]
        wanted = torch.cat([phase_targets(windows), (rows - self._mean) / self._size], -1)
        off = (read - wanted).square()
        phase = off[..., : NUM_PHASE_TARGETS - 1].mean()
        pitch = off[..., NUM_PHASE_TARGETS - 1].mean()
        features = off[..., NUM_PHASE_TARGETS:].mean()
        return {"loss": off.mean() + phase, "phase": phase, "pitch": pitch, "features": features}

    def _describe(self, speech: Sequence[Utterance]) -> list[Clip]:
        rng = np.random.default_rng(self.recipe.seed)
        numbers = rng.integers(SPEAKERS, size=len(speech))
        clips = [
            aligned_clip(utterance, trained_speaker(utterance.teacher, int(number)))
            for utterance, number in zip(speech, numbers, strict=True)
        ]
        return [clip for clip in clips if clip.num_frames > self.recipe.frames]

    def _batch(self, rng: np.random.Generator) -> Windows:
        recipe, windows = self.recipe, []
        for _ in range(recipe.batch):
            index = int(rng.integers(len(self._clips)))
            shift = int(rng.integers(-_LARGEST_SHIFT, _LARGEST_SHIFT + 1))
            start = int(rng.integers(NUM_PHASES))
            clip = self._clips[index]
            clip = replace(clip, pitches=np.clip(clip.pitches + shift, LOWEST, HIGHEST))
            codes = self._codes_of(index).clone()
            codes[PITCH_BOOK] = torch.from_numpy(clip.pitches[1:])
            codes[PHASE_BOOK] = torch.from_numpy(phase_numbers(clip.pitches, start))
            first = int(rng.integers(1, clip.num_frames - recipe.frames + 1))
            windows.append(
                cut_window(clip, codes, start, first, frames=recipe.frames, context=_CONTEXT)
            )
        return stack_windows(windows, self.device)

    def _codes_of(self, index: int) -> Tensor:
        """Return a clip's codes; what its pitch does not change is worked out once."""
        if index not in self._codes:
            self._codes[index] = encode_clip(self._space, self._books, self._clips[index], 0)
        return self._codes[index]
