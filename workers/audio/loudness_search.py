"""Find the gain that brings a signal to a loudness though its peaks are limited.

A limiter costs loudness, the more the further it is turned up; so the gain is searched for, by
passes over the signal that write nothing. Memory does not grow with the signal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from synth.contract import AudioArray
from workers.audio.loudness import LoudnessMeter
from workers.audio.peak_limiter import PeakLimiter

# A limiter turned up further than this would be heard more than the loudness that it still gains.
MAX_EXTRA_DB = 9.0
TOLERANCE_LU = 0.1
MAX_PASSES = 8
_LEAST_YIELD = 0.2  # a limiter that is at work all the time gives less back than this for a dB


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
    meter = LoudnessMeter(sample_rate)
    for block in signal:
        meter.push(block)
    plain = meter.close()
    if plain.integrated_lufs is None:
        return None
    gain = target_lufs - plain.integrated_lufs
    if plain.true_peak_dbtp + gain <= ceiling_dbtp:
        return FoundGain(gain, 0.0, target_lufs, 1.0)
    extra, yielded, loudness = 0.0, 1.0, plain.integrated_lufs
    before: tuple[float, float] | None = None  # extra and loudness of the pass before
    for _ in range(MAX_PASSES - 1):
        measured = _limited_loudness(signal, sample_rate, gain + extra, ceiling_dbtp)
        if measured is None:  # cannot be: what had a loudness is louder now
            break
        loudness = measured
        if before is not None and abs(extra - before[0]) > TOLERANCE_LU:
            slope = (loudness - before[1]) / (extra - before[0])
            yielded = min(1.0, max(_LEAST_YIELD, slope))
        missing = target_lufs - loudness
        wanted = min(MAX_EXTRA_DB, max(0.0, extra + missing / yielded))
        if abs(missing) <= TOLERANCE_LU or abs(wanted - extra) <= TOLERANCE_LU:
            break
        before, extra = (extra, loudness), wanted
    else:
        extra = before[0] if before is not None else extra  # the last that was measured
    return FoundGain(gain + extra, extra, loudness, yielded)


def amplified(blocks: Iterable[AudioArray], gain_db: float) -> Iterator[AudioArray]:
    """Yield blocks made louder by a gain."""
    gain = np.float32(10 ** (gain_db / 20))
    for block in blocks:
        yield (block * gain).astype(np.float32)


def _limited_loudness(
    signal: Iterable[AudioArray], sample_rate: int, gain_db: float, ceiling_dbtp: float
) -> float | None:
    limiter = PeakLimiter(sample_rate, ceiling=10 ** (ceiling_dbtp / 20))
    meter = LoudnessMeter(sample_rate)
    for block in limiter.limit(amplified(signal, gain_db)):
        meter.push(block)
    return meter.close().integrated_lufs
