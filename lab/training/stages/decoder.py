"""Teach the codec's decoder to sound: codes in, the waveform that they describe out.

First, as the stage `phases`, its latents are taught to tell phases and features, and to be a
waveform but for one linear layer, the head. Then, as the stage `decoder`, the layers of the
waveform learn to take the head's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.training.codebooks import NUM_EXACT_BOOKS, decode_latents, encode_clip
from lab.training.codec_network import TaughtDecoder
from lab.training.flite import Utterance
from lab.training.lm_network import multiplies_bfloat16
from lab.training.sound.clips import aligned_clip, fewest_frames
from lab.training.sound.pitch import NUM_PHASES
from lab.training.sound.spectral_loss import SpectralLoss
from lab.training.sound.synthesis import synthesise
from lab.training.sound.targets import NUM_PHASE_TARGETS, latent_targets
from lab.training.sound.timing import FRAME_SAMPLES
from lab.training.speakers import trained_speaker
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.windows import Windows, cut_window, stack_windows
from synth.engine.codec.config import CodecConfig

_SPEAKERS = 100  # of each teacher, whom the decoder hears
_CONTEXT = 3  # frames before those that count, which the transformer sees
_LEAD_IN = 2  # and of them those that the layers of the waveform see
_FINER_FIRST = NUM_EXACT_BOOKS + 2  # the books that tell the finer parts of a sound
_FRAME_NOISE_SHARE, _FRAME_NOISE = 0.1, 0.1
_SCALE_CLIPS = 200


@dataclass(frozen=True, slots=True)
class DecoderRecipe:
    """Hold what is tuned: windows a step, frames of each, and what the parts of the loss weigh.

    `detail_noise` is the share of windows whose finer codes are mixed up, as a language model that
    cannot predict them does. `reading_weight` is of what is read of the latents; it falls to zero.
    """

    batch: int = 10
    frames: int = 9
    detail_noise: float = 0.15
    magnitude_weight: float = 0.5
    wave_weight: float = 1.0
    reading_weight: float = 2.0
    seed: int = 0


class DecoderStage:
    """Draw windows of coded clips and compare the waveform of their latents with the wanted one.

    Args:
        through_head: teach the latents, by the head; else the whole decoder.
    """

    def __init__(
        self,
        speech: Sequence[Utterance],
        quantizer: Quantizer,
        config: CodecConfig,
        recipe: DecoderRecipe,
        device: torch.device,
        *,
        through_head: bool,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.name = "phases" if through_head else "decoder"
        self.recipe, self.device, self._through_head = recipe, device, through_head
        self._space, self._books = quantizer
        self.network = TaughtDecoder(config, self._books).to(device)
        self._loss = SpectralLoss().to(device)
        self._uses_bfloat16 = multiplies_bfloat16(device)
        self._speech = [each for each in speech if fewest_frames(each) >= recipe.frames]
        clips = [
            aligned_clip(each, trained_speaker(each.teacher, index))
            for index, each in enumerate(self._speech[:_SCALE_CLIPS])
        ]
        rows = torch.from_numpy(np.concatenate([clip.rows for clip in clips]))
        self._mean, self._size = rows.mean(0).to(device), rows.std(0).to(device)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        recipe, positions = self.recipe, self.network.positions
        rng = np.random.default_rng((recipe.seed, step))
        windows = stack_windows([self._draw(rng) for _ in range(recipe.batch)], self.device)
        harmonic, noise = self._wanted(windows, rng)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._uses_bfloat16):
            latents = self.network.decoder.quantizer(windows.codes)
            seen = latents[..., (_CONTEXT - _LEAD_IN) * positions :]
            wave = self.network.listen(seen) if self._through_head else self.network.speak(seen)
        parts = self._loss(wave.float()[:, _LEAD_IN * FRAME_SAMPLES :], harmonic, noise)
        off = self._read_off(latents[..., _CONTEXT * positions :], windows)
        phase = off[..., :NUM_PHASE_TARGETS].mean()
        total = parts["mel"] + recipe.magnitude_weight * parts["magnitude"]
        total = total + recipe.wave_weight * parts["wave"]
        total = total + recipe.reading_weight * (1 - progress) * (off.mean() + phase)
        features = off[..., NUM_PHASE_TARGETS + 1 :].mean()
        return {"loss": total, **parts, "phase": phase, "features": features}

    def _read_off(self, latents: Tensor, windows: Windows) -> Tensor:
        """Return how far off is what is read of the latents, squared, of the frames that count."""
        positions = self.network.positions
        rows = (windows.rows[:, 1:] - self._mean) / self._size
        wanted = latent_targets(rows, windows.pitches, windows.phase, positions)
        return (self.network.read(latents) - wanted[:, positions:]).square()

    @torch.no_grad()
    def _wanted(self, windows: Windows, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return the harmonic and the noise part of the frames that count."""
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        size = (len(windows.codes), (self.recipe.frames + 1) * FRAME_SAMPLES)
        noise = torch.randn(size, generator=generator).to(self.device)
        parts = synthesise(windows.rows, windows.pitches, windows.phase, noise)
        harmonic, rest = (part[:, FRAME_SAMPLES:] for part in parts)
        return harmonic, rest

    def _draw(self, rng: np.random.Generator) -> Windows:
        recipe = self.recipe
        utterance = self._speech[int(rng.integers(len(self._speech)))]
        speaker = trained_speaker(utterance.teacher, int(rng.integers(_SPEAKERS)))
        clip = aligned_clip(utterance, speaker)
        start = int(rng.integers(NUM_PHASES))
        codes = self._spoil(encode_clip(self._space, self._books, clip, start), rng)
        first = int(rng.integers(0, clip.num_frames - recipe.frames + 1))
        return cut_window(
            codes,
            self._space.rows_of(decode_latents(self._books, codes)),
            clip.pitches,
            start,
            first,
            frames=recipe.frames,
            context=_CONTEXT,
        )

    def _spoil(self, codes: Tensor, rng: np.random.Generator) -> Tensor:
        """Give some clips codes [K, T] of the sound that no teacher says, for a model may."""
        count = codes.shape[1]
        if rng.random() < self.recipe.detail_noise:
            other = torch.from_numpy(rng.integers(count, size=count))
            codes[_FINER_FIRST:] = codes[_FINER_FIRST:, other]
        if rng.random() < _FRAME_NOISE_SHARE:
            hit = torch.from_numpy(rng.random(count) < _FRAME_NOISE)
            other = torch.from_numpy(rng.integers(count, size=count))
            sound = codes[NUM_EXACT_BOOKS:]
            codes[NUM_EXACT_BOOKS:] = torch.where(hit, sound[:, other], sound)
        return codes
