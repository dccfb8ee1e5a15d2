"""Master a chapter: one gain for all of it, a limiter, room tone below it and at both ends.

Never a gain per sentence: neighbours would jump. What voices differ by is evened out before, by
one gain for each voice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from synth.audio.filters import LoudnessMeter, PeakLimiter, resample
from synth.contract import AudioArray
from workers.audio.clips import FLOOR_DBFS, dbfs
from workers.book_files.book_audio import BookAudio, ChapterAudio, SegmentSpan

FLOOR_WINDOW_SECONDS = 0.5
_BINS = 10  # of a window: it moves by a tenth of its length


@dataclass(frozen=True, slots=True)
class Levels:
    """Hold what was measured; `loudness_lufs` is None of what is silent or shorter than 0.4 s.

    `floor_dbfs` is the RMS of the quietest half second.
    """

    num_samples: int
    seconds: float
    rms_dbfs: float
    peak_dbfs: float
    true_peak_dbtp: float
    floor_dbfs: float
    loudness_lufs: float | None


class LevelMeter:
    """Measure a mono signal that comes in blocks, in memory that does not grow with it."""

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate
        self._bin = max(1, round(sample_rate * FLOOR_WINDOW_SECONDS / _BINS))
        self._loudness = LoudnessMeter(sample_rate)
        self._energy = self._peak = 0.0
        self._count = 0
        self._rest: npt.NDArray[np.float32] = np.empty(0, np.float32)
        self._bins: npt.NDArray[np.float64] = np.empty(0, np.float64)
        self._floor = math.inf

    def push(self, block: AudioArray) -> None:
        """Take the next samples, float32 [n]."""
        if not len(block):
            return
        self._loudness.push(block)
        self._energy += float(np.einsum("i,i->", block, block, dtype=np.float64))
        self._peak = max(self._peak, float(np.abs(block).max()))
        self._count += len(block)
        held = np.concatenate((self._rest, block))
        whole = held[: len(held) // self._bin * self._bin].reshape(-1, self._bin)
        self._rest = held[whole.size :]
        energies = np.einsum("ij,ij->i", whole, whole, dtype=np.float64)
        self._bins = np.concatenate((self._bins, energies))
        if len(self._bins) >= _BINS:
            sums = np.convolve(self._bins, np.ones(_BINS), mode="valid")
            self._floor = min(self._floor, float(sums.min()) / (_BINS * self._bin))
            self._bins = self._bins[1 - _BINS :]

    def close(self) -> Levels:
        """Return what was measured; call it once, after the last block."""
        loudness = self._loudness.close()
        power = self._energy / self._count if self._count else 0.0
        floor = self._floor if math.isfinite(self._floor) else power
        return Levels(
            num_samples=self._count,
            seconds=round(self._count / self._rate, 4),
            rms_dbfs=_round_level(power),
            peak_dbfs=round(dbfs(self._peak), 2),
            true_peak_dbtp=loudness.true_peak_dbtp,
            floor_dbfs=_round_level(floor),
            loudness_lufs=loudness.integrated_lufs,
        )


def measure_levels(blocks: Iterable[AudioArray], sample_rate: int) -> Levels:
    """Return the levels of mono audio, float32 [n] each, at `sample_rate` Hz."""
    meter = LevelMeter(sample_rate)
    for block in blocks:
        meter.push(block)
    return meter.close()


def _round_level(power: float) -> float:
    return round(dbfs(math.sqrt(power)), 2) if power > 0 else FLOOR_DBFS


# The same position gives the same sample on every machine, so that encodes stay comparable.
_PERIOD = 1 << 18  # about six seconds: too long for the ear to notice in noise
_SEED = 0x700E
_SMOOTHED = 4  # neighbours that are averaged: rooms hiss less than white noise does


def room_tone(start: int, num_samples: int, level_dbfs: float) -> AudioArray:
    """Return tone for samples `start` up to `start + num_samples`, float32, at an RMS in dBFS."""
    places = (start % _PERIOD + np.arange(num_samples)) % _PERIOD
    return (_tone_period()[places] * np.float32(10 ** (level_dbfs / 20))).astype(np.float32)


@lru_cache(maxsize=1)
def _tone_period() -> AudioArray:
    """Return one period with an RMS of 1 that joins itself without a step.

    A bit generator's raw output is fixed for ever, while numpy's distributions may change.
    """
    raw = np.random.PCG64(_SEED).random_raw(_PERIOD)
    flat = (raw >> np.uint64(11)).astype(np.float64) / 2**53 - 0.5
    smooth = sum((np.roll(flat, shift) for shift in range(1, _SMOOTHED)), start=flat.copy())
    smooth -= smooth.mean()
    tone: AudioArray = (smooth / math.sqrt(float(np.mean(smooth**2)))).astype(np.float32)
    return tone


FRAME_SAMPLES = 1024  # of AAC: a chapter is whole frames, so that encodes join without a gap
BLOCK_SAMPLES = 1 << 17
MAX_GAIN_DB = 40.0  # a chapter that needs more is as good as silent: only its noise would rise


@dataclass(frozen=True, slots=True)
class Mastering:
    """Say how a chapter is to sound: one of the two targets, and limits that files must keep.

    Levels in dBFS, dBTP or LUFS; None means that nothing is asked. Shops ask for 0.5 to 1 second
    of room tone at a file's head, and 1 to 5 at its tail.
    """

    name: str
    target_lufs: float | None = None
    target_rms_dbfs: float | None = None
    peak_limit_dbtp: float = -1.0
    rms_range_dbfs: tuple[float, float] | None = None
    floor_limit_dbfs: float | None = None
    tolerance_db: float = 0.5
    head_seconds: float = 0.75
    tail_seconds: float = 2.0
    tone_dbfs: float = -75.0

    def missing_db(self, levels: Levels) -> float | None:
        """Return the dB up to the target; None where there is nothing to make louder."""
        if levels.loudness_lufs is None:
            return None
        if self.target_lufs is not None:
            return self.target_lufs - levels.loudness_lufs
        assert self.target_rms_dbfs is not None
        return self.target_rms_dbfs - levels.rms_dbfs


STANDARD = Mastering("standard", target_lufs=-18.0, floor_limit_dbfs=-60.0)
ACX = Mastering(
    "acx",
    target_rms_dbfs=-20.0,
    peak_limit_dbtp=-3.0,
    rms_range_dbfs=(-23.0, -18.0),
    floor_limit_dbfs=-60.0,
)
PRESETS = {one.name: one for one in (STANDARD, ACX)}


@dataclass(slots=True)
class Level:
    """Say how a chapter is written: its gain, and the ceiling of its peaks, both in dB."""

    gain_db: float
    ceiling_dbtp: float
    limiter_db: float = 0.0  # the most that a peak was turned down, by the last writing


class MasteredChapter:
    """Read a chapter as it goes into files of `file_rate` Hz, as often as needed."""

    def __init__(
        self, book: BookAudio, chapter: ChapterAudio, mastering: Mastering, file_rate: int
    ) -> None:
        self.mastering, self.file_rate = mastering, file_rate
        self.head = round(mastering.head_seconds * file_rate)
        self._chapter, self._rate = chapter, book.sample_rate
        gains = book.voice_gains_db
        self.gains_db = [
            (span.start, span.end, gains[span.voice])
            for span in chapter.segments
            if gains.get(span.voice, 0.0)
        ]

    def survey(self) -> Levels:
        """Return what the chapter's speech measures, before anything was done to it."""
        return measure_levels(self._speech(), self.file_rate)

    def num_samples(self, speech: int) -> int:
        """Return a file's samples, whole frames, of a chapter with `speech` samples."""
        tail = round(self.mastering.tail_seconds * self.file_rate)
        return -(-(self.head + speech + tail) // FRAME_SAMPLES) * FRAME_SAMPLES

    def blocks(self, length: int, level: Level) -> Iterator[AudioArray]:
        """Yield `length` samples of mastered audio, float32 [n], over one continuous room tone.

        `level.limiter_db` is known after the last.
        """
        limiter = PeakLimiter(self.file_rate, ceiling=10 ** (level.ceiling_dbtp / 20))
        yield from limiter.limit(self._with_tone(length, np.float32(10 ** (level.gain_db / 20))))
        level.limiter_db = round(float(-20 * np.log10(limiter.lowest_gain)), 2) + 0.0

    def spans(self) -> list[SegmentSpan]:
        """Return the segments as they lie in the files."""

        def place(sample: int) -> int:
            return self.head + round(sample * self.file_rate / self._rate)

        return [
            replace(span, start=place(span.start), end=place(span.end))
            for span in self._chapter.segments
        ]

    def _with_tone(self, length: int, gain: np.float32) -> Iterator[AudioArray]:
        position = 0
        for block in self._with_ends(length, gain):
            yield block + room_tone(position, len(block), self.mastering.tone_dbfs)
            position += len(block)

    def _with_ends(self, length: int, gain: np.float32) -> Iterator[AudioArray]:
        yield np.zeros(self.head, np.float32)
        position = self.head
        for block in self._speech():
            position += len(block)
            yield block * gain
        while position < length:
            count = min(BLOCK_SAMPLES, length - position)
            yield np.zeros(count, np.float32)
            position += count

    def _speech(self) -> Iterator[AudioArray]:
        for block in resample(self._levelled(), self._rate, self.file_rate):
            for start in range(0, len(block), BLOCK_SAMPLES):
                yield block[start : start + BLOCK_SAMPLES]

    def _levelled(self) -> Iterator[AudioArray]:
        """Yield the blocks with each span's gain; spans come in order and do not overlap."""
        gains = self.gains_db
        position, index = 0, 0
        for block in self._chapter.blocks():
            end = position + len(block)
            if gains:
                block = block.astype(np.float32)  # a copy: the caller's may be shared
            while index < len(gains) and gains[index][0] < end:
                first, last, gain = gains[index]
                part = slice(max(0, first - position), max(0, last - position))
                block[part] *= np.float32(10 ** (gain / 20))
                if last > end:
                    break
                index += 1
            yield block
            position = end


def first_level(survey: Levels, mastered: MasteredChapter) -> Level:
    """Return the gain that leads from what was measured to the target; none for silence."""
    mastering = mastered.mastering
    ceiling = mastering.peak_limit_dbtp - 0.3  # a codec raises peaks by about as much
    missing = mastering.missing_db(survey)
    if missing is None:
        return Level(0.0, ceiling)
    if mastering.target_rms_dbfs is not None:
        # Head and tail are quiet and count in the RMS of a file.
        share = survey.num_samples / mastered.num_samples(survey.num_samples)
        missing -= float(10 * np.log10(share))
    return Level(min(missing, MAX_GAIN_DB), ceiling)


def adjusted(level: Level, mastering: Mastering, written: Levels) -> Level | None:
    """Return a better level in view of what was measured on the file; None where it holds."""
    over = written.true_peak_dbtp - mastering.peak_limit_dbtp
    missing = min(mastering.missing_db(written) or 0.0, MAX_GAIN_DB - level.gain_db)
    if abs(missing) <= mastering.tolerance_db / 2:
        if over <= 0:
            return None
        missing = 0.0
    ceiling = level.ceiling_dbtp - (over + 0.1 if over > 0 else 0.0)
    # What the limiter eats is given back in part only: it would be heard more than the gain.
    return Level(level.gain_db + max(-6.0, min(6.0, missing)), ceiling)
