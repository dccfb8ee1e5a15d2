"""Make takes that sound somewhat like speech, and jobs that are rendered with them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from synth.contract import AudioArray, FinishReason, SegmentAudio, Timings
from synth.models import Export
from synth.transitions.claims import claim_segments
from tests.factories import CODEC_FINGERPRINT, finish_segment
from tests.workers.conftest import MiniatureProcess
from tests.workers.rendering.takes_support import save_take
from workers.process.claiming import take_exports

RATE = 24_000


def voiced(seconds: float, *, level: float = 0.2, rate: int = RATE, seed: int = 0) -> AudioArray:
    """Return pulses of a throat through a vowel, in syllables: far peaks above a low mean."""
    rng = np.random.default_rng(seed)
    count = round(seconds * rate)
    t = np.arange(count) / rate
    pulses = (np.mod(t * 110, 1) < 110 / rate).astype(np.float64)
    vowel = np.exp(-np.arange(200) / 40) * np.sin(np.arange(200) * 0.3)
    spoken = np.convolve(pulses, vowel)[:count] * (np.sin(2 * np.pi * 3 * t) > -0.5)
    spoken += 0.002 * rng.standard_normal(count)
    return np.asarray(level * spoken / np.abs(spoken).max(), dtype=np.float32)


def rendered(audio: AudioArray, *, rate: int = RATE) -> SegmentAudio:
    """Return audio as the engine gives it."""
    codes = np.zeros((10, 20), dtype=np.int16)
    return SegmentAudio(codes, audio, rate, FinishReason.END, Timings(0, 0, 0, 0))


def render_with(takes: Sequence[AudioArray], *, rate: int = RATE) -> None:
    """Finish queued segments, in order, with these takes; equal ones are one take."""
    claims = claim_segments(worker="gpu", limit=len(takes), codec_fingerprint=CODEC_FINGERPRINT)
    for claim, audio in zip(claims, takes, strict=True):
        name = hashlib.sha256(audio.tobytes() + str(rate).encode()).hexdigest()
        finish_segment(claim, save_take(name, rendered(audio, rate=rate)))


def make_export_of(process: MiniatureProcess) -> Export:
    """Make the file that waits and return its row."""
    take_exports(process)
    process.run_all()
    return Export.objects.latest("created_at")
