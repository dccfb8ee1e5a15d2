"""Compare recordings by their spectra: cepstra, and dynamic time warping from one onto another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Wave = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

RATE = 16_000  # Hz of every wave that is judged
HOP = 160  # samples between two frames: 10 ms
_WINDOW = 512
_BANDS = 40
_CEPSTRA = 16  # without the level
_SPEECH_DECADES = 1.6  # below the loudest frame; quieter ones are pauses
_FLOOR = 1e-2


def log_mel(wave: npt.NDArray[np.floating]) -> Floats:
    """Return log10 mel magnitudes [N // HOP + 1, 40] of a wave [N] at `RATE`."""
    padded = np.pad(np.asarray(wave, np.float64), _WINDOW // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP]
    magnitudes = np.abs(np.fft.rfft(windows * np.hanning(_WINDOW + 1)[:-1]))
    return np.asarray(np.log10(magnitudes @ _mel_filters().T + _FLOOR))


@lru_cache(maxsize=1)
def _mel_filters() -> Floats:
    highest = 2595 * np.log10(1 + 7600 / 700)
    mels = np.linspace(0, highest, _BANDS + 2)
    return mel_triangles(_WINDOW, 700 * (10 ** (mels / 2595) - 1)) * 40


def mel_triangles(window: int, edges_hz: Floats) -> Floats:
    """Return filters [bands, window // 2 + 1] of area 1 between edges [bands + 2] in Hz."""
    hz = np.fft.rfftfreq(window, 1 / RATE)[None]
    low, middle, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    triangles = np.minimum((hz - low) / (middle - low), (high - hz) / (high - middle))
    return np.asarray(np.maximum(0, triangles) * 2 / (high - low))


@lru_cache(maxsize=1)
def _cosines() -> Floats:
    places = (np.arange(_BANDS) + 0.5) * np.pi / _BANDS
    orders = np.arange(1, _CEPSTRA + 1)[:, None]
    return np.asarray(np.cos(orders * places) * np.sqrt(2 / _BANDS))


def find_speech(mel: Floats) -> Flags:
    """Return which frames of a log-mel spectrogram are no pause."""
    level = mel.mean(1)
    return np.asarray(level > level.max() - _SPEECH_DECADES)


def cepstra(mel: Floats) -> Floats:
    """Return cepstra [frames, 16] of the speech, each freed from its mean and scale.

    What the voice, the room and the level add to every frame is so taken out.
    """
    raw = mel[find_speech(mel)] @ _cosines().T
    return np.asarray((raw - raw.mean(0)) / (raw.std(0) + 1e-3))


def distances(said: Floats, candidates: Sequence[Floats]) -> Floats:
    """Return the cost per step of warping `said` [n, D] onto each candidate [m, D].

    Steps go forward in one of the two or in both; all candidates are walked at once.
    """
    ends = np.array([len(candidate) for candidate in candidates])
    best = _walk(_local_costs(said, candidates))
    return np.asarray(best[np.arange(len(candidates)), -1, ends] / (len(said) + ends))


def align(said: Floats, other: Floats) -> npt.NDArray[np.int64]:
    """Return the cheapest way through both, pairs of frames [steps, 2] in ascending order."""
    best = _walk(_local_costs(said, [other]))[0]
    i, j = len(said), len(other)
    pairs = [(i - 1, j - 1)]
    while (i, j) != (1, 1):
        before = ((i - 1, j - 1), (i - 1, j), (i, j - 1))
        i, j = min(before, key=lambda place: best[place])
        pairs.append((i - 1, j - 1))
    return np.array(pairs[::-1], np.int64)


def _local_costs(said: Floats, candidates: Sequence[Floats]) -> Floats:
    longest = max(len(candidate) for candidate in candidates)
    local = np.full((len(candidates), len(said), longest), 1e9)
    for index, candidate in enumerate(candidates):
        square = (said**2).sum(1)[:, None] + (candidate**2).sum(1) - 2 * said @ candidate.T
        local[index, :, : len(candidate)] = np.sqrt(np.maximum(square, 0))
    return local


def _walk(local: Floats) -> Floats:
    """Return the cheapest cost of reaching every cell, [count, rows + 1, columns + 1].

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
    return best
