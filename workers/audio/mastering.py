"""Make a job's file of its joined takes: rate, loudness, peaks, and a report measured on the file.

Loudness takes one gain for the whole file, which is searched for before anything is written. What
was written is read back and measured; a codec raises peaks and costs loudness, so the file is
written again, a few times at most, until both are as asked or cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from synth.contract import AudioArray
from synth.made_file import MadeFile
from workers.audio.clips import WaveformPeaks
from workers.audio.filters import (
    Loudness,
    LoudnessMeter,
    PeakLimiter,
    measure_loudness,
    resample,
)
from workers.audio.joined_takes import Cue, JoinedTakes
from workers.audio.writers import file_rate, mean_bit_rate, open_writer, read_blocks

# A limiter turned up further than this would be heard more than the loudness that it still gains.
MAX_EXTRA_DB = 9.0
TOLERANCE_LU = 0.1
MAX_PASSES = 8
_LEAST_SEARCHED_YIELD = (
    0.2  # a limiter that is at work all the time gives less back than this for a dB
)


class FoundGain(NamedTuple):
    """A gain, of which `extra_db` makes up for the limiter, and the loudness that it gives.

    `yielded` is how much louder the last dB of gain made the signal.
    """

    gain_db: float
    extra_db: float
    loudness_lufs: float
    yielded: float


def find_gain(
    signal: Iterable[AudioArray], sample_rate: int, *, target_lufs: float, ceiling_dbtp: float
) -> FoundGain | None:
    """Return the gain for a signal that is read anew by each pass; None where it has no loudness.

    The loudness is within TOLERANCE_LU of the target, or as near as MAX_EXTRA_DB and MAX_PASSES
    let it come.

    Args:
        signal: mono blocks, float32 [n]; iterable as often as asked for.
        ceiling_dbtp: what no true peak may exceed.
    """
    plain = measure_loudness(signal, sample_rate)
    if plain.integrated_lufs is None:
        return None
    gain = target_lufs - plain.integrated_lufs
    if plain.true_peak_dbtp + gain <= ceiling_dbtp:
        return FoundGain(gain, 0.0, target_lufs, 1.0)
    extra, yielded, loudness = 0.0, 1.0, plain.integrated_lufs
    before: tuple[float, float] | None = None  # extra and loudness of the pass before
    for _ in range(MAX_PASSES - 1):
        limiter = PeakLimiter(sample_rate, ceiling=10 ** (ceiling_dbtp / 20))
        limited = limiter.limit(amplify(signal, gain + extra))
        measured = measure_loudness(limited, sample_rate).integrated_lufs
        if measured is None:  # cannot be: what had a loudness is louder now
            break
        loudness = measured
        if before is not None and abs(extra - before[0]) > TOLERANCE_LU:
            slope = (loudness - before[1]) / (extra - before[0])
            yielded = min(1.0, max(_LEAST_SEARCHED_YIELD, slope))
        missing = target_lufs - loudness
        wanted = min(MAX_EXTRA_DB, max(0.0, extra + missing / yielded))
        if abs(missing) <= TOLERANCE_LU or abs(wanted - extra) <= TOLERANCE_LU:
            break
        before, extra = (extra, loudness), wanted
    else:
        extra = before[0] if before is not None else extra  # the last that was measured
    return FoundGain(gain + extra, extra, loudness, yielded)


def amplify(blocks: Iterable[AudioArray], gain_db: float) -> Iterator[AudioArray]:
    gain = np.float32(10 ** (gain_db / 20))
    for block in blocks:
        yield (block * gain).astype(np.float32)


MAX_PEAKS = 1000
PEAK_LIMIT_DBTP = -1.0  # EBU R 128: what a file may reach between its samples
LOUDNESS_TOLERANCE_LU = 0.1
TARGET_TOLERANCE_LU = 0.5
_PEAK_MARGIN_DB = 0.05
_MAX_WRITES = 5
_LEAST_YIELD = 0.25  # a limiter that is at work all the time gives less back than this for a dB


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


@dataclass(slots=True)
class _Level:
    """How loud the next writing is to be: one gain, and the ceiling of its peaks, both in dB.

    `extra_db` is how much of the gain makes up for what the limiter costs; `yielded` how much
    louder a dB of gain made the file so far.
    """

    gain_db: float = 0.0
    ceiling_dbtp: float | None = None
    extra_db: float = 0.0
    yielded: float = 1.0
    before: tuple[float, float] | None = None  # gain and loudness of the writing before

    def yield_of(self, lufs: float | None) -> float:
        """Return how much louder a dB of gain makes the file, by the last two writings."""
        now = None if lufs is None else (self.gain_db, lufs)
        before, self.before = self.before, now
        if before is None or now is None or abs(now[0] - before[0]) < LOUDNESS_TOLERANCE_LU:
            return self.yielded
        return min(1.0, max(_LEAST_YIELD, (now[1] - before[1]) / (now[0] - before[0])))


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
    level = _Level()
    if options.loudness is not None:  # else, and where there is no loudness, as it comes
        ceiling = PEAK_LIMIT_DBTP - _PEAK_MARGIN_DB
        found = find_gain(blocks, rate, target_lufs=options.loudness, ceiling_dbtp=ceiling)
        if found is not None:
            level = _Level(found.gain_db, ceiling, found.extra_db, found.yielded)
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


def _write(
    path: Path, source: _Source, rate: int, options: AudioOptions, level: _Level
) -> _Written:
    """Write the file once, then measure what it holds."""
    limiter = None
    blocks: Iterable[AudioArray] = source
    if level.gain_db:
        blocks = amplify(blocks, level.gain_db)
    if level.ceiling_dbtp is not None:
        limiter = PeakLimiter(rate, ceiling=10 ** (level.ceiling_dbtp / 20))
        blocks = limiter.limit(blocks)
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


def _adjust(level: _Level, written: _Written, target: float | None) -> bool:
    """Correct the level by what was measured; return whether another writing can help."""
    if target is None or level.ceiling_dbtp is None:
        return False
    found = written.loudness.integrated_lufs
    missing = 0.0 if found is None else target - found
    is_changed = False
    over = written.loudness.true_peak_dbtp - PEAK_LIMIT_DBTP
    if over > 0:
        level.ceiling_dbtp -= over + _PEAK_MARGIN_DB
        is_changed = True
    # What the limiter alone has cost is made up for, as far as that is not heard more than it.
    step = min(missing / level.yield_of(found), MAX_EXTRA_DB - level.extra_db)
    if abs(missing) > LOUDNESS_TOLERANCE_LU and abs(step) > LOUDNESS_TOLERANCE_LU:
        level.gain_db += step
        level.extra_db += step
        is_changed = True
    return is_changed


def _report(
    path: Path, written: _Written, rate: int, options: AudioOptions, level: _Level
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
