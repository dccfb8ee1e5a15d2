"""Teach both transformers to speak: a reference, a text, and the codes that say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.codebooks import PHASE_BOOK
from lab.training.flite import Utterance
from lab.training.lm_network import (
    LMSizes,
    TaughtLM,
    build_lm,
    hidden_states,
    multiplies_bfloat16,
    prepare,
    residual_logits,
)
from lab.training.sound.pitch import NUM_PHASES
from lab.training.stages.hearing import Heard
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.sequences import FRAME_COLUMNS, IGNORED, Batch, Sequences, Spoken

_LETTERS_SEEN = 1.6  # letters to each side that a taught head may look at
# Phases are hard, the last books mere detail.
_BOOK_WEIGHTS = (1.2, 3.0, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.25)
_RESIDUAL_SCALE = 1 / 2.5
_ATTENTION_LEARNT = 0.7  # of the budget, after which it weighs less
_ATTENTION_LATER = 0.3
_HELD_OUT_BATCHES = 4


@dataclass(frozen=True, slots=True)
class LMRecipe:
    """Hold what is tuned: positions a step, shares of spoilt input, the curriculum's end.

    `curriculum` is the share of the budget after which sentences have their full length;
    `fast_frames` is how many frames of a step teach the residual codes; `heard_clips` how many
    clips of prompts the encoder hears.
    """

    positions: int = 4500
    fast_frames: int = 400
    heard_clips: int = 3000
    frame_noise: float = 0.08
    detail_noise: float = 0.25
    phase_noise: float = 0.03
    attention_weight: float = 0.5
    reading_weight: float = 0.5
    curriculum: float = 0.1
    seed: int = 0


class LMStage:
    """Draw batches of what speakers say and compute the losses of the language model."""

    name = "lm"

    def __init__(
        self,
        speech: Sequence[Utterance],
        heard: Sequence[Heard],
        quantizer: Quantizer,
        sizes: LMSizes,
        recipe: LMRecipe,
        device: torch.device,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, device
        self.network = TaughtLM(build_lm(sizes)).to(device)
        prepare(self.network.lm, device)
        self._sequences = Sequences(speech, heard, quantizer, sizes, recipe.positions)
        self._uses_bfloat16 = multiplies_bfloat16(device)
        self._book_weights = torch.tensor(_BOOK_WEIGHTS[: sizes.num_codebooks - 1], device=device)

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        recipe = self.recipe
        rng = np.random.default_rng((recipe.seed, step))
        grown = min(1.0, progress / max(recipe.curriculum, 1e-6))
        batch = self._sequences.draw(rng, grown).to(self.device)
        losses = self._losses(batch, self._spoil(batch.columns, rng), rng)
        attention = recipe.attention_weight
        attention *= 1.0 if progress < _ATTENTION_LEARNT else _ATTENTION_LATER
        total = losses["semantic"] + losses["residual"] + attention * losses["attention"]
        total = total + recipe.reading_weight * losses["last_phase"]
        return {"loss": total, **losses}

    @torch.no_grad()
    def held_out(self) -> dict[str, float]:
        """Return the losses on texts that are never trained on, inputs unspoilt."""
        rng = np.random.default_rng(1)
        sums: dict[str, float] = {}
        for _ in range(_HELD_OUT_BATCHES):
            batch = self._sequences.draw(rng, 1.0, held_out=True).to(self.device)
            for name, value in self._losses(batch, batch.columns, rng).items():
                sums[name] = sums.get(name, 0.0) + float(value) / _HELD_OUT_BATCHES
        return sums

    def _losses(self, batch: Batch, inputs: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        kind = self.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=self._uses_bfloat16):
            hidden, maps = hidden_states(self.network.lm, inputs)
            losses = self._token_losses(hidden.float(), batch.columns, batch.targets, rng)
        return {**losses, "attention": self._attention_loss(maps, batch.spoken)}

    def _spoil(self, columns: Tensor, rng: np.random.Generator) -> Tensor:
        """Replace some frames, and the finer codes or the phase of others, by those of frames
        elsewhere.

        Without it the model trusts its own last frames more than the text.
        """
        spoilt = columns.clone()
        frames = self.network.lm.slow.is_semantic(columns[..., 0]).nonzero()
        everything, finer, phase = FRAME_COLUMNS
        shares = (
            (self.recipe.frame_noise, everything),
            (self.recipe.detail_noise, finer),
            (self.recipe.phase_noise, phase),
        )
        for share, part in shares:
            hit = frames[torch.from_numpy(rng.random(len(frames)) < share).to(frames.device)]
            source = torch.from_numpy(rng.integers(len(frames), size=len(hit))).to(frames.device)
            taken = frames[source]
            spoilt[hit[:, 0], hit[:, 1], part] = columns[taken[:, 0], taken[:, 1], part]
        return spoilt

    def _token_losses(
        self, hidden: Tensor, columns: Tensor, targets: Tensor, rng: np.random.Generator
    ) -> dict[str, Tensor]:
        learnt = targets != IGNORED
        logits = F.linear(hidden[learnt], self.network.lm.slow.embeddings.weight).float()
        wanted = targets[learnt]
        places = (learnt & self.network.lm.slow.is_semantic(targets.clamp(min=0))).nonzero()
        chosen = rng.permutation(len(places))[: self.recipe.fast_frames]
        places = places[torch.from_numpy(chosen).to(places.device)]
        before = hidden[places[:, 0], places[:, 1]]
        codes = columns[places[:, 0], places[:, 1] + 1, 1:]
        residual = residual_logits(self.network.lm, before, codes).float()
        each = torch.stack(
            [
                F.cross_entropy(residual[:, book], codes[:, book + 1])
                for book in range(residual.shape[1])
            ]
        )
        return {
            "semantic": F.cross_entropy(logits, wanted),
            "residual": (each * self._book_weights).sum() * _RESIDUAL_SCALE,
            "right": (logits.argmax(-1) == wanted).float().mean(),
            "pitch": each[0].detach(),
            "phase": each[1].detach(),
            "last_phase": self._last_phase_loss(before, columns[places[:, 0], places[:, 1]]),
        }

    def _last_phase_loss(self, hidden: Tensor, columns: Tensor) -> Tensor:
        """Return how badly the last frame's phase is read off states [n, width]."""
        is_frame = self.network.lm.slow.is_semantic(columns[:, 0])
        phases = columns[is_frame, 1 + PHASE_BOOK].clamp(max=NUM_PHASES - 1)
        return F.cross_entropy(self.network.phase_reader(hidden[is_frame]), phases)

    def _attention_loss(self, maps: list[Tensor], spoken: Sequence[Spoken]) -> Tensor:
        """Return minus the log of how much the taught heads look at the letter being spoken."""
        rows, places, letters = [], [], []
        for part in spoken:
            count = len(part.letters)
            rows.append(torch.full((count,), part.row))
            places.append(torch.arange(count) + part.codes_first - 1)
            letters.append(part.letters + part.text_first)
        row, place = torch.cat(rows).to(self.device), torch.cat(places).to(self.device)
        letter = torch.cat(letters).to(self.device)
        keys = torch.arange(maps[0].shape[2], device=self.device)
        near = (keys - letter[:, None]).abs() < _LETTERS_SEEN
        looks = [
            -log_attention[row, place].masked_fill(~near, -1e9).logsumexp(-1).mean()
            for log_attention in maps
        ]
        return torch.stack(looks).mean()
