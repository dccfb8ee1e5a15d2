"""Read a file that was written back, as its listeners will hear it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import soundfile

from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, Writer

BLOCK_SAMPLES = 1 << 18


def read_blocks(path: Path, form: str, sample_rate: int) -> Iterator[AudioArray]:
    """Yield the mono audio of a file of ours, float32 [n], at `sample_rate` Hz.

    Args:
        form: a format of FORMATS.
        sample_rate: what the file was written at; a decoder's other rate is resampled to it.
    """
    writer = BOOK_FORMATS[form].writer
    if writer == Writer.SNDFILE:
        with soundfile.SoundFile(path) as audio:
            yield from audio.blocks(BLOCK_SAMPLES, dtype="float32")
    elif writer == Writer.SAMPLES:
        with path.open("rb") as file:
            while content := file.read(2 * BLOCK_SAMPLES):
                yield np.frombuffer(content, dtype="<i2").astype(np.float32) / np.float32(2**15)
    else:
        yield from _decoded(path, sample_rate)


def mean_bit_rate(path: Path, form: str, seconds: float) -> int | None:
    """Return the bits per second of a file of ours; None of one without audio.

    Frames may say it; the size of a short file tells of its tags as well.
    """
    if BOOK_FORMATS[form].states_bit_rate:
        with av.open(str(path)) as opened:
            stated = opened.streams.audio[0].bit_rate
        if stated:
            return int(stated)
    return round(8 * path.stat().st_size / seconds) if seconds else None


def _decoded(path: Path, sample_rate: int) -> Iterator[AudioArray]:
    to_float = av.AudioResampler(format="fltp", layout="mono", rate=sample_rate)
    with av.open(str(path)) as opened:
        for frame in opened.decode(opened.streams.audio[0]):
            for ready in to_float.resample(frame):
                yield ready.to_ndarray()[0]
    for ready in to_float.resample(None):
        yield ready.to_ndarray()[0]
