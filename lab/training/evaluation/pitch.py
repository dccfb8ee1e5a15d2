"""Measure pitch by YIN (de Cheveigné and Kawahara, 2002), and compare the melodies of two waves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lab.training.evaluation.spectra import (
    HOP,
    RATE,
    Floats,
    Wave,
    align,
    cepstra,
    find_speech,
    log_mel,
)

LOWEST_HZ, HIGHEST_HZ = 60.0, 420.0
_LONGEST = int(RATE / LOWEST_HZ) + 2  # samples: the longest period that is looked for
_KEPT_BELOW_HZ, _TAPS = 1500.0, 48
_DIP = 0.15  # the first dip below this is the period
_VOICED = 0.30  # a frame whose deepest dip is above this has no pitch
_LOUD = 0.08  # of the loudest frame's power
_FEWEST_FRAMES = 5
_FEWEST_PAIRS = 20
_FARTHEST = 1.6  # times the median: melodies stay within it
_FLATTEST = 0.01  # deviation of the log of pitch, a sixth of a semitone: below it is a monotone


def median_pitch(wave: npt.NDArray[np.floating]) -> float | None:
    """Return the median pitch in Hz of the voiced frames of a wave at `RATE`.

    None means that too little of it is voiced to say.
    """
    pitches = frame_pitches(wave)
    voiced = pitches[pitches > 0]
    return float(np.median(voiced)) if len(voiced) >= _FEWEST_FRAMES else None


@dataclass(frozen=True, slots=True, eq=False)
class Melodies:
    """Hold two pitch contours on the second one's frames, Hz [frames]; NaN where one has none.

    `correlation` is that of the logarithms over the pairs of frames in which both are voiced, 0
    where too few are.
    """

    said: Floats
    wanted: Floats
    correlation: float


def compare_melodies(said: Wave, wanted: Wave) -> Melodies:
    """Return the contours of two waves at `RATE`, warped onto each other by their spectra."""
    mels = log_mel(said), log_mel(wanted)
    pitches = [_without_octave_errors(frame_pitches(wave)) for wave in (said, wanted)]
    places = [np.flatnonzero(find_speech(mel)) for mel in mels]
    path = align(cepstra(mels[0]), cepstra(mels[1]))
    frames = places[0][path[:, 0]], places[1][path[:, 1]]
    pairs = np.stack([pitches[0][frames[0]], pitches[1][frames[1]]])
    both = pairs[:, (pairs > 0).all(0)]
    shown = np.full(len(pitches[1]), np.nan)
    shown[frames[1]] = np.where(pairs[0] > 0, pairs[0], np.nan)
    wanted_pitches = np.where(pitches[1] > 0, pitches[1], np.nan)
    return Melodies(shown, wanted_pitches, _correlation(np.log(both)))


def _without_octave_errors(pitches: Floats) -> Floats:
    """Return pitches without those far from the median: YIN's halves and doubles.

    One in fifty frames is such an error, which is enough to hide a melody from a correlation.
    """
    voiced = pitches[pitches > 0]
    middle = float(np.median(voiced)) if len(voiced) else 1.0
    is_near = (pitches > middle / _FARTHEST) & (pitches < middle * _FARTHEST)
    return np.where(is_near, pitches, 0.0)


def _correlation(pairs: Floats) -> float:
    """Return the correlation of two rows, 0 for few columns or a row that hardly varies."""
    if pairs.shape[1] < _FEWEST_PAIRS or pairs.std(1).min() < _FLATTEST:
        return 0.0
    centred = pairs - pairs.mean(1, keepdims=True)
    return float(centred[0] @ centred[1] / np.prod(np.linalg.norm(centred, axis=1)))


def frame_pitches(wave: npt.NDArray[np.floating]) -> Floats:
    """Return the pitch in Hz of every frame [N // HOP + 1] of a wave; 0 where there is none."""
    if not len(wave):
        return np.zeros(1)
    samples: Floats = np.convolve(np.asarray(wave, np.float64), _low_pass(), mode="same")
    padded = np.pad(samples, _LONGEST)  # the middle of a window lies where a spectrum's does
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _LONGEST)[::HOP]
    power = np.square(windows).mean(1)
    dips = _normalised_difference(windows)
    pitches = np.array([_first_dip(row) for row in dips])
    return np.where(power > _LOUD * power.max(), pitches, 0.0)


@lru_cache(maxsize=1)
def _low_pass() -> Floats:
    """Return a filter that keeps what tells the pitch.

    A period is no whole number of samples, so that above some kilohertz two of them never match.
    """
    places = np.arange(-_TAPS, _TAPS + 1)
    kernel = np.sinc(2 * _KEPT_BELOW_HZ / RATE * places) * np.hanning(2 * _TAPS + 1)
    return np.asarray(kernel / kernel.sum())


def _normalised_difference(windows: Floats) -> Floats:
    """Return YIN's d'(lag) for lags 0..longest of each window [frames, 2 longest]."""
    frames, size = windows.shape
    width = size - _LONGEST
    spectrum = np.fft.rfft(windows, 2 * size)
    head = np.fft.rfft(windows[:, :width], 2 * size)
    product = np.fft.irfft(spectrum * head.conj(), 2 * size)[:, : _LONGEST + 1]
    energy = np.cumsum(np.pad(windows**2, ((0, 0), (1, 0))), axis=1)
    lags = np.arange(_LONGEST + 1)
    moved = energy[:, lags + width] - energy[:, lags]
    difference = np.maximum(moved[:, :1] + moved - 2 * product, 0)
    mean = np.asarray(np.cumsum(difference[:, 1:], axis=1)) / np.arange(1, _LONGEST + 1)
    normalised = np.ones((frames, _LONGEST + 1))
    normalised[:, 1:] = difference[:, 1:] / np.maximum(mean, 1e-12)
    return normalised


def _first_dip(row: Floats) -> float:
    """Return the pitch of one frame from its normalised difference, 0 where it has none."""
    low, high = int(RATE / HIGHEST_HZ), len(row) - 1
    below = np.flatnonzero(row[low:high] < _DIP)
    if len(below):
        lag = low + int(below[0])
        while lag + 1 < high and row[lag + 1] < row[lag]:
            lag += 1
    else:
        lag = low + int(np.argmin(row[low:high]))
        if row[lag] > _VOICED:
            return 0.0
    before, here, after = row[lag - 1], row[lag], row[min(lag + 1, len(row) - 1)]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend if bend > 0 else 0.0
    return float(RATE / (lag + np.clip(shift, -0.5, 0.5)))
