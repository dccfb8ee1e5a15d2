"""Write a voice's pitch and phase as numbers, so that a frame's codes tell its samples.

Pitch is given at the ends of frames, in multiples of `GRID_HZ`, and is a straight line between
them. A frame of 40 ms then holds (m + m') / 16 periods, where m and m' are the numbers at its
ends, so the phase at a frame's end is a multiple of a sixteenth of a period too, and
(2 x phase number - m) mod 16 is it. The phase number counts up by m, mod 8.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
GRID_HZ = 25 / 8
LOWEST, HIGHEST = 19, 128  # 59 to 400 Hz
NUM_PHASES = 8
SIXTEENTHS = 16  # of a period, in which the phase at a frame's end is counted


def pitch_numbers(hz: npt.NDArray[np.float64]) -> Numbers:
    """Return the nearest numbers to pitches."""
    return np.clip(np.round(hz / GRID_HZ), LOWEST, HIGHEST).astype(np.int64)


def phase_numbers(pitches: Numbers, start: int) -> Numbers:
    """Return the phase number of every frame [T], for pitches [T + 1] at the frames' ends.

    `start` is the number before the first frame, 0 to 7: any of them sounds the same.
    """
    return np.asarray((start + np.cumsum(pitches[1:])) % NUM_PHASES)


def phases_at_ends(pitches: Numbers, start: int) -> Numbers:
    """Return the phases at the frames' ends in sixteenths of a period, [T + 1]."""
    numbers = np.concatenate([[start], phase_numbers(pitches, start)])
    return np.asarray((2 * numbers - pitches) % SIXTEENTHS)
