"""Describe an utterance in a speaker's mouth: on code frames, or at the pace it was spoken at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.training.flite import Utterance
from lab.training.sound.acoustics import at_times, cepstra_of, pitch_course, strengths_of
from lab.training.sound.pitch import Numbers, pitch_numbers
from lab.training.sound.timing import (
    FRAME_SECONDS,
    MAX_INDEX,
    ROWS_PER_FRAME,
    letter_positions,
    row_times,
    spans_of,
    states_of,
)
from lab.training.speakers import SHORTEST, Speaker

ROW_OF_FRAME_SECONDS = FRAME_SECONDS / ROWS_PER_FRAME


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """Hold T code frames of speech.

    `rows` float32 [4 T, NUM_FEATURES]; `pitches` [T + 1], the numbers at the frames' ends, the
    first one where the clip begins; `states` T names. `letters` float32 [T] is the letter spoken
    at each frame, None where the clip is not aligned with its text.
    """

    rows: npt.NDArray[np.float32]
    pitches: Numbers
    states: tuple[str, ...]
    letters: npt.NDArray[np.float32] | None = None

    @property
    def num_frames(self) -> int:
        """Return T."""
        return len(self.states)


def aligned_clip(utterance: Utterance, speaker: Speaker) -> Clip:
    """Return what a speaker says, every phone on whole frames."""
    spans = spans_of(utterance, speaker.rate)
    times = row_times(spans)
    # A frame's pitch is taken where its last row lies.
    ends = np.concatenate([times[:1], times[ROWS_PER_FRAME - 1 :: ROWS_PER_FRAME]])
    return Clip(
        rows=_rows(utterance, speaker, times),
        pitches=pitch_numbers(at_times(pitch_course(utterance, speaker), ends)),
        states=tuple(states_of(spans)),
        letters=letter_positions(utterance, spans),
    )


def fewest_frames(utterance: Utterance) -> int:
    """Return how many frames an aligned clip has at least, whoever speaks."""
    # Rounding may take one more.
    return sum(span.frames for span in spans_of(utterance, SHORTEST)) - 1


def plain_clip(utterance: Utterance, speaker: Speaker) -> Clip:
    """Return what a speaker says at an even pace, as the sound of a clip from elsewhere comes."""
    rate = speaker.rate
    frames = int(utterance.seconds * rate / FRAME_SECONDS)
    times = (np.arange(ROWS_PER_FRAME * frames) + 0.5) * ROW_OF_FRAME_SECONDS / rate
    ends = np.arange(frames + 1) * FRAME_SECONDS / rate
    return Clip(
        rows=_rows(utterance, speaker, times),
        pitches=pitch_numbers(at_times(pitch_course(utterance, speaker), ends)),
        states=tuple(_plain_states(utterance, rate, frames)),
    )


def _plain_states(utterance: Utterance, rate: float, frames: int) -> list[str]:
    """Return the state at the middle of every frame."""
    middles = (np.arange(frames) + 0.5) * FRAME_SECONDS / rate
    ends = np.array([end for _, end, _ in utterance.phones])
    found = np.clip(np.searchsorted(ends, middles), 0, len(ends) - 1)
    states = []
    for index, time in zip(found, middles, strict=True):
        start, _, phone = utterance.phones[int(index)]
        passed = int((time - start) * rate / FRAME_SECONDS)
        states.append(f"{phone} {min(MAX_INDEX, 1 + passed)}")
    return states


def _rows(
    utterance: Utterance, speaker: Speaker, times: npt.NDArray[np.floating]
) -> npt.NDArray[np.float32]:
    cepstra = at_times(cepstra_of(utterance, speaker), times)
    strengths = at_times(strengths_of(utterance), times)
    return np.concatenate([cepstra, strengths], axis=1).astype(np.float32)
