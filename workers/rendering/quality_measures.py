"""Measure a rendering for its screening: silence, level, noise, clipping, codes that go in circles.

Pure numpy. A take of ten seconds takes a few milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synth.contract import AudioArray, CodesArray
from workers.audio.clip_measures import FLOOR_DBFS, FULL_SCALE, WINDOW_SECONDS, dbfs

Bools = npt.NDArray[np.bool_]

QUIET_BELOW_PEAK_DB = 40.0  # a window this far below the loudest one is a pause
QUIET_DBFS = -65.0  # and so is one below this, whatever the others are
_SPECTRUM = 1024
_FEWEST_PERIOD_FRAMES, _LONGEST_PERIOD_FRAMES = 4, 220  # about 0.2 and 10 seconds
_FEWEST_LOOP_FRAMES = 16  # a robot's vowel repeats itself for half a second
_FEWEST_CODES = 3  # different ones in what is repeated: a held vowel is no loop


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold what was measured of a rendering; all times are in seconds.

    `active_dbfs` is the level where it is not silent, `loudest_dbfs` that of the loudest 20 ms.
    `noise_share` is the flatness of the spectrum, 0 to 1: about 0.56 for white noise, below 0.3 for
    speech. `loop_share` is how much of the worst stretch equals what came one period before and
    two; `stuck_seconds` is how long one and the same code is heard.
    """

    seconds: float
    active_dbfs: float
    loudest_dbfs: float
    silence_share: float
    leading_silence: float
    trailing_silence: float
    inner_silence: float
    clipped_share: float
    noise_share: float
    loop_share: float
    stuck_seconds: float


def measure_rendering(codes: CodesArray, audio: AudioArray, sample_rate: int) -> Measured:
    """Measure codes int16 [K, T] and their audio float32 [N], which is finite."""
    window = max(1, round(WINDOW_SECONDS * sample_rate))
    seconds = len(audio) / sample_rate
    whole = audio[: len(audio) // window * window].reshape(-1, window)
    if not len(whole) or not codes.shape[1]:
        return Measured(seconds, FLOOR_DBFS, FLOOR_DBFS, 1.0, seconds, seconds, seconds, 0, 0, 0, 0)
    power = np.einsum("ij,ij->i", whole, whole, dtype=np.float64) / window
    loudest = float(power.max())
    quiet_db = max(QUIET_DBFS, 10 * math.log10(loudest + 1e-12) - QUIET_BELOW_PEAK_DB)
    is_active = power > 10 ** (quiet_db / 10)
    active = np.flatnonzero(is_active)
    length = window / sample_rate
    lead, tail, inner = float(len(power)), float(len(power)), float(len(power))
    if len(active):
        lead, tail = float(active[0]), float(len(power) - 1 - active[-1])
        inner = float(np.diff(active).max() - 1) if len(active) > 1 else 0.0
    level = float(power[is_active].mean()) if len(active) else 0.0
    heard = _per_frame(is_active, codes.shape[1])
    return Measured(
        seconds=seconds,
        active_dbfs=dbfs(math.sqrt(level)),
        loudest_dbfs=dbfs(math.sqrt(loudest)),
        silence_share=1 - len(active) / len(power),
        leading_silence=lead * length,
        trailing_silence=tail * length,
        inner_silence=inner * length,
        clipped_share=float(np.count_nonzero(np.abs(audio) >= FULL_SCALE)) / len(audio),
        noise_share=_flatness(audio),
        loop_share=_loop_share(codes[0], heard),
        stuck_seconds=_longest_run(heard[1:] & (codes[0, 1:] == codes[0, :-1]))
        * seconds
        / codes.shape[1],
    )


def _per_frame(is_active: Bools, frames: int) -> Bools:
    """Return for each frame whether it is heard, from the windows of its audio."""
    places = np.arange(frames) * len(is_active) // frames
    found: Bools = is_active[np.minimum(places, len(is_active) - 1)]
    return found


def _flatness(audio: AudioArray) -> float:
    """Return the median over loud windows of the spectrum's geometric to arithmetic mean."""
    windows = audio[: len(audio) // _SPECTRUM * _SPECTRUM].reshape(-1, _SPECTRUM)
    if not len(windows):
        return 0.0
    spectra = np.abs(np.fft.rfft(windows * np.hanning(_SPECTRUM).astype(np.float32))) ** 2
    total = spectra.sum(axis=1)
    loud = spectra[total > total.max() * 1e-3] + 1e-12
    if not len(loud):
        return 0.0
    return float(np.median(np.exp(np.log(loud).mean(axis=1)) / loud.mean(axis=1)))


def _loop_share(semantic: npt.NDArray[np.int16], heard: Bools) -> float:
    """Return which share of the worst two periods equals what came a period before, 0 to 1.

    A stretch of two periods that equals the one a period earlier is the same thing three times; a
    short thing must come more often.
    """
    frames, worst = len(semantic), 0.0
    for period in range(_FEWEST_PERIOD_FRAMES, min(frames // 3, _LONGEST_PERIOD_FRAMES) + 1):
        stretch = max(2 * period, _FEWEST_LOOP_FRAMES)
        if period + stretch > frames:
            break
        same = (semantic[period:] == semantic[:-period]) & heard[period:]
        sums = np.concatenate(([0], np.cumsum(same)))
        shares = (sums[stretch:] - sums[:-stretch]) / stretch
        place = int(shares.argmax())
        codes = semantic[place + period : place + period + stretch]
        if shares[place] > worst and len(np.unique(codes)) >= _FEWEST_CODES:
            worst = float(shares[place])
    return worst


def _longest_run(flags: Bools) -> int:
    """Return how many flags in a row are set at most."""
    edges = np.flatnonzero(np.concatenate(([True], ~flags, [True])))
    return int(np.diff(edges).max() - 1)
