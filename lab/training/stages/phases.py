"""Teach the decoder's transformer phases and features, before there is any sound.

A matrix reads them off its latents. Compared with a waveform from the beginning, the same layers
had learnt no phase after a thousand steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lab.training.codebooks import PHASE_BOOK, PITCH_BOOK, encode_clip
from lab.training.codec_network import TaughtDecoder
from lab.training.flite import Utterance
from lab.training.sound.clips import Clip, aligned_clip
from lab.training.sound.pitch import HIGHEST, LOWEST, NUM_PHASES, phase_numbers
from lab.training.sound.targets import NUM_PHASE_TARGETS, latent_targets
from lab.training.sound.timing import ROWS_PER_FRAME
from lab.training.speakers import trained_speaker
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.windows import CONTEXT, Windows, cut_window, stack_windows
from synth.engine.codec.config import CodecConfig

_MOST_CLIPS = 600
_LARGEST_SHIFT = 12  # of all pitches of a clip, as numbers


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
        self.network = TaughtDecoder(config, self._books).to(device)
        clips = [
            aligned_clip(utterance, trained_speaker(utterance.teacher, index))
            for index, utterance in enumerate(speech[:_MOST_CLIPS])
        ]
        self._clips = [clip for clip in clips if clip.num_frames >= recipe.frames]
        self._codes: dict[int, Tensor] = {}
        rows = torch.from_numpy(np.concatenate([clip.rows for clip in self._clips]))
        self._mean, self._size = rows.mean(0).to(device), rows.std(0).to(device)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        rng = np.random.default_rng((self.recipe.seed, step))
        drawn = [self._draw(rng) for _ in range(self.recipe.batch)]
        windows = stack_windows(drawn, self.device)
        read = self.network.read_rows(windows.codes)[:, CONTEXT * ROWS_PER_FRAME :]
        rows = (windows.rows[:, 1:] - self._mean) / self._size
        wanted = latent_targets(rows, windows.pitches, windows.phase, ROWS_PER_FRAME)
        off = (read - wanted[:, ROWS_PER_FRAME:]).square()
        phase = off[..., :NUM_PHASE_TARGETS].mean()
        return {
            "loss": off.mean() + phase,
            "phase": phase,
            "pitch": off[..., NUM_PHASE_TARGETS].mean(),
            "features": off[..., NUM_PHASE_TARGETS + 1 :].mean(),
        }

    def _draw(self, rng: np.random.Generator) -> Windows:
        frames, index = self.recipe.frames, int(rng.integers(len(self._clips)))
        shift = int(rng.integers(-_LARGEST_SHIFT, _LARGEST_SHIFT + 1))
        start = int(rng.integers(NUM_PHASES))
        clip = self._clips[index]
        clip = replace(clip, pitches=np.clip(clip.pitches + shift, LOWEST, HIGHEST))
        codes = self._codes_of(index).clone()
        codes[PITCH_BOOK] = torch.from_numpy(clip.pitches[1:])
        codes[PHASE_BOOK] = torch.from_numpy(phase_numbers(clip.pitches, start))
        first = int(rng.integers(0, clip.num_frames - frames + 1))
        return cut_window(codes, torch.from_numpy(clip.rows), clip.pitches, start, first, frames)

    def _codes_of(self, index: int) -> Tensor:
        """Return a clip's codes; what its pitch does not change is worked out once."""
        if index not in self._codes:
            clip: Clip = self._clips[index]
            self._codes[index] = encode_clip(self._space, self._books, clip, 0)
        return self._codes[index]
