"""Find peaks between samples: what a converter makes of them may be louder than any of them.

Oversampling as in ITU-R BS.1770-4 (annex 2), by eight where it asks for four or more, since files
have rates down to 8 kHz, and with a longer filter than its example.
"""

from __future__ import annotations

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
