"""Read a job's takes one after the other, with their pauses, at the pace that its file is to have.

Each take is stretched on its own, so that it begins and ends at a sample that is known.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import numpy as np
import soundfile
from av.filter import Graph
from django.core.files.storage import default_storage
from django.db.models import QuerySet

from synth.contract import AudioArray
from synth.models import Segment, Take
from workers.audio.filters import link, push, ready

_TAIL_SECONDS = 0.5
_MAX_FACTOR = 2.0  # of one filter: beyond it `atempo` skips samples instead of blending them


def stretch(
    blocks: Iterable[AudioArray], sample_rate: int, *, speed: float, num_out: int | None = None
) -> Iterator[AudioArray]:
    """Yield mono audio, float32 [n], at `speed` times its pace; 1.0 passes it on untouched.

    Args:
        blocks: float32 [n] each, in order; one of them is in memory at a time.
        speed: greater than 0; 2.0 takes half the time, to the sample.
        num_out: samples to make in all where that is known better than by rounding, which lets
            pieces of a longer text be stretched apart and still end where the whole would.
    """
    if speed == 1.0:
        yield from blocks
        return
    graph = _graph(sample_rate, speed)
    num_in = made_so_far = 0
    for block in blocks:
        push(graph, block, sample_rate, num_in)
        num_in += len(block)
        for made in ready(graph):
            made_so_far += len(made)
            yield made
    if num_in:
        missing = (round(num_in / speed) if num_out is None else num_out) - made_so_far
        yield from _rest(graph, sample_rate, num_in, missing)


def _rest(graph: Graph, sample_rate: int, num_in: int, missing: int) -> Iterator[AudioArray]:
    """Yield the last `missing` samples: the filters keep some back, which silence drives out."""
    push(graph, np.zeros(round(_TAIL_SECONDS * sample_rate), np.float32), sample_rate, num_in)
    graph.push(None)
    for made in ready(graph):
        if missing > 0:
            yield made[:missing]
        missing -= len(made)
    if missing > 0:
        yield np.zeros(missing, np.float32)


def _graph(sample_rate: int, speed: float) -> Graph:
    """Return a graph of as many equal filters as keep each one's factor between 1/2 and 2."""
    count = max(1, math.ceil(abs(math.log2(speed)) / math.log2(_MAX_FACTOR)))
    graph = Graph()
    steps = [graph.add("atempo", repr(speed ** (1 / count))) for _ in range(count)]
    return link(graph, *steps, sample_rate=sample_rate)


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
        self.sample_rate = _one_rate(segments)
        self.cues: list[Cue] = []
        self.num_samples = 0

    def blocks(self) -> Iterator[AudioArray]:
        """Yield the audio, float32 [n] with n <= `BLOCK_SAMPLES`, at `sample_rate`.

        Raises:
            TakeMissingError: audio went since it was looked for, or is damaged.
            TakesChangedError: the segments are not as they were pinned.
        """
        self.cues, self.num_samples = [], 0
        position = 0  # before stretching
        for segment in _rows(self._segments):
            self._check_pin(segment)
            if segment.take is None:
                raise TakeMissingError([segment.pk])
            start = self.num_samples
            for block in self._take(segment.pk, segment.take, position):
                self.num_samples += len(block)
                yield block
            self.cues.append(Cue(segment.pk, start, self.num_samples))
            position += _length(segment.take)
            position += round(segment.pause_after_ms * self.sample_rate / 1000)
            yield from self._pause(self._stretch_place(position) - self.num_samples)
        if self._pins is not None and len(self.cues) != len(self._pins):
            raise TakesChangedError

    def _check_pin(self, segment: Segment) -> None:
        if self._pins is None:
            return
        if self._pins.get(segment.pk) != (segment.take_id, segment.pause_after_ms):
            raise TakesChangedError

    def _take(self, segment_id: int, take: Take, position: int) -> Iterator[AudioArray]:
        """Yield a take that begins, unstretched, at this sample."""
        num_out = self._stretch_place(position + _length(take)) - self._stretch_place(position)
        try:
            with default_storage.open(take.audio_key) as file:
                blocks = _check_length(_take_blocks(file), segment_id, _length(take))
                yield from stretch(blocks, self.sample_rate, speed=self._speed, num_out=num_out)
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


def _one_rate(segments: QuerySet[Segment] | Sequence[Segment]) -> int:
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
    return int(rates.pop())


def _take_blocks(file: IO[bytes]) -> Iterator[AudioArray]:
    with soundfile.SoundFile(file) as audio:
        yield from audio.blocks(BLOCK_SAMPLES, dtype="float32")


def _check_length(
    blocks: Iterator[AudioArray], segment_id: int, num_samples: int
) -> Iterator[AudioArray]:
    """Pass a take's audio on; one that is shorter or longer than its row says is damaged."""
    for block in blocks:
        num_samples -= len(block)
        yield block
    if num_samples:
        raise TakeMissingError([segment_id])
