"""Draw a waveform in a few numbers: the loudest sample of each of equal parts. Pure numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

FULL_SCALE = 255


class WaveformPeaks:
    """Collect the parts of a signal whose length is known and which comes in blocks."""

    def __init__(self, num_samples: int, *, most: int) -> None:
        """Prepare at most `most` parts; a signal of fewer samples has one for each."""
        self._num_samples = max(1, num_samples)
        self._levels = np.zeros(min(most, num_samples), dtype=np.float32)
        self._position = 0

    def push(self, block: FloatArray) -> None:
        """Take the next samples, float32 [n]; what goes beyond the known length is left out."""
        count = len(self._levels)
        levels = np.abs(block[: max(0, self._num_samples - self._position)])
        if not count or not len(levels):
            return
        first = self._position * count // self._num_samples
        last = (self._position + len(levels) - 1) * count // self._num_samples
        edges = [-(-part * self._num_samples // count) for part in range(first + 1, last + 1)]
        starts = [0, *(edge - self._position for edge in edges)]
        found = np.maximum.reduceat(levels, starts)
        np.maximum(self._levels[first : last + 1], found, out=self._levels[first : last + 1])
        self._position += len(levels)

    def values(self) -> list[int]:
        """Return the parts' levels, 0 for silence, 255 for full scale and beyond."""
        scaled = np.rint(np.minimum(self._levels, 1.0) * FULL_SCALE)
        return [int(value) for value in scaled]


def peaks_of(waveform: FloatArray, *, most: int) -> list[int]:
    """Return at most `most` values, 0 to 255, of a whole mono signal float32 [N]."""
    peaks = WaveformPeaks(len(waveform), most=most)
    peaks.push(waveform)
    return peaks.values()
