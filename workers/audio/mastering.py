"""Make a job's file of its takes: joined, with rate, loudness and peaks as asked, and measured.

Takes are read one after the other, with their pauses; each is stretched on its own, so that it
begins and ends at a sample that is known.

Loudness takes one gain for the whole file, which is searched for before anything is written. What
was written is read back and measured; a codec raises peaks and costs loudness, so the file is
written again, a few times at most, until both are as asked or cannot be.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
from django.core.files.storage import default_storage
from django.db.models import QuerySet

from synth.audio.filters import (
    Loudness,
    LoudnessMeter,
    PeakLimiter,
    WaveformPeaks,
    measure_loudness,
    resample,
    stretch,
)
from synth.audio.writers import file_rate, mean_bit_rate, open_writer, read_blocks
from synth.contract import AudioArray
from synth.models import Segment, Take
from ttsweb.storage import MadeFile, fetch_object

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


# A limiter turned up further than this would be heard more than the loudness that it still gains.
MAX_EXTRA_DB = 9.0
LOUDNESS_TOLERANCE_LU = 0.1
TARGET_TOLERANCE_LU = 0.5
PEAK_LIMIT_DBTP = -1.0  # EBU R 128: what a file may reach between its samples
MAX_PEAKS = 1000
MAX_PASSES = 8
_MAX_WRITES = 5
_PEAK_MARGIN_DB = 0.05
_LEAST_YIELD = 0.2  # a limiter that is at work all the time gives less back than this for a dB


@dataclass(slots=True)
class Level:
    """How loud a signal is to be made: one gain, and the ceiling of its peaks, both in dB.

    `extra_db` is how much of the gain makes up for what the limiter costs.
    """

    gain_db: float = 0.0
    ceiling_dbtp: float | None = None
    extra_db: float = 0.0
    yielded: float = 1.0  # how much louder a dB of gain made the signal so far
    before: tuple[float, float] | None = None  # gain and loudness that were measured before

    def apply(
        self, blocks: Iterable[AudioArray], sample_rate: int
    ) -> tuple[Iterable[AudioArray], PeakLimiter | None]:
        """Return the blocks with gain and ceiling, and what limits them."""
        if self.gain_db:
            blocks = amplify(blocks, self.gain_db)
        if self.ceiling_dbtp is None:
            return blocks, None
        limiter = PeakLimiter(sample_rate, ceiling=10 ** (self.ceiling_dbtp / 20))
        return limiter.limit(blocks), limiter

    def approach(self, target: float, found: float | None) -> bool:
        """Correct the gain by the LUFS that it gave; return whether that makes a difference.

        What the limiter alone has cost is made up for, as far as that is not heard more than it.
        """
        if found is None:
            return False
        if self.before is not None and abs(self.gain_db - self.before[0]) > LOUDNESS_TOLERANCE_LU:
            slope = (found - self.before[1]) / (self.gain_db - self.before[0])
            self.yielded = min(1.0, max(_LEAST_YIELD, slope))
        self.before = (self.gain_db, found)
        step = min((target - found) / self.yielded, MAX_EXTRA_DB - self.extra_db)
        if min(abs(target - found), abs(step)) <= LOUDNESS_TOLERANCE_LU:
            return False
        self.gain_db += step
        self.extra_db += step
        return True


def find_level(
    signal: Iterable[AudioArray], sample_rate: int, *, target_lufs: float, ceiling_dbtp: float
) -> Level | None:
    """Return the level for a signal that is read anew by each pass; None where it has no loudness.

    The loudness is within LOUDNESS_TOLERANCE_LU of the target, or as near as MAX_EXTRA_DB and
    MAX_PASSES let it come.

    Args:
        signal: mono blocks, float32 [n]; iterable as often as asked for.
        ceiling_dbtp: what no true peak may exceed.
    """
    plain = measure_loudness(signal, sample_rate)
    if plain.integrated_lufs is None:
        return None
    level = Level(target_lufs - plain.integrated_lufs, ceiling_dbtp)
    if plain.true_peak_dbtp + level.gain_db <= ceiling_dbtp:
        return level
    for _ in range(MAX_PASSES - 1):
        limited, _ = level.apply(signal, sample_rate)
        found = measure_loudness(limited, sample_rate).integrated_lufs
        if not level.approach(target_lufs, found):
            break
    level.before = None  # a codec gives another loudness
    return level


def amplify(blocks: Iterable[AudioArray], gain_db: float) -> Iterator[AudioArray]:
    gain = np.float32(10 ** (gain_db / 20))
    for block in blocks:
        yield (block * gain).astype(np.float32)


class ExportUnwantedError(Exception):
    """The export was deleted or taken over while its file was made."""


@dataclass(frozen=True, slots=True)
class AudioOptions:
    """What a job asks of its file; None leaves it as it comes.

    `sample_rate` in Hz, `bit_rate` in bits per second, `loudness` in LUFS.
    """

    format: str
    sample_rate: int | None = None
    bit_rate: int | None = None
    loudness: float | None = None


class _Written(NamedTuple):
    num_samples: int
    loudness: Loudness
    peaks: list[int]
    limiter_db: float  # the most that a peak was turned down


def make_file(
    path: Path, takes: JoinedTakes, options: AudioOptions, *, is_unwanted: Callable[[], bool]
) -> MadeFile:
    """Write the takes to a new file at `path`; the memory this needs does not grow with them.

    Args:
        is_unwanted: asked between blocks; true stops the work.

    Raises:
        ExportUnwantedError: nobody waits for the file any more.
        TakeMissingError, FileTooLongError, OSError: as reading and writing raise them.
    """
    rate = file_rate(
        options.format, takes.sample_rate, asked=options.sample_rate, bit_rate=options.bit_rate
    )
    blocks = _Source(takes, rate, is_unwanted)
    level = None
    if options.loudness is not None:
        ceiling = PEAK_LIMIT_DBTP - _PEAK_MARGIN_DB
        level = find_level(blocks, rate, target_lufs=options.loudness, ceiling_dbtp=ceiling)
    level = level or Level()  # where no loudness is asked for, or there is none, as it comes
    written = _write(path, blocks, rate, options, level)
    for _ in range(_MAX_WRITES - 1):
        if not _adjust(level, written, options.loudness):
            break
        written = _write(path, blocks, rate, options, level)
    return MadeFile.of(
        path,
        duration_seconds=written.num_samples / rate,
        report=_report(path, written, rate, options, level),
        peaks=written.peaks,
        cues=[
            Cue(
                cue.segment_id,
                *(round(at * rate / takes.sample_rate) for at in (cue.start, cue.end)),
            )
            for cue in takes.cues
        ],
        sample_rate=rate,
    )


class _Source:
    """Read the takes at the file's rate, as often as needed."""

    def __init__(self, takes: JoinedTakes, rate: int, is_unwanted: Callable[[], bool]) -> None:
        self._takes, self._rate, self._is_unwanted = takes, rate, is_unwanted

    def __iter__(self) -> Iterator[AudioArray]:
        return self.watched(resample(self._takes.blocks(), self._takes.sample_rate, self._rate))

    def watched(self, blocks: Iterable[AudioArray]) -> Iterator[AudioArray]:
        for block in blocks:
            if self._is_unwanted():
                raise ExportUnwantedError
            yield block


