"""Put speech on the codec's grid: every phone lasts a whole number of code frames.

Without it each code would tell where inside it a sound begins, which no text predicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.training.acoustics import FRAME_SECONDS, ROWS_PER_FRAME
from lab.training.espeak import SAMPLE_RATE, Utterance

PAUSE = "_"
MAX_INDEX = 3  # frames of a phone are told apart up to this one; later ones count as it
_MAX_PAUSE_FRAMES = 5
_END_FRAMES = 1  # of silence after the last phone
# Phones whose sound above 1.5 kHz is mostly noise although they are voiced, then voiceless ones.
_BREATHY = ("z", "Z", "v", "D", "dZ", "h")
_VOICELESS = ("p", "t", "k", "f", "s", "S", "T", "tS", "x", "C", "?")


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Hold one phone: where it lies in the source in seconds, and the frames it is given."""

    phone: str
    start: float
    end: float
    frames: int


def spans_of(utterance: Utterance) -> list[Span]:
    """Return the phones in order with their frames; pauses are shortened, the last one to one."""
    seconds = len(utterance.wave) / SAMPLE_RATE
    ends = [start for start, _ in utterance.phones[1:]] + [seconds]
    spans: list[Span] = []
    for (start, phone), end in zip(utterance.phones, ends, strict=True):
        if end - start < 0.008 or not phone.strip():
            continue
        frames = max(1, round((end - start) / FRAME_SECONDS))
        if phone.startswith(PAUSE):
            phone, frames = PAUSE, min(frames, _MAX_PAUSE_FRAMES)
        spans.append(Span(phone, start, end, frames))
    while spans and spans[-1].phone == PAUSE:
        spans.pop()
    if spans:
        end = spans[-1].end
        spans.append(Span(PAUSE, end, max(seconds, end + 0.01), _END_FRAMES))
    return spans


def row_times(spans: list[Span]) -> npt.NDArray[np.float64]:
    """Return the source time in seconds of every row of features, `ROWS_PER_FRAME` a frame."""
    times = []
    for span in spans:
        count = span.frames * ROWS_PER_FRAME
        times.append(span.start + (span.end - span.start) * (np.arange(count) + 0.5) / count)
    return np.concatenate(times)


def row_clarity(spans: list[Span]) -> npt.NDArray[np.float64]:
    """Return for every row how much of the voicing its phone keeps above 1.5 kHz."""
    parts = [np.full(span.frames * ROWS_PER_FRAME, clarity_of(span.phone)) for span in spans]
    return np.concatenate(parts)


def clarity_of(phone: str) -> float:
    """Return a phone's share of voicing above 1.5 kHz, 0 to 0.9."""
    if phone in _BREATHY:
        return 0.1
    return 0.0 if phone.rstrip("2:;-") in _VOICELESS else 0.9


def states_of(spans: list[Span]) -> list[str]:
    """Return the state of every frame: its phone, and which frame of the phone it is."""
    return [
        f"{span.phone} {min(index, MAX_INDEX)}"
        for span in spans
        for index in range(1, span.frames + 1)
    ]


def plain_states(utterance: Utterance) -> list[str]:
    """Return the state at the middle of every frame of the speech as it is, not aligned."""
    starts = np.array([start for start, _ in utterance.phones])
    states = []
    for frame in range(-(-len(utterance.wave) // round(FRAME_SECONDS * SAMPLE_RATE))):
        time = (frame + 0.5) * FRAME_SECONDS
        at = int(np.searchsorted(starts, time, side="right")) - 1
        phone = utterance.phones[at][1] if at >= 0 else PAUSE
        index = 1 + int((time - starts[at]) / FRAME_SECONDS) if at >= 0 else MAX_INDEX
        phone = PAUSE if phone.startswith(PAUSE) else phone
        states.append(f"{phone} {min(index, MAX_INDEX)}")
    return states


def letter_positions(utterance: Utterance, spans: list[Span], letters: int) -> list[float]:
    """Return for every frame the letter that is spoken, as a position in the text of `letters`."""
    frame_ends = np.cumsum([span.frames for span in spans])
    starts = np.array([span.start for span in spans])
    first_frames = frame_ends - [span.frames for span in spans]
    begins = []
    for time, _, _ in utterance.words:
        # A word's event comes a little before or after its first phone's.
        at = min(int(np.searchsorted(starts, time - 0.004)), len(spans) - 1)
        begins.append(int(first_frames[at]))
    total = int(frame_ends[-1])
    positions = np.zeros(total)
    for word, (begin, end) in enumerate(zip(begins, [*begins[1:], total], strict=True)):
        _, first, length = utterance.words[word]
        if end > begin:
            positions[begin:end] = first + length * (np.arange(end - begin) + 0.5) / (end - begin)
    return [float(value) for value in np.clip(positions, 0, max(letters - 1, 0))]
