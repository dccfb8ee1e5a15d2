"""Make audio, and read what was received of it, as a player does that gets it piece by piece."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import av
import numpy as np

from synth.contract import AudioArray

RATE = 44_100
# What encoders put before the first sample, and decoders of a stream cannot know to leave out.
MOST_DELAY = 2400


class Received(NamedTuple):
    """What a decoder makes of a stream: float32 [n], its rate, and all that it complained about."""

    samples: AudioArray
    sample_rate: int
    warnings: list[str]


class Line:
    """Bytes that can be read once, from the first to the last: nothing tells how many there are."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        return self._file.read(size)


def receive(content: bytes) -> Received:
    """Decode a stream in any format but bare samples."""
    to_float = av.AudioResampler(format="fltp", layout="mono")
    before = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    try:
        line: Any = Line(content)
        with av.logging.Capture(local=False) as logs, av.open(line, "r") as opened:
            stream = opened.streams.audio[0]
            blocks = [
                one.to_ndarray()[0]
                for frame in opened.decode(stream)
                for one in to_float.resample(frame)
            ]
            rate = stream.codec_context.sample_rate
    finally:
        av.logging.set_level(before)
    return Received(np.concatenate(blocks), rate, [text for _, _, text in logs])


def delay_between(late: AudioArray, early: AudioArray, *, most: int) -> int:
    """Return by how many samples, up to `most`, one signal comes later than the same before it."""
    length = min(len(late), len(early), 1 << 16) - most
    fits = [float(np.dot(late[at : at + length], early[:length])) for at in range(most)]
    return int(np.argmax(fits))


def speech_like(seconds: float, rate: int = RATE) -> AudioArray:
    """Return noise that swells and fades, whose place in time can be found again."""
    noise = np.random.default_rng(5).standard_normal(round(seconds * rate))
    smooth = np.convolve(noise, np.hanning(40), mode="same")
    swell = 1 + np.sin(np.arange(len(noise)) / rate * 9)
    return np.asarray(0.4 * smooth * swell / np.abs(smooth * swell).max(), dtype=np.float32)
