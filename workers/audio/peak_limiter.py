"""Hold audio below a true peak without a click: look ahead, turn down, let go slowly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from synth.contract import AudioArray
from workers.audio.true_peak import AFTER, BEFORE, BOUND, peaks_from

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
                yield self._limited(held)
                held = held[len(held) - 2 * self._margin :]

    def _limited(self, samples: AudioArray) -> AudioArray:
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
