"""Read a job's takes one after the other, with their pauses, at the pace that its file is to have.

Each take is stretched on its own, so that it begins and ends at a sample that is known.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import soundfile
from django.core.files.storage import default_storage
from django.db.models import QuerySet

from synth.audio.filters import stretch
from synth.contract import AudioArray
from synth.models import Segment, Take
from ttsweb.storage import fetch_object

BLOCK_SAMPLES = 1 << 18  # what is in memory at once, whatever the length of the book


class TakeMissingError(Exception):
    """A finished segment's audio is gone; it has to be rendered again."""

    def __init__(self, segment_ids: list[int]) -> None:
        super().__init__(f"{len(segment_ids)} takes have no stored audio")
        self.segment_ids = segment_ids


class MixedRatesError(Exception):
    """The takes of a job do not have one sample rate."""


class TakesChangedError(Exception):
    """A segment got another take, or another pause, since a file was begun."""


class Pin(NamedTuple):
    """What a segment has to have still when it is read: its take and the pause after it."""

    take_id: uuid.UUID
    pause_after_ms: int


class Cue(NamedTuple):
    """Where a segment lies: its id, its first sample and the one after its last, without pause."""

    segment_id: int
    start: int
    end: int


class JoinedTakes:
    """The audio of segments, to be read as often as needed; `cues` are those of the last reading.

    Attributes:
        sample_rate: Hz, that of all takes.
        num_samples: how long the last reading was.
    """

    def __init__(
        self,
        segments: QuerySet[Segment] | Sequence[Segment],
        *,
        speed: float,
        pins: Mapping[int, Pin] | None = None,
    ) -> None:
        """Look at the takes of these finished segments, which come in order.

        Args:
            pins: by segment; with them other segments, takes or pauses than these are an error.

        Raises:
            TakeMissingError: some have no audio.
            MixedRatesError: they were rendered by checkpoints of different rates.
        """
        self._segments, self._speed, self._pins = segments, speed, pins
        self.cues: list[Cue] = []
        self.num_samples = 0
        missing, rates = [], set()
        for segment in _rows(segments):
            if segment.take is None or not default_storage.exists(segment.take.audio_key):
                missing.append(segment.pk)
            else:
                rates.add(segment.take.sample_rate)
        if missing:
            raise TakeMissingError(missing)
        if len(rates) != 1:
            raise MixedRatesError(f"The takes have the sample rates {sorted(rates)}.")
        self.sample_rate = int(rates.pop())

    def blocks(self) -> Iterator[AudioArray]:
        """Yield the audio, float32 [n] with n <= `BLOCK_SAMPLES`, at `sample_rate`.

        Raises:
            TakeMissingError: audio went since it was looked for, or is damaged.
            TakesChangedError: the segments are not as they were pinned.
        """
        self.cues, self.num_samples = [], 0
        position = 0  # before stretching
        for segment in _rows(self._segments):
            pin = (segment.take_id, segment.pause_after_ms)
            if self._pins is not None and self._pins.get(segment.pk) != pin:
                raise TakesChangedError
            if segment.take is None:
                raise TakeMissingError([segment.pk])
            start = self.num_samples
            for block in self._read_take(segment.pk, segment.take, position):
                self.num_samples += len(block)
                yield block
            self.cues.append(Cue(segment.pk, start, self.num_samples))
            position += _length(segment.take)
            position += round(segment.pause_after_ms * self.sample_rate / 1000)
            yield from self._pause(self._stretch_place(position) - self.num_samples)
        if self._pins is not None and len(self.cues) != len(self._pins):
            raise TakesChangedError

    def _read_take(self, segment_id: int, take: Take, position: int) -> Iterator[AudioArray]:
        """Yield a take that begins, unstretched, at this sample.

        One that is shorter or longer than its row says is damaged.
        """
        num_in = _length(take)
        num_out = self._stretch_place(position + num_in) - self._stretch_place(position)

        def read(audio: soundfile.SoundFile) -> Iterator[AudioArray]:
            missing = num_in
            for block in audio.blocks(BLOCK_SAMPLES, dtype="float32"):
                missing -= len(block)
                yield block
            if missing:
                raise TakeMissingError([segment_id])

        try:
            with soundfile.SoundFile(fetch_object(take.audio_key)) as audio:
                yield from stretch(
                    read(audio), self.sample_rate, speed=self._speed, num_out=num_out
                )
        except (FileNotFoundError, soundfile.LibsndfileError) as error:
            raise TakeMissingError([segment_id]) from error

    def _pause(self, num_samples: int) -> Iterator[AudioArray]:
        for start in range(0, num_samples, BLOCK_SAMPLES):
            silence = np.zeros(min(BLOCK_SAMPLES, num_samples - start), dtype=np.float32)
            self.num_samples += len(silence)
            yield silence

    def _stretch_place(self, position: int) -> int:
        """Return where a sample of the takes' own pace comes to lie."""
        return round(position / self._speed)


def _length(take: Take) -> int:
    """Return a take's samples: seconds are kept as their quotient, which gives them back."""
    return round(take.audio_seconds * take.sample_rate)


def _rows(segments: QuerySet[Segment] | Sequence[Segment]) -> Iterable[Segment]:
    """Return the segments, of a query never all of them at once."""
    return segments.iterator(chunk_size=1000) if isinstance(segments, QuerySet) else segments
