"""Measure a voice's pitch with YIN (de Cheveigné and Kawahara, 2002)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LOWEST_HZ, HIGHEST_HZ = 60.0, 420.0
_RATE = 22050
_HOP = 256
_KEPT_BELOW_HZ, _TAPS = 1500.0, 64
_DIP = 0.15  # the first dip below this is the period
_VOICED = 0.30  # a frame whose deepest dip is above this has no pitch
_LOUD = 0.08  # of the loudest frame's power
_FEWEST_FRAMES = 4
Floats = npt.NDArray[np.float64]


def median_pitch(wave: npt.NDArray[np.floating]) -> float | None:
    """Return the median pitch in Hz of the voiced frames of a wave at 44.1 kHz.

    None means that too little of it is voiced to say.
    """
    pitches = frame_pitches(wave)
    voiced = pitches[pitches > 0]
    return float(np.median(voiced)) if len(voiced) >= _FEWEST_FRAMES else None


def frame_pitches(wave: npt.NDArray[np.floating]) -> Floats:
    """Return the pitch in Hz of every 11.6 ms of a wave at 44.1 kHz; 0 where there is none."""
    samples = np.asarray(wave, np.float64)
    samples = np.convolve(samples, _low_pass(), mode="same")[::2]  # to 22.05 kHz
    longest = int(_RATE / LOWEST_HZ) + 2
    size = 2 * longest
    if len(samples) < size:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view(samples, size)[::_HOP]
    power = np.square(windows).mean(1)
    dips = _normalised_difference(windows, longest)
    pitches = np.array([_first_dip(row) for row in dips])
    return np.where(power > _LOUD * power.max(), pitches, 0.0)


def _low_pass() -> Floats:
    """Return a filter for 44.1 kHz that keeps what tells the pitch.

    A period is no whole number of samples, so that above some kilohertz two of them never match.
    """
    places = np.arange(-_TAPS, _TAPS + 1)
    kernel = np.sinc(2 * _KEPT_BELOW_HZ / (2 * _RATE) * places) * np.hanning(2 * _TAPS + 1)
    return np.asarray(kernel / kernel.sum())


def _normalised_difference(windows: Floats, longest: int) -> Floats:
    """Return YIN's d'(lag) for lags 0..longest of each window [frames, 2 longest]."""
    frames, size = windows.shape
    width = size - longest
    spectrum = np.fft.rfft(windows, 2 * size)
    head = np.fft.rfft(windows[:, :width], 2 * size)
    product = np.fft.irfft(spectrum * head.conj())[:, : longest + 1]
    energy = np.cumsum(np.pad(windows**2, ((0, 0), (1, 0))), axis=1)
    lags = np.arange(longest + 1)
    moved = energy[:, lags + width] - energy[:, lags]
    difference = np.maximum(moved[:, :1] + moved - 2 * product, 0)
    mean = np.cumsum(difference[:, 1:], axis=1) / np.arange(1, longest + 1)
    normalised = np.ones((frames, longest + 1))
    normalised[:, 1:] = difference[:, 1:] / np.maximum(mean, 1e-12)
    return normalised


def _first_dip(row: Floats) -> float:
    """Return the pitch of one frame from its normalised difference, 0 where it has none."""
    low, high = int(_RATE / HIGHEST_HZ), len(row) - 1
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
    return float(_RATE / (lag + np.clip(shift, -0.5, 0.5)))
