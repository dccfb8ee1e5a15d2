"""Measure a whole signal as ITU-R BS.1770-4 defines it, by its formulas and Fourier transforms."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Both stages of the K filter, as the recommendation prints them for 48 kHz: b, then a.
_SHELF = ((1.53512485958697, -2.69169618940638, 1.19839281085285),
          (1.0, -1.69065929318241, 0.73248077421585))  # fmt: skip
_HIGH_PASS = ((1.0, -2.0, 1.0), (1.0, -1.99004745483398, 0.99007225036621))


def integrated_lufs(samples: npt.NDArray[np.float32], rate: int) -> float:
    padded = np.concatenate((samples.astype(np.float64), np.zeros(rate)))
    hertz = np.fft.rfftfreq(len(padded), 1 / rate)
    z = np.exp(-2j * np.pi * hertz / 48_000)
    response = np.ones(len(hertz), dtype=complex)
    for above, below in (_SHELF, _HIGH_PASS):
        response *= np.polyval(above[::-1], z) / np.polyval(below[::-1], z)
    weighted = np.fft.irfft(np.fft.rfft(padded) * response, len(padded))[: len(samples)]
    size, hop = round(0.4 * rate), round(0.1 * rate)
    starts = range(0, len(weighted) - size + 1, hop)
    power = np.array([np.mean(weighted[start : start + size] ** 2) for start in starts])
    loud = power[_lufs(power) > -70]
    return float(_lufs(np.mean(loud[_lufs(loud) > _lufs(np.mean(loud)) - 10])))


def true_peak_dbtp(samples: npt.NDArray[np.float32]) -> float:
    """Return the highest point of the curve through the samples, from eight times as many."""
    padded = np.concatenate((samples.astype(np.float64), np.zeros(1000)))
    spectrum = np.fft.rfft(padded)
    finer = np.fft.irfft(np.concatenate((spectrum, np.zeros(7 * len(spectrum)))), 8 * len(padded))
    return float(20 * np.log10(8 * np.abs(finer).max()))


def _lufs(power: npt.NDArray[np.float64] | np.floating) -> npt.NDArray[np.float64]:
    return -0.691 + 10 * np.log10(np.maximum(power, 1e-20))