def _write(path: Path, source: _Source, rate: int, options: AudioOptions, level: Level) -> _Written:
    """Write the file once, then measure what it holds."""
    blocks, limiter = level.apply(source, rate)
    num_samples = 0
    path.unlink(missing_ok=True)
    with open_writer(path, options.format, rate, options.bit_rate) as writer:
        for block in blocks:
            writer.write(block)
            num_samples += len(block)
    meter, peaks = LoudnessMeter(rate), WaveformPeaks(num_samples, most=MAX_PEAKS)
    for block in source.watched(read_blocks(path, options.format, rate)):
        meter.push(block)
        peaks.push(block)
    turned_down = max(0.0, -20 * np.log10(limiter.lowest_gain)) if limiter else 0.0
    return _Written(num_samples, meter.close(), peaks.values(), float(turned_down))


def _adjust(level: Level, written: _Written, target: float | None) -> bool:
    """Correct the level by what was measured; return whether another writing can help."""
    if target is None or level.ceiling_dbtp is None:
        return False
    over = written.loudness.true_peak_dbtp - PEAK_LIMIT_DBTP
    if over > 0:
        level.ceiling_dbtp -= over + _PEAK_MARGIN_DB
    return level.approach(target, written.loudness.integrated_lufs) or over > 0


def _report(
    path: Path, written: _Written, rate: int, options: AudioOptions, level: Level
) -> dict[str, Any]:
    """Return what was measured on the file, and what was done to make it so."""
    seconds = written.num_samples / rate
    loudness = written.loudness
    found, target = loudness.integrated_lufs, options.loudness
    is_reached = found is not None and abs(found - (target or 0)) <= TARGET_TOLERANCE_LU
    note = ""
    if target is not None and found is None:
        note = "The file is silent or shorter than 0.4 s, so its loudness cannot be changed."
    elif target is not None and not is_reached:
        note = (
            f"The peaks of the speech reach {PEAK_LIMIT_DBTP:g} dBTP before the target loudness "
            f"is reached; more than {found:g} LUFS would distort them."
        )
    return {
        "seconds": seconds,
        "sample_rate": rate,
        "channels": 1,
        "bit_rate": mean_bit_rate(path, options.format, seconds),
        "loudness_lufs": found,
        "true_peak_dbtp": loudness.true_peak_dbtp,
        "target_lufs": target,
        "target_reached": None if target is None else is_reached,
        "gain_db": round(level.gain_db, 2),
        "limiter_db": round(written.limiter_db, 2),
        "note": note,
    }
