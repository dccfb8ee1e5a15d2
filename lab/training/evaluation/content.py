"""Tell which of several sentences a recording says, by dynamic time warping over cepstra."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 44100
HOP = 512
_WINDOW = 1024
_BANDS = 80
_CEPSTRA = 19  # without the level
_SPEECH_DECADES = 1.6  # below the loudest frame; quieter ones are pauses
_FLOOR = 1e-2
Floats = npt.NDArray[np.float64]


@lru_cache(maxsize=1)
def _mel_filters() -> Floats:
    hz = np.fft.rfftfreq(_WINDOW, 1 / SAMPLE_RATE)[None]
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 11000 / 700), _BANDS + 2) / 2595) - 1)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    area = (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * area * 40)


@lru_cache(maxsize=1)
def _cosines() -> Floats:
    places = (np.arange(_BANDS) + 0.5) * np.pi / _BANDS
    orders = np.arange(1, _CEPSTRA + 1)[:, None]
    return np.asarray(np.cos(orders * places) * np.sqrt(2 / _BANDS))


def log_mel(wave: npt.NDArray[np.floating]) -> Floats:
    """Return log10 mel magnitudes [frames, 80] of a wave [N] at 44.1 kHz, one every 11.6 ms."""
    padded = np.pad(np.asarray(wave, np.float64), _WINDOW // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP]
    magnitudes = np.abs(np.fft.rfft(windows * np.hanning(_WINDOW + 1)[:-1]))
    return np.asarray(np.log10(magnitudes @ _mel_filters().T + _FLOOR))


def speech_frames(mel: Floats) -> Floats:
    """Return the frames of a log-mel spectrogram that are no pause."""
    level = mel.mean(1)
    return np.asarray(mel[level > level.max() - _SPEECH_DECADES])


def cepstra(mel: Floats) -> Floats:
    """Return cepstra [frames, 19] of the speech, each freed from its mean and scale.

    What the voice, the room and the level add to every frame is so taken out.
    """
    raw = speech_frames(mel) @ _cosines().T
    return np.asarray((raw - raw.mean(0)) / (raw.std(0) + 1e-3))


def distances(said: Floats, candidates: Sequence[Floats]) -> Floats:
    """Return the cost per step of warping `said` [n, D] onto each candidate [m, D].

    Steps go forward in one of the two or in both; all candidates are walked at once.
    """
    longest = max(len(candidate) for candidate in candidates)
    count, rows = len(candidates), len(said)
    local = np.full((count, rows, longest), 1e9)
    for index, candidate in enumerate(candidates):
        square = (said**2).sum(1)[:, None] + (candidate**2).sum(1) - 2 * said @ candidate.T
        local[index, :, : len(candidate)] = np.sqrt(np.maximum(square, 0))
    ends = np.array([len(candidate) for candidate in candidates])
    return np.asarray(_walk(local)[np.arange(count), ends] / (rows + ends))


def _walk(local: Floats) -> Floats:
    """Return the cheapest cost of reaching every column at the last row, [count, columns + 1].

    Cells of one antidiagonal depend only on the two before it, so they are taken together.
    """
    count, rows, columns = local.shape
    best = np.full((count, rows + 1, columns + 1), np.inf)
    best[:, 0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.minimum(np.minimum(best[:, i - 1, j - 1], best[:, i - 1, j]), best[:, i, j - 1])
        best[:, i, j] = before + local[:, i - 1, j - 1]
    return np.asarray(best[:, rows])
