"""Turn the samples of a job into what one listener gets: its pace, its rate, its format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from synth.audio.filters import BlockFilter, resampler, stretcher
from synth.audio.writers import StreamEncoder, file_rate
from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, FORMATS
from synth.models import RenderJob

BYTES_PER_SAMPLE = 2
_FULL_SCALE = np.float32(2**15)
_BLOCK_SAMPLES = 1 << 14  # of silence that is encoded at once
# What the filter of the pace gets at once: it gives as much only when it has worked through that,
# and of much less it makes something else than of the whole.
_TEMPO_SAMPLES = 1024


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Say how a job is heard; rates are those that it asks for, in Hz and bits per second."""

    format: str
    sample_rate: int | None = None
    bit_rate: int | None = None
    speed: float = 1.0

    @staticmethod
    def of(job: RenderJob, format: str | None = None) -> LiveOptions:
        """Return how a job is heard in a format; None is its own, of a book that of its chapters.

        What the job asks of its file and another format cannot have is left out.
        """
        chosen = format or BOOK_FORMATS[job.format].chapters_as
        has_rate = job.sample_rate in FORMATS[chosen].sample_rates
        return LiveOptions(
            chosen,
            sample_rate=job.sample_rate if has_rate else None,
            bit_rate=job.bit_rate if chosen == job.format else None,
            speed=job.speed,
        )

    def to_header(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_header(text: str) -> LiveOptions:
        return LiveOptions(**json.loads(text))


class Pipeline:
    """Encode a job's samples, piece by piece, as they are in its file but for its loudness.

    Args:
        sample_rate: of what comes, in Hz.

    Attributes:
        sample_rate: of what is sent, in Hz.
    """

    def __init__(self, options: LiveOptions, sample_rate: int) -> None:
        self._rate, self._speed = sample_rate, options.speed
        self.sample_rate = file_rate(
            options.format, sample_rate, asked=options.sample_rate, bit_rate=options.bit_rate
        )
        rates = (sample_rate, self.sample_rate)
        self._resampler = None if rates[0] == rates[1] else resampler(*rates)
        self._encoder = StreamEncoder(options.format, self.sample_rate, options.bit_rate)
        self._tempo: _Tempo | None = None  # of the segment that is heard
        self._num_in = self._num_paced = 0  # samples before and behind the change of pace

    def sound(self, content: bytes) -> bytes:
        """Return what follows with these samples of a segment, s16le."""
        samples = np.frombuffer(content, dtype="<i2").astype(np.float32) / _FULL_SCALE
        if self._tempo is None and self._speed != 1.0:
            self._tempo = self._open_tempo(self._num_in)
        self._num_in += len(samples)
        return self._encode(self._tempo.push(samples) if self._tempo else [samples])

    def pause(self, num_samples: int) -> Iterator[bytes]:
        """Yield what follows at the end of a segment, with the pause behind it."""
        if self._tempo is not None:
            rest, self._tempo = self._tempo.end(), None
            yield self._encode(rest)
        self._num_in += num_samples
        missing = self._paced(self._num_in) - self._num_paced
        for start in range(0, missing, _BLOCK_SAMPLES):
            yield self._encode([np.zeros(min(_BLOCK_SAMPLES, missing - start), np.float32)])

    def end(self) -> bytes:
        """Return the rest; call it once, after the last segment."""
        rest = self._resampler.end() if self._resampler else []
        return b"".join([*map(self._encoder.push, rest), self._encoder.end()])

    def _open_tempo(self, start: int) -> _Tempo:
        """Return the filter of a segment that begins at this sample.

        Each one has its own and ends at a known sample, as when the file is made.
        """
        opened = stretcher(
            self._rate,
            speed=self._speed,
            num_out=lambda num_in: self._paced(start + num_in) - self._paced(start),
        )
        return _Tempo(opened)

    def _paced(self, position: int) -> int:
        """Return where a sample of the takes' own pace comes to lie."""
        return round(position / self._speed)

    def _encode(self, blocks: Iterable[AudioArray]) -> bytes:
        parts: list[bytes] = []
        for block in blocks:
            self._num_paced += len(block)
            ready = self._resampler.push(block) if self._resampler else [block]
            parts += map(self._encoder.push, ready)
        return b"".join(parts)


class _Tempo:
    """Change the pace of one segment, in blocks that suit the filter."""

    def __init__(self, opened: BlockFilter) -> None:
        self._filter = opened
        self._held: AudioArray = np.empty(0, np.float32)

    def push(self, samples: AudioArray) -> list[AudioArray]:
        """Return what has become of the samples so far, float32 [n]."""
        held = np.concatenate((self._held, samples))
        made: list[AudioArray] = []
        while len(held) >= _TEMPO_SAMPLES:
            made += self._filter.push(held[:_TEMPO_SAMPLES])
            held = held[_TEMPO_SAMPLES:]
        self._held = held
        return made

    def end(self) -> list[AudioArray]:
        return [*self._filter.push(self._held), *self._filter.end()]
