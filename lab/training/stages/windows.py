"""Draw short windows of coded speech, with all that says what they sound like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.training.codebooks import NUM_EXACT_BOOKS, decode_latents, encode_clip
from lab.training.flite import Utterance
from lab.training.sound.clips import aligned_clip, fewest_frames
from lab.training.sound.pitch import NUM_PHASES, SIXTEENTHS, Numbers, phases_at_ends
from lab.training.sound.timing import ROWS_PER_FRAME
from lab.training.speakers import trained_speaker
from lab.training.stages.quantizer import Quantizer

CONTEXT = 3  # frames before those that count, which the decoder's transformer sees
_SPEAKERS = 100  # of each teacher, whom the decoder hears
_FINER_FIRST = NUM_EXACT_BOOKS + 2  # the books that tell the finer parts of a sound
_FINER_SHARE = 0.15  # of windows
_FRAME_SHARE, _FRAMES_HIT = 0.1, 0.1  # of windows, and of their frames
_SCALE_CLIPS = 200


class Windows(NamedTuple):
    """Hold windows of F frames, each with a frame before them that leads in.

    `codes` int64 [B, K, CONTEXT + F]; `rows` [B, 4 (F + 1) + 1, features], the first one before
    the frame that leads in; `pitches` [B, F + 2], numbers at the ends of F + 1 frames; `phase`
    [B], in periods, where they begin.
    """

    codes: Tensor
    rows: Tensor
    pitches: Tensor
    phase: Tensor


def cut_window(
    codes: Tensor,
    rows: Tensor,
    pitches: Numbers,
    start: int,
    first: int,
    frames: int,
) -> Windows:
    """Return one window without the axis B, from frame `first` on.

    Before a clip's beginning its first frame is repeated.

    Args:
        codes, rows, pitches: of the whole clip, with phases that begin at `start`.
    """
    wanted = np.clip(np.arange(first - CONTEXT, first + frames), 0, None)
    row = np.arange((first - 1) * ROWS_PER_FRAME - 1, (first + frames) * ROWS_PER_FRAME)
    end = np.arange(first - 1, first + frames + 1)
    phases = phases_at_ends(pitches, start)
    begin = int(phases[first - 1]) if first else int(phases[0] - 2 * pitches[0]) % SIXTEENTHS
    return Windows(
        codes=codes[:, torch.from_numpy(wanted)],
        rows=rows[torch.from_numpy(np.clip(row, 0, None))],
        pitches=torch.from_numpy(pitches[np.clip(end, 0, None)]).float(),
        phase=torch.tensor(begin / SIXTEENTHS),
    )


def stack_windows(windows: Sequence[Windows], device: torch.device) -> Windows:
    """Return windows of one size as a batch."""
    return Windows(*(torch.stack(parts).to(device) for parts in zip(*windows, strict=True)))


class WindowSource:
    """Own the speech that windows are drawn from."""

    def __init__(self, speech: Sequence[Utterance], quantizer: Quantizer, frames: int) -> None:
        self._space, self._books = quantizer
        self._frames = frames
        self._speech = [each for each in speech if fewest_frames(each) >= frames]

    def draw(self, rng: np.random.Generator) -> Windows:
        """Return one window without the axis B.

        Its rows are those that the codes tell of, which are not quite the speaker's.
        """
        utterance = self._speech[int(rng.integers(len(self._speech)))]
        speaker = trained_speaker(utterance.teacher, int(rng.integers(_SPEAKERS)))
        clip = aligned_clip(utterance, speaker)
        start = int(rng.integers(NUM_PHASES))
        codes = spoil_sound(encode_clip(self._space, self._books, clip, start), rng)
        rows = self._space.rows_of(decode_latents(self._books, codes))
        first = int(rng.integers(0, clip.num_frames - self._frames + 1))
        return cut_window(codes, rows, clip.pitches, start, first, self._frames)

    def draw_batch(self, rng: np.random.Generator, count: int, device: torch.device) -> Windows:
        """Return several windows."""
        return stack_windows([self.draw(rng) for _ in range(count)], device)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Return the rows' mean and spread, each [features]."""
        clips = [
            aligned_clip(each, trained_speaker(each.teacher, index))
            for index, each in enumerate(self._speech[:_SCALE_CLIPS])
        ]
        rows = torch.from_numpy(np.concatenate([clip.rows for clip in clips]))
        return rows.mean(0), rows.std(0)


def spoil_sound(codes: Tensor, rng: np.random.Generator) -> Tensor:
    """Return a clip's codes [K, T], some of them with sounds that no teacher makes.

    A language model that cannot predict the finer codes makes them.
    """
    codes, count = codes.clone(), codes.shape[1]
    if rng.random() < _FINER_SHARE:
        other = torch.from_numpy(rng.integers(count, size=count))
        codes[_FINER_FIRST:] = codes[_FINER_FIRST:, other]
    if rng.random() < _FRAME_SHARE:
        hit = torch.from_numpy(rng.random(count) < _FRAMES_HIT)
        other = torch.from_numpy(rng.integers(count, size=count))
        sound = codes[NUM_EXACT_BOOKS:]
        codes[NUM_EXACT_BOOKS:] = torch.where(hit, sound[:, other], sound)
    return codes
