"""Know how far one listener is in a job, and what is to be sent next. Plain values only."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WINDOW = 4  # segments that are looked up at once: the present one and those behind it

DONE = "done"
CLOSED_WITHOUT_AUDIO = ("failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Name one object of samples, s16le; `key` is empty where `num_samples` is 0."""

    index: int
    key: str
    num_samples: int
    sample_rate: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A segment at one moment, and what is listed of each attempt at it, the newest first."""

    status: str
    take_id: uuid.UUID | None
    pause_after_ms: int
    attempts: Mapping[uuid.UUID, Sequence[Chunk]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sound:
    """Say that `num_samples` of an object follow, behind its first `skip` samples."""

    key: str
    skip: int
    num_samples: int
    sample_rate: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Say that a pause follows."""

    num_samples: int


class Place:
    """Hold where a listener is: the segment, the attempt at it, and the samples heard of it.

    An attempt that is lost, as its worker died, is left at the sample where it stops for another
    one at the same segment, whose samples are the same: its seed and its text are.

    Args:
        order: the job's segments in the order of the text.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        self._number = 0
        self._attempt: uuid.UUID | None = None
        self._offset = 0
        self._sample_rate: int | None = None
        self.is_whole = True  # no segment was left out so far, nor a part of one

    @property
    def window(self) -> Sequence[int]:
        """Return the segments whose states are wanted."""
        return self._order[self._number : self._number + WINDOW]

    @property
    def is_over(self) -> bool:
        return self._number >= len(self._order)

    def step(self, states: Mapping[int, SegmentState]) -> Sound | Silence | None:
        """Return what is to be sent now, and move behind it; None where it is not there yet."""
        while not self.is_over:
            state = states.get(self._order[self._number])
            if state is None:
                return None
            chunks = self._choose_chunks(state)
            if chunks is None:
                if not _has_no_audio(state):
                    return None
                self.is_whole = False
                self._go_on()
                continue
            sound = self._next_sound(chunks)
            if sound is not None:
                return self._move_behind(sound)
            self._go_on()
            pause = round(state.pause_after_ms * (self._sample_rate or 0) / 1000)
            if pause:
                return Silence(pause)
        return None

    def _choose_chunks(self, state: SegmentState) -> Sequence[Chunk] | None:
        """Return the listed pieces that lead on from here, or to the segment's end."""
        if self._attempt is not None:
            own = _unbroken(state.attempts.get(self._attempt, ()))
            if _leads_on(own, self._offset):
                return own
        if state.status == DONE:
            others = [state.take_id] if state.take_id is not None else []
        else:
            others = list(state.attempts)
        for attempt in others:
            chunks = _unbroken(state.attempts.get(attempt, ()))
            if _leads_on(chunks, self._offset):
                self._attempt = attempt
                return chunks
            if attempt == self._attempt:
                break  # what is older than the one that is heard leads nowhere
        return None

    def _next_sound(self, chunks: Sequence[Chunk]) -> Sound | None:
        """Return what follows the samples that were heard; None at the end."""
        start = 0
        for chunk in chunks:
            end = start + chunk.num_samples
            if self._offset < end:
                skip = self._offset - start
                return Sound(chunk.key, skip, chunk.num_samples - skip, chunk.sample_rate)
            start = end
        return None

    def _move_behind(self, sound: Sound) -> Sound | None:
        """Move behind a piece; one of another sample rate ends the stream, which cannot say it."""
        if self._sample_rate not in (None, sound.sample_rate):
            self._number, self.is_whole = len(self._order), False
            return None
        self._sample_rate = sound.sample_rate
        self._offset += sound.num_samples
        return sound

    def _go_on(self) -> None:
        self._number, self._attempt, self._offset = self._number + 1, None, 0


def _has_no_audio(state: SegmentState) -> bool:
    """Say whether nothing will come of this segment, or nothing more."""
    return state.status in CLOSED_WITHOUT_AUDIO or (state.status == DONE and state.take_id is None)


def _unbroken(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """Return the chunks up to the first that is not listed yet."""
    count = 0
    while count < len(chunks) and chunks[count].index == count:
        count += 1
    return chunks[:count]


def _leads_on(chunks: Sequence[Chunk], offset: int) -> bool:
    """Say whether there are samples behind `offset`, or the end is known to lie at or before it."""
    if not chunks:
        return False
    return chunks[-1].is_last or sum(chunk.num_samples for chunk in chunks) > offset
