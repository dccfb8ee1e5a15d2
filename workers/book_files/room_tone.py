"""Make room tone: a faint noise below speech, so that pauses are quiet and never digital silence.

The same position gives the same sample on every machine, so that encodes stay comparable.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from synth.contract import AudioArray

_PERIOD = 1 << 18  # about six seconds: too long for the ear to notice in noise
_SEED = 0x700E
_SMOOTHED = 4  # neighbours that are averaged: rooms hiss less than white noise does


def room_tone(start: int, num_samples: int, level_dbfs: float) -> AudioArray:
    """Return tone for samples `start` up to `start + num_samples`, float32, at an RMS in dBFS."""
    period = _period()
    places = (start % _PERIOD + np.arange(num_samples)) % _PERIOD
    return (period[places] * np.float32(10 ** (level_dbfs / 20))).astype(np.float32)


@lru_cache(maxsize=1)
def _period() -> AudioArray:
    """Return one period with an RMS of 1 that joins itself without a step.

    A bit generator's raw output is fixed for ever, while numpy's distributions may change.
    """
    raw = np.random.PCG64(_SEED).random_raw(_PERIOD)
    flat = (raw >> np.uint64(11)).astype(np.float64) / 2**53 - 0.5
    smooth = sum((np.roll(flat, shift) for shift in range(1, _SMOOTHED)), start=flat.copy())
    smooth -= smooth.mean()
    level = math.sqrt(float(np.mean(smooth**2)))
    tone: AudioArray = (smooth / level).astype(np.float32)
    return tone
