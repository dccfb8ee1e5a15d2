"""Hold audio below a true peak without a click: look ahead, turn down, let go slowly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from synth.contract import AudioArray

FloatArray = npt.NDArray[np.float32]

TAPS = 32  # of each phase; a sample's neighbours that its filter looks at, half on each side
BEFORE, AFTER = TAPS // 2 - 1, TAPS // 2
_PHASES = 8
_PIECE = 2048  # samples that are looked at, or passed over, together
_STEPS = np.arange(-BEFORE, AFTER + 1)


def _filters() -> list[FloatArray]:
    """Return the windowed sincs of the moments between two samples."""
    found = []
    for phase in range(1, _PHASES):
        distance = _STEPS - phase / _PHASES
        window = np.i0(8.0 * np.sqrt(1 - (distance / (TAPS / 2 + 0.5)) ** 2)) / np.i0(8.0)
        taps = np.sinc(distance) * window
        found.append((taps / taps.sum()).astype(np.float32))
    return found


_FILTERS = _filters()
# No moment between samples can be louder than this times the loudest sample around it.
BOUND = float(max(np.abs(taps).sum() for taps in _FILTERS))


def peaks_from(samples: AudioArray) -> FloatArray:
    """Return for each sample the greatest level from it up to the next one.

    Args:
        samples: float32 [BEFORE + n + AFTER]; the filters need those at both ends.

    Returns:
        float32 [n], linear.
    """
    middle = samples[BEFORE : len(samples) - AFTER]
    highest = np.abs(middle)
    for taps in _FILTERS:
        between = np.correlate(samples, taps, mode="valid")
        np.maximum(highest, np.abs(between), out=highest)
    return highest


class TruePeakMeter:
    """Keep the greatest level of a signal that comes in blocks."""

    def __init__(self) -> None:
        self._highest = 0.0
        self._kept: FloatArray = np.zeros(BEFORE, dtype=np.float32)

    def push(self, block: AudioArray) -> None:
        """Take the next samples, float32 [n]."""
        samples = np.concatenate((self._kept, block))
        count = len(samples) - BEFORE - AFTER
        if count <= 0:
            self._kept = samples
            return
        self._look(samples, count)
        self._kept = samples[count:]

    def close(self) -> float:
        """Return the greatest level, linear; call it once, after the last block."""
        self.push(np.zeros(AFTER + BEFORE, dtype=np.float32))
        return self._highest

    def _look(self, samples: FloatArray, count: int) -> None:
        """Look at pieces from the loudest on, down to where none can be louder than was found."""
        starts = range(0, count, _PIECE)
        pieces = [samples[start : start + _PIECE + BEFORE + AFTER] for start in starts]
        levels = [float(np.abs(piece).max()) for piece in pieces]
        for index in np.argsort(levels)[::-1]:
            if levels[index] * BOUND <= self._highest:
                return
            self._highest = max(self._highest, float(peaks_from(pieces[index]).max()))


# A voice's peaks come every 3 to 12 ms: the gain stays down from one to the next, so that it does
# not follow the wave itself, which would be heard as distortion.
_REACH_SECONDS = 0.015


class PeakLimiter:
    """Limit one signal; `lowest_gain` is, afterwards, the most that it was turned down."""

    def __init__(self, sample_rate: int, *, ceiling: float) -> None:
        """Prepare for a signal at `sample_rate`; `ceiling` is linear, above 0."""
        self.lowest_gain = 1.0
        self._ceiling = ceiling
        self._reach = max(1, round(_REACH_SECONDS * sample_rate))
        self._margin = 2 * self._reach + max(BEFORE, AFTER) + 1

    def limit(self, blocks: Iterable[AudioArray]) -> Iterator[AudioArray]:
        """Yield as many samples as come in, float32 [n]; none of them, nor the curve between them,
        goes beyond the ceiling by more than a rounding error.
        """
        silence = np.zeros(self._margin, dtype=np.float32)
        held = silence
        for block in chain(blocks, (silence,)):
            held = np.concatenate((held, block))
            if len(held) > 2 * self._margin:
                yield self._limit(held)
                held = held[len(held) - 2 * self._margin :]

    def _limit(self, samples: AudioArray) -> AudioArray:
        """Return the samples without the margins on both sides."""
        inner = samples[self._margin : len(samples) - self._margin]
        if float(np.abs(samples).max()) * BOUND <= self._ceiling:
            return inner
        levels = peaks_from(samples)  # of samples[BEFORE:-AFTER], each up to its next
        around = np.maximum(levels[1:], levels[:-1])  # of samples[BEFORE + 1:-AFTER]
        needed = np.minimum(1.0, self._ceiling / np.maximum(around, 1e-9))
        spare = self._margin - 2 * self._reach
        needed = needed[spare - BEFORE - 1 : len(needed) - (spare - AFTER)]
        # The mean of minima over the same reach is never above what its middle needs.
        gain = _sliding_mean(_sliding_minimum(needed, self._reach), self._reach)
        self.lowest_gain = min(self.lowest_gain, float(gain.min()))
        return (inner * gain).astype(np.float32)


def _sliding_minimum(values: npt.NDArray[np.float32], reach: int) -> npt.NDArray[np.float32]:
    """Return the least of each value and `reach` on both sides; 2 * `reach` fewer than came in."""
    width, lowest = 1, values
    while 2 * width <= 2 * reach + 1:
        lowest = np.minimum(lowest[:-width], lowest[width:])
        width *= 2
    rest = 2 * reach + 1 - width
    return np.minimum(lowest[:-rest], lowest[rest:]) if rest else lowest


def _sliding_mean(values: npt.NDArray[np.float32], reach: int) -> npt.NDArray[np.float64]:
    """Return the mean of each value and `reach` on both sides; 2 * `reach` fewer than came in."""
    width = 2 * reach + 1
    sums = np.cumsum(np.concatenate(([0.0], values.astype(np.float64))))
    means: npt.NDArray[np.float64] = (sums[width:] - sums[:-width]) / width
    return means
