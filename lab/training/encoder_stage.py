"""Teach the codec's encoder to hear: a waveform in, the latents that its features define out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.acoustics import ROW_SAMPLES, ROWS_PER_FRAME
from lab.training.codebooks import PARTS_FIRST, STATE_DIM, VOICES_FIRST, Book, LatentSpace
from lab.training.codec_network import build_encoder, codec_config, set_books
from lab.training.shards import Clip
from lab.training.synthesis import upsample
from synth.engine.codec.codec_file import folded_weights, open_codec, stored_shapes
from synth.engine.codec.halves import CodecEncoder

_Wave = npt.NDArray[np.float32]
_SHARPNESS = 14.0  # of the choice between states, on cosines
_FRAME_SAMPLES = ROW_SAMPLES * ROWS_PER_FRAME  # at 22.05 kHz
_LOUDEST, _QUIETEST = 1.5, 0.3  # bounds of the random gain


@dataclass(frozen=True, slots=True)
class EncoderRecipe:
    """Hold what is tuned: whole clips a step, and layers as `codec_config` takes them.

    `frozen_blocks` leaves that many of the first blocks as they were loaded, and keeps what they
    give for each clip: they cost most, and an encoder that did not begin at random has them right.
    """

    batch: int = 8
    layers: int = 4
    frozen_blocks: int = 0
    seed: int = 0


class _Batch(NamedTuple):
    """Hold what clips of one batch should give: latents [B, T, D], the rest [B, T]."""

    latents: Tensor
    states: Tensor
    voices: Tensor
    is_speech: Tensor


class EncoderStage:
    """Draw clips of plain speech and compare the encoder's latents with the defined ones."""

    name = "encoder"

    def __init__(
        self,
        clips: Sequence[Clip],
        space: LatentSpace,
        books: list[Book],
        recipe: EncoderRecipe,
        device: torch.device,
        start_from: Path | None = None,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, device
        config = codec_config(
            num_books=len(books), book_size=len(books[0].rows), layers=recipe.layers
        )
        self.network = build_encoder(config)
        set_books(self.network, books)
        self._clips = sorted(clips, key=lambda clip: clip.num_frames)
        self._latents = [space.latents(clip) for clip in self._clips]
        self._states = [space.codes_of(clip.states) for clip in self._clips]
        self._set_scale()
        if start_from is not None:
            copy_encoder(self.network, start_from)
        self._low = self.network.encoder.block[: recipe.frozen_blocks].requires_grad_(False)
        self._high = self.network.encoder.block[recipe.frozen_blocks :]
        self._kept: dict[int, Tensor] = {}
        self._rows = F.normalize(space.directions, dim=1).to(device)
        self.network.to(device)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        rng = np.random.default_rng((self.recipe.seed, step))
        first = int(rng.integers(max(1, len(self._clips) - self.recipe.batch + 1)))
        chosen = range(first, min(first + self.recipe.batch, len(self._clips)))
        wanted = self._make_batch(list(chosen))
        quantizer = self.network.quantizer
        hidden = self._high(self._low_output(list(chosen), rng))
        heard = quantizer.pre_module(quantizer.downsample(hidden)).transpose(1, 2)
        return self._compare(heard[wanted.is_speech], wanted)

    def _compare(self, heard: Tensor, wanted: _Batch) -> Mapping[str, Tensor]:
        """Return the losses of latents heard, [frames, D]."""
        latents, states = wanted.latents[wanted.is_speech], wanted.states[wanted.is_speech]
        directions = F.normalize(heard[:, :STATE_DIM], dim=1)
        logits = _SHARPNESS * directions @ self._rows.t()
        off = (heard - latents).square()
        lost = off[:, PARTS_FIRST:].sum(1).mean() / latents[:, PARTS_FIRST:].square().sum(1).mean()
        state = F.cross_entropy(logits, states)
        voice = F.cross_entropy(heard[:, VOICES_FIRST:PARTS_FIRST], wanted.voices[wanted.is_speech])
        total = 4 * lost + state + 0.3 * voice + 0.2 * off[:, :PARTS_FIRST].mean()
        right = (logits.argmax(1) == states).float().mean()
        return {"loss": total, "lost": lost, "state": state, "right": right, "voice": voice}

    def _make_batch(self, chosen: list[int]) -> _Batch:
        longest = max(self._clips[index].num_frames for index in chosen)
        latents = torch.zeros(len(chosen), longest, self._latents[0].shape[1])
        states = torch.zeros(len(chosen), longest, dtype=torch.int64)
        voices, is_speech = torch.zeros_like(states), torch.zeros_like(states, dtype=torch.bool)
        for row, index in enumerate(chosen):
            count = self._clips[index].num_frames
            latents[row, :count], states[row, :count] = self._latents[index], self._states[index]
            voices[row], is_speech[row, :count] = self._clips[index].voice, True
        batch = _Batch(latents, states, voices, is_speech)
        return _Batch(*(part.to(self.device) for part in batch))

    def _low_output(self, chosen: list[int], rng: np.random.Generator) -> Tensor:
        """Return what the frozen blocks make of clips, [B, channels, N]; else the waves."""
        rows = []
        for index in chosen:
            row = self._kept.get(index)
            if row is None:
                row = self._lowest(self._clips[index], rng)
                if self.recipe.frozen_blocks:
                    self._kept[index] = row.half()
            rows.append(row.float())
        longest = max(row.shape[-1] for row in rows)
        return torch.stack([F.pad(row, (0, longest - row.shape[-1])) for row in rows])

    def _lowest(self, clip: Clip, rng: np.random.Generator) -> Tensor:
        wave = np.zeros(clip.num_frames * _FRAME_SAMPLES, np.float32)
        wave[: len(clip.wave)] = clip.wave[: len(wave)] / 32768.0
        wave = _augment(wave, rng)
        samples = upsample(torch.from_numpy(wave)[None].to(self.device))[:, None]
        if not self.recipe.frozen_blocks:
            return samples[0]
        with torch.no_grad():
            low: Tensor = self._low(samples)
        return low[0]

    @torch.no_grad()
    def _set_scale(self) -> None:
        """Begin with outputs of the latents' own sizes, which the last norm's weights set."""
        sample = torch.cat(self._latents[::7])
        size = sample.square().mean(0).sqrt().clamp(min=0.02)
        self.network.quantizer.pre_module.norm.weight.copy_(size)


def _augment(wave: _Wave, rng: np.random.Generator) -> _Wave:
    """Change the level and add noise, as clips from elsewhere have them."""
    gain = np.exp(rng.uniform(np.log(_QUIETEST), np.log(_LOUDEST))) if rng.random() < 0.6 else 1.0
    noise = 10 ** rng.uniform(-4.0, -2.5) if rng.random() < 0.5 else 1e-5
    return np.asarray(wave * gain + rng.standard_normal(len(wave)) * noise, np.float32)


@torch.no_grad()
def copy_encoder(encoder: CodecEncoder, folder: Path) -> None:
    """Take over another checkpoint's encoder where the shapes are the same.

    Codebooks and the last norm stay: they belong to the latents of this run.
    """
    opened = open_codec(folder)
    with torch.device("meta"):
        other = CodecEncoder(opened.config)
    stored = {name: opened.tensors[name] for name in stored_shapes(other)}
    weights = dict(folded_weights(other, stored))
    for name, weight in encoder.named_parameters():
        taken = weights.get(name)
        stays = ".quantizers." in name or name == "quantizer.pre_module.norm.weight"
        if taken is not None and taken.shape == weight.shape and not stays:
            weight.copy_(taken)
