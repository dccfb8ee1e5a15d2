"""Describe speech by a smooth spectral envelope and its voicing, four times a code frame.

These features are what the codec is taught to carry. A row holds `NUM_BANDS` log10 densities of
power on a mel scale, then two voicings from 0 (noise) to 1 (harmonic): below and above 1.5 kHz.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lab.training.espeak import SAMPLE_RATE

Floats = npt.NDArray[np.float64]
NUM_BANDS = 48
NUM_FEATURES = NUM_BANDS + 2
ROWS_PER_FRAME = 4
ROW_SAMPLES = 256  # at `SAMPLE_RATE`: 11.6 ms, one position of the codec's decoder
FRAME_SECONDS = ROWS_PER_FRAME * ROW_SAMPLES / SAMPLE_RATE
FLOOR = 1e-6  # of power density: 60 dB below the loudest bands of speech
FFT_SIZE = 1024  # above the longest window, 2.6 periods of 86 Hz
_WINDOW_PERIODS = 2.6  # of the pitch: the shortest that does not beat with the harmonics
_SHORTEST_WINDOW_SECONDS = 0.018  # a shorter one sees too little of a noise to know its level
_LOWEST_HZ, _HIGHEST_HZ = 60.0, 10600.0
_VOICING_BELOW_HZ = 1200.0
_PERIODIC_FROM, _PERIODIC_TO = 0.45, 0.85  # correlations at one period: noise, and a clear tone


@lru_cache(maxsize=1)
def band_centres_hz() -> Floats:
    """Return the bands' centres, evenly spaced in mel."""
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (_LOWEST_HZ, _HIGHEST_HZ))
    return np.asarray(700 * (10 ** (np.linspace(low, high, NUM_BANDS) / 2595) - 1))


@lru_cache(maxsize=1)
def _band_weights() -> Floats:
    """Return triangles [bands, bins] that each sum to one."""
    centres = band_centres_hz()
    edges = np.concatenate([[0.0], centres, [SAMPLE_RATE / 2]])
    bins = np.fft.rfftfreq(FFT_SIZE, 1 / SAMPLE_RATE)[None]
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    weights = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def describe(wave: Floats, centres: Floats, pitch_hz: float, clarity: Floats) -> Floats:
    """Return the features at given times.

    Args:
        wave: [N] at `SAMPLE_RATE`, full scale at 1.
        centres: [R] sample positions, any order.
        pitch_hz: of the monotone voice; smoothing over it removes the harmonics.
        clarity: [R] from 0 to 1, how much of the voicing goes on above 1.5 kHz.

    Returns:
        [R, NUM_FEATURES].
    """
    size = int(max(_WINDOW_PERIODS / pitch_hz, _SHORTEST_WINDOW_SECONDS) * SAMPLE_RATE)
    window = np.hanning(size + 2)[1:-1]
    offsets = np.arange(size) - size // 2
    padded = np.pad(wave, size)
    index = np.clip(np.round(centres).astype(int), 0, len(wave))[:, None] + offsets + size
    rows = padded[np.minimum(index, len(padded) - 1)] * window
    spectra = np.fft.rfft(rows.astype(np.float32), FFT_SIZE)
    power = np.square(np.abs(spectra)).astype(np.float64) / np.square(window).sum()
    power = _smooth(power, pitch_hz * FFT_SIZE / SAMPLE_RATE)
    bands = np.log10(power @ _band_weights().T + FLOOR)
    low = _voicing(wave, centres, pitch_hz)
    return np.concatenate([bands, low[:, None], (low * clarity)[:, None]], axis=1)


def _smooth(power: Floats, width: float) -> Floats:
    """Average each row [R, bins] over `width` bins, not a whole number of them."""
    total = np.cumsum(np.pad(power, ((0, 0), (1, 0))), axis=1)  # integral up to each bin's edge
    bins = np.arange(power.shape[1]) + 0.5
    low, high = np.maximum(bins - width / 2, 0), np.minimum(bins + width / 2, power.shape[1])
    return np.asarray((_at(total, high) - _at(total, low)) / (high - low))


def _at(total: Floats, position: Floats) -> Floats:
    below = np.minimum(position.astype(int), total.shape[1] - 2)
    part = position - below
    return np.asarray(total[:, below] * (1 - part) + total[:, below + 1] * part)


def _voicing(wave: Floats, centres: Floats, pitch_hz: float) -> Floats:
    """Return how well the low band repeats after one period around each centre, 0 to 1."""
    if not len(wave):
        return np.zeros(len(centres))
    size = (len(wave) // 4096 + 2) * 4096  # lengths with large prime factors are slow
    spectrum = np.fft.rfft(wave, size)
    hz = np.fft.rfftfreq(size, 1 / SAMPLE_RATE)
    spectrum = np.where((hz > 50) & (hz < _VOICING_BELOW_HZ), spectrum, 0)
    period = SAMPLE_RATE / pitch_hz
    now = np.fft.irfft(spectrum)[: len(wave)]
    # Half a period each way keeps the measure centred.
    shift = np.exp(1j * np.pi * hz * period / SAMPLE_RATE)
    later = np.fft.irfft(spectrum * shift)[: len(wave)]
    earlier = np.fft.irfft(spectrum / shift)[: len(wave)]
    half = int(0.75 * period)
    sums = [_around(part, centres, half) for part in (later * earlier, later**2, earlier**2)]
    loud = _around(now**2, centres, half) > 1e-6 * half
    similar = sums[0] / np.sqrt(sums[1] * sums[2] + 1e-12)
    scaled = (similar - _PERIODIC_FROM) / (_PERIODIC_TO - _PERIODIC_FROM)
    return np.where(loud, np.clip(scaled, 0, 1), 0.0)


def _around(values: Floats, centres: Floats, half: int) -> Floats:
    total = np.concatenate([[0.0], np.cumsum(values)])
    middle = np.round(centres).astype(int)
    low, high = (np.clip(middle + side, 0, len(values)) for side in (-half, half))
    return np.asarray(total[high] - total[low])
