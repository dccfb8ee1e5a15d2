"""Put phones on code frames: each lasts a whole number of them, so that text predicts the codes.

Without it a code would tell where inside it a sound begins, which no text predicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.training.flite import SAMPLE_RATE, Utterance
from lab.training.texts import align_words

ROWS_PER_FRAME = 4
ROW_SAMPLES = 160  # at `SAMPLE_RATE`: 10 ms, one position of the codec's decoder
FRAME_SAMPLES = ROWS_PER_FRAME * ROW_SAMPLES
FRAME_SECONDS = FRAME_SAMPLES / SAMPLE_RATE
PAUSE = "pau"
MAX_INDEX = 3  # frames of a phone are told apart up to this one; later ones count as it
_MAX_PAUSE_FRAMES = 6


@dataclass(frozen=True, slots=True)
class Span:
    """Hold one phone: where it lies in the teacher's speech in seconds, and its code frames."""

    phone: str
    start: float
    end: float
    frames: int


def spans_of(utterance: Utterance, rate: float) -> list[Span]:
    """Return the phones in order, their lengths times `rate` in whole frames.

    The pauses at both ends take a frame at most, and those between `_MAX_PAUSE_FRAMES`.
    """
    total = utterance.seconds
    spans: list[Span] = []
    taken, ideal = 0, 0.0  # frames given so far, and seconds that they should last
    last = len(utterance.phones) - 1
    start = 0.0
    for index, (_, end, phone) in enumerate(utterance.phones):
        end = min(end, total)
        seconds = (end - start) * rate
        if seconds <= 0:
            start = end
            continue
        if phone == PAUSE:
            seconds = _pause_seconds(seconds, index, last)
        ideal += seconds
        frames = max(1, round(ideal / FRAME_SECONDS - taken))
        spans.append(Span(phone, start, end, frames))
        taken, start = taken + frames, end
        # A run of short phones, each of a frame, must not shorten all that comes after it.
        ideal = max(ideal, taken * FRAME_SECONDS - FRAME_SECONDS)
    return spans


def _pause_seconds(seconds: float, index: int, last: int) -> float:
    if index == last:
        return FRAME_SECONDS
    return min(seconds, FRAME_SECONDS if index == 0 else _MAX_PAUSE_FRAMES * FRAME_SECONDS)


def row_times(spans: list[Span]) -> npt.NDArray[np.float64]:
    """Return the time in the teacher's speech of every row, `ROWS_PER_FRAME` a frame."""
    times = []
    for span in spans:
        count = span.frames * ROWS_PER_FRAME
        times.append(span.start + (span.end - span.start) * (np.arange(count) + 0.5) / count)
    return np.concatenate(times)


def states_of(spans: list[Span]) -> list[str]:
    """Return the state of every frame: its phone, and which frame of the phone it is."""
    return [
        f"{span.phone} {min(index, MAX_INDEX)}"
        for span in spans
        for index in range(1, span.frames + 1)
    ]


def letter_positions(utterance: Utterance, spans: list[Span]) -> npt.NDArray[np.float32] | None:
    """Return for every frame the letter that is spoken, as a position in the text, [T].

    None where flite says other words than the text has.
    """
    places = align_words(utterance.text, [name for _, name in utterance.words])
    if places is None:
        return None
    ends = np.cumsum([span.frames for span in spans])
    starts = np.array([span.start for span in spans])
    first_frames = ends - [span.frames for span in spans]
    total = int(ends[-1])
    begins = [
        # A word begins where its first phone does, but for rounding.
        int(first_frames[min(int(np.searchsorted(starts, time - 0.004)), len(spans) - 1)])
        for time, _ in utterance.words
    ]
    positions = np.zeros(total)
    for (first, length), begin, end in zip(places, begins, [*begins[1:], total], strict=True):
        if end > begin:
            steps = (np.arange(end - begin) + 0.5) / (end - begin)
            positions[begin:end] = first + length * steps
    return np.clip(positions, 0, max(len(utterance.text) - 1, 0)).astype(np.float32)
