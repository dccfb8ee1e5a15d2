"""Describe a speaker's sound by rows of mel-cepstra and strengths of voicing.

A row has 25 cepstra on a warped axis of frequency (Tokuda et al., 1994), whose cosine sum is the
log magnitude of the spectrum, then five strengths as flite has them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lab.training.flite import NUM_CEPSTRA, NUM_STRENGTHS, ROW_SECONDS, SAMPLE_RATE, Utterance
from lab.training.speakers import Speaker

Floats = npt.NDArray[np.float64]
NUM_FEATURES = NUM_CEPSTRA + NUM_STRENGTHS
ALPHA = 0.42  # of the warped axis, near the mel scale at 16 kHz
_UNVOICED_HZ = 120.0  # the pitch of an utterance in which nothing is voiced


def warped(radians: Floats) -> Floats:
    """Return places on the warped axis, in radians, of frequencies in radians a sample."""
    sine, cosine = np.sin(radians), np.cos(radians)
    return np.asarray(radians + 2 * np.arctan2(ALPHA * sine, 1 - ALPHA * cosine))


@lru_cache(maxsize=512)
def warp_matrix(factor: float) -> Floats:
    """Return what maps cepstra to those of a spectrum `factor` times higher, [25, 25]."""
    hz = np.linspace(0, SAMPLE_RATE / 2, 257)
    source = np.minimum(hz / factor, SAMPLE_RATE / 2)
    orders = np.arange(NUM_CEPSTRA)
    wanted, given = (
        np.cos(np.outer(warped(2 * np.pi * each / SAMPLE_RATE), orders)) for each in (hz, source)
    )
    # Every step of the warped axis counts the same.
    weights = np.sqrt(np.gradient(warped(2 * np.pi * hz / SAMPLE_RATE)))[:, None]
    return np.asarray(np.linalg.lstsq(wanted * weights, given * weights, rcond=None)[0])


def cepstra_of(utterance: Utterance, speaker: Speaker) -> Floats:
    """Return the cepstra of an utterance in a speaker's mouth, [R, 25]."""
    return utterance.cepstra.astype(np.float64) @ warp_matrix(speaker.warp).T


def strengths_of(utterance: Utterance) -> Floats:
    """Return the strengths [R, 5], 0 where nothing is voiced."""
    voiced = utterance.pitch > 0
    return np.where(voiced[:, None], utterance.strengths.astype(np.float64), 0)


def pitch_course(utterance: Utterance, speaker: Speaker) -> Floats:
    """Return the speaker's pitch in Hz in every row [R], also between voiced sounds."""
    pitch = utterance.pitch.astype(np.float64)
    voiced = np.flatnonzero(pitch > 0)
    if not len(voiced):
        return np.full(len(pitch), _UNVOICED_HZ * speaker.pitch)
    logs = np.log(pitch[voiced])
    middle = np.median(logs)
    course = np.interp(np.arange(len(pitch)), voiced, logs)
    return np.asarray(np.exp(middle + np.log(speaker.pitch) + (course - middle) * speaker.melody))


def at_times(rows: Floats, seconds: npt.NDArray[np.floating]) -> Floats:
    """Return rows [R] or [R, F] of an utterance interpolated at times [n]."""
    places = np.clip(seconds / ROW_SECONDS - 0.5, 0, len(rows) - 1.001)
    first = places.astype(int)
    part = (places - first)[:, None] if rows.ndim > 1 else places - first
    return np.asarray(rows[first] * (1 - part) + rows[first + 1] * part)
