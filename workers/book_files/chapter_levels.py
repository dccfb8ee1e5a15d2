"""Measure a chapter as audiobook shops do: RMS, peak, noise floor, and loudness beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synth.contract import AudioArray
from workers.audio.clip_measures import FLOOR_DBFS, dbfs
from workers.audio.loudness import LoudnessMeter

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

    def to_json(self) -> dict[str, Any]:
        """Return the values by name."""
        return asdict(self)


class LevelMeter:
    """Measure a mono signal that comes in blocks, in memory that does not grow with it."""

    def __init__(self, sample_rate: int) -> None:
        """Prepare for a signal at `sample_rate` Hz."""
        self._rate = sample_rate
        self._bin = max(1, round(sample_rate * FLOOR_WINDOW_SECONDS / _BINS))
        self._loudness = LoudnessMeter(sample_rate)
        self._energy = 0.0
        self._peak = 0.0
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
            rms_dbfs=_rounded(power),
            peak_dbfs=round(dbfs(self._peak), 2),
            true_peak_dbtp=loudness.true_peak_dbtp,
            floor_dbfs=_rounded(floor),
            loudness_lufs=loudness.integrated_lufs,
        )


def measure_levels(blocks: Iterable[AudioArray], sample_rate: int) -> Levels:
    """Return the levels of mono audio, float32 [n] each, at `sample_rate` Hz."""
    meter = LevelMeter(sample_rate)
    for block in blocks:
        meter.push(block)
    return meter.close()


def _rounded(power: float) -> float:
    return round(dbfs(math.sqrt(max(0.0, power))), 2) if power > 0 else FLOOR_DBFS
