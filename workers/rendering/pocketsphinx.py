"""Hear English with PocketSphinx, whose wheel brings its model: what `TTS_TRANSCRIBER` calls so.

It needs no network and no GPU, a third of the time of the audio, and 200 MB. It hears a person who
speaks clearly about as well as a stranger who does not know the subject: a proposal to correct. Of
takes it tells those that are no speech of their text at all; `max_error` is set so.
"""

from __future__ import annotations

from typing import Any

import av
import numpy as np
from pocketsphinx import Decoder

from synth.contract import AudioArray

SAMPLE_RATE = 16_000  # of the model
FULL_SCALE = 32767
# Half of the time of its own defaults, and no more errors on the sentences that were tried.
SEARCH = {"maxwpf": 20, "maxhmmpf": 5000}
# Faint noise: silence without any, as synthesisers make it, has no logarithm. The same each time.
NOISE = {"dither": True, "seed": 1}


class PocketSphinx:
    """A transcriber as `workers.rendering.transcriber` wants it."""

    languages = frozenset({"en"})
    # Of nine sentences of speech synthesisers it had 0.2 to 1.0 errors a word, 0.6 in the middle.
    max_error = 0.95

    def __init__(self) -> None:
        self._decoder: Any = Decoder(samprate=SAMPLE_RATE, loglevel="FATAL", **SEARCH, **NOISE)

    def transcribe(self, audio: AudioArray, sample_rate: int, *, language: str) -> str:
        """Return the words, in lower case and without marks."""
        decoder = self._decoder
        decoder.start_utt()
        decoder.process_raw(_samples(audio, sample_rate), no_search=False, full_utt=True)
        decoder.end_utt()
        found = decoder.hyp()
        return found.hypstr if found is not None else ""


def _samples(audio: AudioArray, sample_rate: int) -> bytes:
    """Return mono audio, float32 [N], as the model takes it: 16 kHz, s16le."""
    frame = av.AudioFrame.from_ndarray(
        np.ascontiguousarray(audio, dtype=np.float32)[None, :], format="flt", layout="mono"
    )
    frame.sample_rate = sample_rate
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
    parts = [*resampler.resample(frame), *resampler.resample(None)]
    whole = np.concatenate([part.to_ndarray().reshape(-1) for part in parts])
    samples: bytes = (np.clip(whole, -1.0, 1.0) * FULL_SCALE).astype("<i2").tobytes()
    return samples
