"""Teach both transformers to speak: a reference, a text, and the codes that say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.codes_stage import CodedClips
from lab.training.lm_network import LMSizes, build_lm, hidden_states, prepare, residual_logits
from lab.training.tokens import make_tokenizer
from synth.engine.prompt import PromptBuilder, Tokenizer, VoicePrompt

HELD_OUT_SHARE, MOST_HELD_OUT = 0.05, 200  # the last clips, for the loss on unseen texts
_IGNORED = -100
_SHORTEST, _LONGEST = 14, 130  # frames of a clip at the start and the end of the curriculum
# The first residual book tells the voice, which is learnt late unless it weighs much.
_RESIDUAL_WEIGHT, _RESIDUAL_WEIGHT_LATER = 3.0, 1.2  # against one of the semantic code
_VOICE_LEARNT = 0.45  # of the budget
_NO_VOICE_SHARE = 0.03
_PLAIN_REFERENCE_SHARE = 0.5
_LETTERS_SEEN = 1.6  # letters to each side that a taught head may look at


@dataclass(frozen=True, slots=True)
class LMRecipe:
    """Hold what is tuned: sequences a step, shares of spoilt input, the curriculum's end.

    `curriculum` is the share of the budget after which clips have their full length.
    """

    batch: int = 12
    frame_noise: float = 0.1
    detail_noise: float = 0.25
    attention_weight: float = 0.5
    fast_frames: int = 192
    curriculum: float = 0.2
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Spoken:
    """Say where a text and its codes lie in one sequence of a batch."""

    row: int
    text_first: int
    codes_first: int
    letters: Tensor


class LMStage:
    """Draw batches of coded clips and compute the losses of the language model."""

    name = "lm"

    def __init__(
        self, clips: CodedClips, sizes: LMSizes, recipe: LMRecipe, device: torch.device
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.clips, self.recipe, self.device = clips, recipe, device
        self.network = build_lm(sizes)
        prepare(self.network, device)
        tokenizer = Tokenizer(make_tokenizer(sizes.codes))
        self._builder = PromptBuilder(
            tokenizer, num_codebooks=sizes.num_codebooks, codebook_size=sizes.codes
        )
        self._end, self._before_text = (len(tokenizer.encode(part)) for part in (_END, _USER))
        lengths = (clips.offsets[1:] - clips.offsets[:-1]).numpy()
        count = len(clips.texts)
        learnt = count - min(MOST_HELD_OUT, round(HELD_OUT_SHARE * count))
        self._pools, self._held_out = _pools(clips, lengths, learnt), list(range(learnt, count))
        weights = 0.6 ** torch.arange(sizes.num_codebooks - 1)  # the last books are mere detail
        self._book_weights = weights / weights.sum()

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the losses of the batch that belongs to this step."""
        recipe = self.recipe
        rng = np.random.default_rng((recipe.seed, step))
        grown = min(1.0, progress / max(recipe.curriculum, 1e-6))
        longest = round(_SHORTEST + (_LONGEST - _SHORTEST) * grown)
        columns, targets, spoken = self._batch(rng, longest)
        inputs = self._spoil(columns, rng)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            hidden, maps = hidden_states(self.network, inputs)
            losses = self._token_losses(hidden, columns, targets, rng)
        attention = self._attention_loss(maps, spoken)
        fading = 1.0 if progress < 0.8 else 0.2
        weight = _RESIDUAL_WEIGHT if progress < _VOICE_LEARNT else _RESIDUAL_WEIGHT_LATER
        total = losses["semantic"] + weight * losses["residual"]
        total = total + recipe.attention_weight * fading * attention
        return {"loss": total, **losses, "attention": attention}

    @torch.no_grad()
    def held_out(self) -> dict[str, float]:
        """Return the losses on texts that are never trained on, inputs unspoilt."""
        rng = np.random.default_rng(1)
        sums: dict[str, float] = {}
        batches = 8
        for _ in range(batches):
            columns, targets, _ = self._batch(rng, _LONGEST, self._held_out)
            hidden, _ = hidden_states(self.network, columns)
            for name, value in self._token_losses(hidden, columns, targets, rng).items():
                sums[name] = sums.get(name, 0.0) + float(value) / batches
        return sums

    def _batch(
        self, rng: np.random.Generator, longest: int, held_out: list[int] | None = None
    ) -> tuple[Tensor, Tensor, list[_Spoken]]:
        """Return columns [B, S, 1 + K], targets [B, S], and where texts and codes lie."""
        rows = [self._sequence(rng, longest, row, held_out) for row in range(self.recipe.batch)]
        width = max(row.shape[1] for row, _ in rows)
        pad = self._builder.tokenizer.id_of("<|pad|>") or 0
        columns = torch.zeros(len(rows), width, rows[0][0].shape[0], dtype=torch.int64)
        columns[..., 0] = pad
        targets = torch.full((len(rows), width), _IGNORED)
        spoken = []
        for index, (row, parts) in enumerate(rows):
            columns[index, : row.shape[1]] = row.t()
            for part in parts:
                first, count = part.codes_first, len(part.letters)
                # The position before a frame predicts it; the last frame predicts the end.
                targets[index, first - 1 : first + count] = row[0, first : first + count + 1]
            spoken += parts
        return columns.to(self.device), targets.to(self.device), spoken

    def _sequence(
        self, rng: np.random.Generator, longest: int, row: int, held_out: list[int] | None
    ) -> tuple[Tensor, list[_Spoken]]:
        """Return one sequence [1 + K, S] and its parts that are learnt."""
        voice = int(rng.integers(len(self._pools)))
        said = self._draw(rng, voice, aligned=True, longest=longest)
        if held_out is not None:
            said = int(rng.choice(held_out))
            voice = int(self.clips.voices[said])
        clips, parts = self.clips, []
        codes = clips.codes_of(said)
        if voice == 0 and rng.random() < _NO_VOICE_SHARE:
            system = self._builder.system()
        else:
            aligned = bool(rng.random() >= _PLAIN_REFERENCE_SHARE)
            reference = self._draw(rng, voice, aligned=aligned, longest=longest)
            text, spoken = clips.texts[reference], clips.codes_of(reference)
            system = self._builder.system([VoicePrompt(text, spoken)])
            codes_first = system.shape[1] - self._end - spoken.shape[1]
            if aligned and held_out is None:
                text_first = codes_first - 1 - len(text)
                parts.append(_Spoken(row, text_first, codes_first, clips.letters_of(reference)))
        turn = self._builder.turn(clips.texts[said])
        whole = torch.cat([system, turn, self._builder.answer(codes)], dim=1)
        text_first = system.shape[1] + self._before_text
        codes_first = system.shape[1] + turn.shape[1]
        parts.append(_Spoken(row, text_first, codes_first, clips.letters_of(said)))
        return whole, parts

    def _draw(self, rng: np.random.Generator, voice: int, *, aligned: bool, longest: int) -> int:
        pool, lengths = self._pools[voice][aligned]
        usable = max(20, int(np.searchsorted(lengths, longest, side="right")))
        return int(pool[rng.integers(min(usable, len(pool)))])

    def _spoil(self, columns: Tensor, rng: np.random.Generator) -> Tensor:
        """Replace some frames, and the finer codes of others, by those of frames elsewhere.

        Without it the model trusts its own last frames more than the text.
        """
        spoilt = columns.clone()
        frames = self.network.slow.is_semantic(columns[..., 0]).nonzero()
        shares = (
            (self.recipe.frame_noise, 0),
            (self.recipe.detail_noise, 3),  # the token, its code and the first residual stay
        )
        for share, first in shares:
            hit = frames[torch.from_numpy(rng.random(len(frames)) < share).to(frames.device)]
            source = torch.from_numpy(rng.integers(len(frames), size=len(hit))).to(frames.device)
            taken = frames[source]
            spoilt[hit[:, 0], hit[:, 1], first:] = columns[taken[:, 0], taken[:, 1], first:]
        return spoilt

    def _token_losses(
        self, hidden: Tensor, columns: Tensor, targets: Tensor, rng: np.random.Generator
    ) -> dict[str, Tensor]:
        learnt = targets != _IGNORED
        logits = F.linear(hidden[learnt], self.network.slow.embeddings.weight).float()
        wanted = targets[learnt]
        places = (learnt & self.network.slow.is_semantic(targets.clamp(min=0))).nonzero()
        chosen = rng.permutation(len(places))[: self.recipe.fast_frames]
        places = places[torch.from_numpy(chosen).to(places.device)]
        codes = columns[places[:, 0], places[:, 1] + 1, 1:]
        residual = residual_logits(self.network, hidden[places[:, 0], places[:, 1]], codes).float()
        each = torch.stack(
            [
                F.cross_entropy(residual[:, book], codes[:, book + 1])
                for book in range(residual.shape[1])
            ]
        )
        return {
            "semantic": F.cross_entropy(logits, wanted),
            "residual": (each * self._book_weights.to(each.device)).sum(),
            "right": (logits.argmax(-1) == wanted).float().mean(),
            "first_residual": each[0].detach(),
        }

    def _attention_loss(self, maps: list[Tensor], spoken: list[_Spoken]) -> Tensor:
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


_END, _USER = "<|im_end|>\n", "<|im_start|>user\n"  # what follows codes, and precedes a text
_Ints = npt.NDArray[np.int64]
_Pool = dict[bool, tuple[_Ints, _Ints]]


def _pools(clips: CodedClips, lengths: _Ints, count: int) -> list[_Pool]:
    """Return for each voice the clips to train on, aligned and plain, shortest first."""
    voices, aligned = clips.voices[:count].numpy(), clips.aligned[:count].numpy()
    pools: list[_Pool] = []
    for voice in range(int(voices.max()) + 1):
        pool: _Pool = {}
        for kind in (True, False):
            found = np.flatnonzero((voices == voice) & (aligned == kind))
            if not len(found):
                found = np.flatnonzero(voices == voice)
            found = found[np.argsort(lengths[found], kind="stable")]
            pool[kind] = (found, lengths[found])
        pools.append(pool)
    return pools
