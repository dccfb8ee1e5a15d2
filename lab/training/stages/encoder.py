"""Teach the codec's encoder to hear: a waveform in, the latents that define its sound out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.codec_network import build_encoder, set_books
from lab.training.flite import Utterance
from lab.training.latents import (
    PARTS_FIRST,
    PHASE_FIRST,
    PHASE_SCALE,
    PITCH_FIRST,
    PITCH_SCALE,
    STATE_DIM,
    pitch_ratio,
)
from lab.training.sound.clips import plain_clip
from lab.training.sound.pitch import NUM_PHASES, SIXTEENTHS, phases_at_ends
from lab.training.sound.synthesis import synthesise
from lab.training.sound.timing import FRAME_SAMPLES, FRAME_SECONDS, ROWS_PER_FRAME
from lab.training.speakers import OF_EACH, SHORTEST, trained_speaker
from lab.training.stages.quantizer import Quantizer
from synth.engine.codec.config import CodecConfig

_SHARPNESS = 14.0  # of the choice between states, on cosines
_LOUDEST, _QUIETEST = 1.5, 0.3  # bounds of the random gain
_GAIN_SHARE = 0.6
_NOISE_POWERS = (-4.2, -2.6)  # bounds of the noise that is added, as powers of ten
_LEAD_IN = 3  # frames at whose beginning too little has been heard
_SCALE_BATCHES = 6


@dataclass(frozen=True, slots=True)
class EncoderRecipe:
    """Hold what is tuned: windows a step and frames of each.

    `teacher_share` is the share of windows that are a teacher's own waveform, where it was kept.
    `frozen_blocks` leaves that many of the first blocks as they were loaded: they cost most, and
    an encoder that did not begin at random has them right.
    """

    batch: int = 6
    frames: int = 30
    teacher_share: float = 0.4
    frozen_blocks: int = 0
    seed: int = 0


class _Window(NamedTuple):
    """Hold T frames of plain speech; `wave` [640 T] is empty where it is to be synthesised."""

    latents: Tensor  # [T, LATENT_DIM]
    states: Tensor  # [T]
    rows: Tensor  # [4 T + 1, features]
    pitches: Tensor  # [T + 1]
    phase: Tensor
    wave: Tensor


class _Batch(NamedTuple):
    """Hold waves [B, N] and what is to be heard; `is_teacher` [B] where the phase is not known."""

    waves: Tensor
    latents: Tensor
    states: Tensor
    is_teacher: Tensor


class EncoderStage:
    """Draw windows of plain speech and compare the encoder's latents with the defined ones."""

    name = "encoder"

    def __init__(
        self,
        speech: Sequence[Utterance],
        quantizer: Quantizer,
        config: CodecConfig,
        recipe: EncoderRecipe,
        device: torch.device,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, device
        self._space, books = quantizer
        self.network = build_encoder(config)
        set_books(self.network, books)
        shortest = (recipe.frames + 1) * FRAME_SECONDS / SHORTEST
        self._speech = [each for each in speech if each.seconds > shortest]
        self._rows = F.normalize(self._space.directions, dim=1).to(device)
        self._set_scale()
        self.network.to(device)
        self._low = self.network.encoder.block[: recipe.frozen_blocks].requires_grad_(False)
        self._high = self.network.encoder.block[recipe.frozen_blocks :]

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        batch = self._batch(np.random.default_rng((self.recipe.seed, step)))
        quantizer = self.network.quantizer
        hidden = self._high(self._low(batch.waves[:, None]))
        heard = quantizer.pre_module(quantizer.downsample(hidden)).transpose(1, 2)
        return self._compare(
            heard[:, _LEAD_IN:],
            batch.latents[:, _LEAD_IN:],
            batch.states[:, _LEAD_IN:],
            batch.is_teacher,
        )

    def _compare(
        self, heard: Tensor, latents: Tensor, states: Tensor, is_teacher: Tensor
    ) -> Mapping[str, Tensor]:
        """Return the losses of latents heard, [B, T, LATENT_DIM]."""
        off = (heard - latents).square()
        logits = _SHARPNESS * F.normalize(heard[..., :STATE_DIM], dim=-1) @ self._rows.t()
        state = F.cross_entropy(logits.flatten(0, 1), states.flatten())
        lost = off[..., PARTS_FIRST:].sum(-1).mean()
        lost = lost / latents[..., PARTS_FIRST:].square().sum(-1).mean()
        pitch = off[..., PITCH_FIRST : PITCH_FIRST + 2].sum(-1).mean() / PITCH_SCALE**2
        phases = off[..., PHASE_FIRST : PHASE_FIRST + 2].sum(-1).mean(1) / PHASE_SCALE**2
        is_made = (~is_teacher).float()
        phase = (phases * is_made).sum() / is_made.sum().clamp(min=1)
        total = 4 * lost + state + 8 * pitch + 0.6 * phase
        total = total + 0.1 * off[..., :STATE_DIM].mean()
        total = total + 0.02 * off[..., PHASE_FIRST + 2 : PARTS_FIRST].mean()
        with torch.no_grad():
            right = (logits.argmax(-1) == states).float().mean()
            angles = [
                torch.atan2(each[..., PITCH_FIRST + 1], each[..., PITCH_FIRST])
                for each in (heard, latents)
            ]
            pitch_off = pitch_ratio(angles[0] - angles[1]).abs().median()
        return {
            "loss": total,
            "lost": lost,
            "state": state,
            "right": right,
            "pitch": pitch,
            "pitch_off": pitch_off,
            "phase": phase,
        }

    def _batch(self, rng: np.random.Generator) -> _Batch:
        windows = [self._draw(rng) for _ in range(self.recipe.batch)]
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        size = (len(windows), self.recipe.frames * FRAME_SAMPLES)
        white, noise = (torch.randn(size, generator=generator) for _ in range(2))
        rows, pitches, phase = (
            torch.stack([getattr(window, name) for window in windows])
            for name in ("rows", "pitches", "phase")
        )
        with torch.no_grad():
            waves = torch.add(*synthesise(rows, pitches, phase, white))
        for index, window in enumerate(windows):
            if len(window.wave):
                waves[index] = window.wave
        gains = np.exp(rng.uniform(np.log(_QUIETEST), np.log(_LOUDEST), len(windows)))
        gains = np.where(rng.random(len(windows)) < _GAIN_SHARE, gains, 1.0)
        levels = 10 ** rng.uniform(*_NOISE_POWERS, (len(windows), 1))
        waves = waves * torch.from_numpy(gains).float()[:, None]
        waves = waves + torch.from_numpy(levels).float() * noise
        return _Batch(
            waves=waves.to(self.device),
            latents=torch.stack([window.latents for window in windows]).to(self.device),
            states=torch.stack([window.states for window in windows]).to(self.device),
            is_teacher=torch.tensor([len(window.wave) > 0 for window in windows]).to(self.device),
        )

    def _draw(self, rng: np.random.Generator) -> _Window:
        frames = self.recipe.frames
        utterance = self._speech[int(rng.integers(len(self._speech)))]
        speaker = trained_speaker(utterance.teacher, int(rng.integers(OF_EACH)))
        is_teacher = len(utterance.wave) > 0 and rng.random() < self.recipe.teacher_share
        if is_teacher:
            speaker = replace(speaker, warp=1.0, pitch=1.0, melody=1.0, rate=1.0)
        clip = plain_clip(utterance, speaker)
        first = int(rng.integers(0, clip.num_frames - frames + 1))
        start = int(rng.integers(NUM_PHASES))
        own = slice(first, first + frames)
        wave = np.zeros(frames * FRAME_SAMPLES if is_teacher else 0, np.float32)
        if is_teacher:
            said = utterance.wave[first * FRAME_SAMPLES :][: len(wave)]
            wave[: len(said)] = said / 32768.0
        rows = clip.rows[first * ROWS_PER_FRAME : (first + frames) * ROWS_PER_FRAME]
        phase = phases_at_ends(clip.pitches, start)[first] / SIXTEENTHS
        return _Window(
            latents=self._space.latents(clip, start)[own],
            states=self._space.codes_of(clip.states[own]),
            rows=torch.from_numpy(np.concatenate([rows[:1], rows])),
            pitches=torch.from_numpy(clip.pitches[first : first + frames + 1]).float(),
            phase=torch.tensor(float(phase)),
            wave=torch.from_numpy(wave),
        )

    @torch.no_grad()
    def _set_scale(self) -> None:
        """Begin with outputs of the latents' own sizes, which the last norm's weights set."""
        rng = np.random.default_rng(self.recipe.seed)
        windows = [self._draw(rng) for _ in range(_SCALE_BATCHES * self.recipe.batch)]
        latents = torch.cat([window.latents for window in windows])
        size = latents.square().mean(0).sqrt().clamp(min=0.02)
        self.network.quantizer.pre_module.norm.weight.copy_(size)
