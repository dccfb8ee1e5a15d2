"""Draw what the language model learns: a prompt as the engine builds it, and the codes after it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.training.codebooks import encode_clip
from lab.training.flite import ROW_SECONDS, TEACHERS, Utterance
from lab.training.lm_network import LMSizes
from lab.training.sound.clips import aligned_clip
from lab.training.sound.pitch import NUM_PHASES
from lab.training.sound.timing import FRAME_SECONDS
from lab.training.speakers import OF_EACH, Speaker, trained_speaker
from lab.training.stages.hearing import CLIP_FRAMES, Heard
from lab.training.stages.quantizer import Quantizer
from lab.training.tokens import PAD, make_tokenizer
from synth.engine.prompt import PromptBuilder, Tokenizer, VoicePrompt

HELD_OUT_SHARE, MOST_HELD_OUT = 0.05, 200  # the last sentences, for the loss on unseen texts
IGNORED = -100
# Of a column's token, semantic code, pitch, phase and finer codes: all, the finer, the phase.
FRAME_COLUMNS = (slice(0, None), slice(4, None), slice(3, 4))
_END, _USER = "<|im_end|>\n", "<|im_start|>user\n"  # what follows codes, and precedes a text
_HEARD_SHARE = 0.6  # of clips at their own pace, as the encoder hears those from elsewhere
_NO_VOICE_SHARE = 0.03
_VOICELESS_TEACHER = TEACHERS[0]  # whose speakers answer a prompt without a voice
_SHORTEST, _LONGEST = 14, 330  # frames of a sentence at the curriculum's start and end
_ANY_LENGTH_SHARE = 0.45  # of batches; others have one of the usual lengths
_USUAL_LENGTHS = (40, 60, 75, 90, 110, 140)
_NARROWEST = 0.75  # the shortest sentence of a batch as a share of the longest
_MOST_ROWS = 40
_REFERENCE_FRAMES = (25, 80)  # of a clip before sentences of about its length
_ANY_REFERENCE_SHARE = 0.5  # of batches, in which clips are of any length, however short a sentence
_AT_LEAST = 20  # sentences to draw one from, whatever their length
_SPOKEN_SHARE = 0.9  # of a sentence's rows: pauses at its ends are cut


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """Say where a text and its codes lie in one sequence of a batch, and what is read when."""

    row: int
    text_first: int
    codes_first: int
    letters: Tensor


class Batch(NamedTuple):
    """Hold columns int64 [B, S, 1 + K], the tokens to predict [B, S], and where texts lie."""

    columns: Tensor
    targets: Tensor
    spoken: list[Spoken]

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on a device."""
        return Batch(self.columns.to(device), self.targets.to(device), self.spoken)


class Sequences:
    """Own the sentences, sorted by length, and put them into prompts in ever new voices."""

    def __init__(
        self,
        speech: Sequence[Utterance],
        heard: Sequence[Heard],
        quantizer: Quantizer,
        sizes: LMSizes,
        positions: int,
    ) -> None:
        self._space, self._books = quantizer
        self._positions = positions
        tokenizer = Tokenizer(make_tokenizer(sizes.codes))
        self._pad = tokenizer.id_of(PAD) or 0
        self._builder = PromptBuilder(
            tokenizer, num_codebooks=sizes.num_codebooks, codebook_size=sizes.codes
        )
        self._end, self._before_text = (len(tokenizer.encode(part)) for part in (_END, _USER))
        learnt = len(speech) - min(MOST_HELD_OUT, round(HELD_OUT_SHARE * len(speech)))
        self._learnt, self._held_out = (
            _pools(part, heard) for part in (speech[:learnt], speech[learnt:])
        )

    def draw(self, rng: np.random.Generator, grown: float, *, held_out: bool = False) -> Batch:
        """Return as many sequences of about one length as fit in the positions.

        Args:
            grown: from 0 to 1, how far the curriculum is.
            held_out: of the sentences that are never trained on.
        """
        pools = self._held_out if held_out else self._learnt
        longest = _draw_length(rng, grown)
        clip = _draw_clip_length(rng, longest, grown)
        width = 1.45 * longest + 1.2 * clip + 14
        count = max(2, min(_MOST_ROWS, int(self._positions / width)))
        rows: list[tuple[Tensor, list[Spoken]]] = []
        most = 0
        while len(rows) < count and (len(rows) < 2 or len(rows) * most < self._positions):
            rows.append(self._sequence(rng, pools, longest, clip, len(rows)))
            most = max(most, rows[-1][0].shape[1])
        columns = torch.zeros(len(rows), most, rows[0][0].shape[0], dtype=torch.int64)
        columns[..., 0] = self._pad
        targets = torch.full((len(rows), most), IGNORED)
        spoken = []
        for index, (row, parts) in enumerate(rows):
            columns[index, : row.shape[1]] = row.t()
            for part in parts:
                first, frames = part.codes_first, len(part.letters)
                # The position before a frame predicts it; the last frame predicts the end.
                targets[index, first - 1 : first + frames] = row[0, first : first + frames + 1]
            spoken += parts
        return Batch(columns, targets, spoken)

    def _sequence(
        self, rng: np.random.Generator, pools: list[_Pool], longest: float, clip: float, row: int
    ) -> tuple[Tensor, list[Spoken]]:
        """Return one sequence [1 + K, S] and its parts that are learnt."""
        pool = pools[int(rng.integers(len(pools)))]
        speaker, parts = trained_speaker(pool.teacher, int(rng.integers(OF_EACH))), []
        if pool.teacher == _VOICELESS_TEACHER and rng.random() < _NO_VOICE_SHARE:
            system = self._builder.system()
        elif pool.heard and rng.random() < _HEARD_SHARE:
            heard = pool.draw_heard(rng, clip)
            speaker = heard.speaker
            system = self._builder.system([VoicePrompt(heard.text, heard.codes.long())])
        else:
            reference = pool.draw(rng, min(_REFERENCE_FRAMES[0], clip - 8), clip)
            spoken, read = self._encode(reference, speaker, rng)
            system = self._builder.system([VoicePrompt(reference.text, spoken)])
            codes_first = system.shape[1] - self._end - spoken.shape[1]
            parts.append(Spoken(row, codes_first - 1 - len(reference.text), codes_first, read))
        said = pool.draw(rng, _NARROWEST * longest, longest)
        codes, letters = self._encode(said, speaker, rng)
        turn = self._builder.turn(said.text)
        whole = torch.cat([system, turn, self._builder.answer(codes)], dim=1)
        text_first = system.shape[1] + self._before_text
        parts.append(Spoken(row, text_first, system.shape[1] + turn.shape[1], letters))
        return whole, parts

    def _encode(
        self, utterance: Utterance, speaker: Speaker, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return a sentence's codes [K, T] in a speaker's voice, and the letter read at each."""
        clip = aligned_clip(utterance, speaker)
        if clip.letters is None:
            raise ValueError(f"flite says other words than {utterance.text!r}")
        codes = encode_clip(self._space, self._books, clip, int(rng.integers(NUM_PHASES)))
        return codes, torch.from_numpy(clip.letters)


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """Hold one teacher's sentences and what was heard, each the shortest first, and its frames."""

    teacher: str
    speech: list[Utterance]
    frames: list[float]
    heard: list[Heard]
    heard_frames: list[int]

    def draw(self, rng: np.random.Generator, shortest: float, longest: float) -> Utterance:
        """Return a sentence about that long; of a few around where there is none."""
        return self.speech[_draw_place(rng, self.frames, shortest, longest)]

    def draw_heard(self, rng: np.random.Generator, longest: float) -> Heard:
        """Return what was heard of a speaker of the teacher, up to that long where there is any."""
        return self.heard[_draw_place(rng, self.heard_frames, CLIP_FRAMES[0], longest)]


def _draw_place(
    rng: np.random.Generator, frames: Sequence[float], shortest: float, longest: float
) -> int:
    """Return a place in sorted `frames` within the bounds, or around where there are few."""
    last = max(0, len(frames) - _AT_LEAST)
    first = min(bisect_left(frames, shortest), last)
    end = max(bisect_right(frames, longest), first + _AT_LEAST)
    return int(rng.integers(first, min(end, len(frames))))


def _pools(speech: Sequence[Utterance], heard: Sequence[Heard]) -> list[_Pool]:
    """Return a pool for each teacher that says something."""
    pools = []
    for teacher in TEACHERS:
        own = [each for each in speech if each.teacher == teacher]
        own.sort(key=lambda each: each.num_rows)
        clips = [each for each in heard if each.speaker.teacher == teacher]
        clips.sort(key=lambda each: each.codes.shape[1])
        scale = _SPOKEN_SHARE * ROW_SECONDS / FRAME_SECONDS
        if own:
            frames = [scale * each.num_rows for each in own]
            lengths = [each.codes.shape[1] for each in clips]
            pools.append(_Pool(teacher, own, frames, clips, lengths))
    return pools


def _draw_length(rng: np.random.Generator, grown: float) -> float:
    """Return the most frames of a batch's sentences."""
    most = _SHORTEST + (_LONGEST - _SHORTEST) * grown
    if rng.random() < _ANY_LENGTH_SHARE:
        low, high = np.log([_SHORTEST, max(most, _SHORTEST + 1)])
        return float(np.exp(rng.uniform(low, high)))
    return float(min(most, rng.choice(_USUAL_LENGTHS)))


def _draw_clip_length(rng: np.random.Generator, longest: float, grown: float) -> float:
    """Return the most frames of the clips before sentences of up to `longest` frames."""
    if rng.random() < _ANY_REFERENCE_SHARE * grown:
        return float(rng.uniform(*CLIP_FRAMES))
    return min(_REFERENCE_FRAMES[1], max(longest, 20))
