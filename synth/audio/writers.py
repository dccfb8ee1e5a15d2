"""Encode audio into files and streams of every format; read files back.

One encoder serves both. A file is gone back in when it is complete, so that its head says how long
it is; a stream is sent while it is made, and its head says that nobody knows yet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import av
import numpy as np
import soundfile

from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, AudioFormat, Writer

_BYTES_PER_SAMPLE = 2
_FULL_SCALE = 2**15
_UNKNOWN = 0xFFFFFFFF  # as a length: players take it for "until the end"
_WAV_HEAD_BYTES = 44
_CODECS_RATE = 48_000  # that every codec has


class FileTooLongError(Exception):
    """The audio is longer than the format can say."""


class AudioWriter(Protocol):
    """Take mono audio float32 [n] in order."""

    def write(self, block: AudioArray) -> None:
        """Append a block.

        Raises:
            OSError: the disk is full.
            FileTooLongError: the format can hold no more.
        """


def file_rate(form: str, take_rate: int, *, asked: int | None, bit_rate: int | None) -> int:
    """Return the sample rate in Hz of a job's file.

    Args:
        take_rate: Hz of the takes; the file's as well, where its format has it.
        asked: Hz that the job asks for, which its format is known to have.
        bit_rate: bits per second that the job asks for; a rate too low to hold them is raised.
    """
    if asked is not None:
        return asked
    known = BOOK_FORMATS[form]
    if known.rate is not None:
        return known.rate
    if known.bit_rates is None:
        return take_rate
    rate = _rate_for(known, take_rate)
    return rate if bit_rate is None or bit_rate <= known.bit_rates.most(rate) else _CODECS_RATE


class ByteSink:
    """Hold the bytes of a stream that were not taken yet; nothing can be gone back to."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, content: bytes) -> int:
        self._parts.append(bytes(content))
        return len(content)

    def take(self) -> bytes:
        """Return what was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def open_writer(
    target: Path | ByteSink, form: str, sample_rate: int, bit_rate: int | None = None
) -> AbstractContextManager[AudioWriter]:
    """Open a new file, or a stream, in a format of FORMATS; it is complete after the block.

    Args:
        sample_rate: Hz of what is written; where the format has no such rate it is resampled.
        bit_rate: bits per second of a lossy format; None takes the usual one, or what the
            sample rate allows.

    Raises:
        ValueError: there is no such format, or none that is written from samples.
    """
    known = BOOK_FORMATS.get(form)
    if known is None or known.writer == Writer.SPLICED:
        raise ValueError(f"no audio format that is written from samples: {form!r}")
    if known.writer == Writer.CODEC:
        return _CodedWriter(target, known, sample_rate, bit_rate)
    return _SampleWriter(target, known, sample_rate)


class StreamEncoder:
    """Encode mono audio, float32 [n], block by block, into bytes that are sent at once.

    Args: as of `open_writer`.
    """

    def __init__(self, form: str, sample_rate: int, bit_rate: int | None = None) -> None:
        self._sink, self._opened = ByteSink(), ExitStack()
        opened = open_writer(self._sink, form, sample_rate, bit_rate)
        self._writer = self._opened.enter_context(opened)

    def push(self, block: AudioArray) -> bytes:
        """Return what follows with this block; a codec keeps back about a tenth of a second."""
        self._writer.write(block)
        return self._sink.take()

    def end(self) -> bytes:
        """Return the rest; call it once, after the last block."""
        self._opened.close()
        return self._sink.take()


class _SampleWriter:
    """Write samples as s16le, mono, behind the head of a WAV file or, as bare PCM, behind none."""

    def __init__(self, target: Path | ByteSink, form: AudioFormat, sample_rate: int) -> None:
        self._form, self._sample_rate = form, sample_rate
        self._written = 0  # bytes of samples
        self._file: BinaryIO | None = None
        self._out: BinaryIO | ByteSink
        if isinstance(target, Path):
            self._out = self._file = target.open("wb")
        else:
            self._out = target
        if form.container:
            self._out.write(wav_head(sample_rate))

    def write(self, block: AudioArray) -> None:
        self._written += _BYTES_PER_SAMPLE * len(block)
        most = self._form.most_bytes
        if self._file is not None and most is not None and self._written > most:
            raise FileTooLongError(
                f"The audio is too long for a {self._form.label} file; choose flac or mp3."
            )
        scaled = np.rint(np.clip(block, -1.0, 1.0) * _FULL_SCALE)
        self._out.write(np.minimum(scaled, _FULL_SCALE - 1).astype("<i2").tobytes())

    def __enter__(self) -> _SampleWriter:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if self._file is None:
            return
        with self._file:
            if kind is None and self._form.container:
                self._file.seek(0)
                self._file.write(wav_head(self._sample_rate, self._written))


def wav_head(sample_rate: int, num_bytes: int | None = None) -> bytes:
    """Return the head of a mono 16-bit WAV file.

    Args:
        num_bytes: of its samples; None where nobody knows yet.
    """
    size, whole = _UNKNOWN, _UNKNOWN
    if num_bytes is not None:
        size, whole = num_bytes, num_bytes + _WAV_HEAD_BYTES - 8
    rate = sample_rate * _BYTES_PER_SAMPLE
    form = struct.pack("<IHHIIHH", 16, 1, 1, sample_rate, rate, _BYTES_PER_SAMPLE, 16)
    riff = b"RIFF" + struct.pack("<I", whole) + b"WAVE"
    return riff + b"fmt " + form + b"data" + struct.pack("<I", size)


class _CodedWriter:
    """Write with the muxer and the encoder that the table names."""

    def __init__(
        self,
        target: Path | ByteSink,
        form: AudioFormat,
        sample_rate: int,
        bit_rate: int | None,
    ) -> None:
        rate = _rate_for(form, sample_rate)
        self._sample_rate = sample_rate
        self._position = 0
        if isinstance(target, Path):
            self._container = av.open(str(target), "w", format=form.container)
            stream: Any = self._container.add_stream(form.codec, rate=rate)
        else:
            muxer, encoder = form.stream_container_options, form.stream_codec_options
            self._container = av.open(target, "w", format=form.container, options=dict(muxer))
            stream = self._container.add_stream(form.codec, rate=rate, options=dict(encoder))
            stream.codec_context.thread_count = 1  # others would only keep frames back
        if form.bit_rates is not None:
            stream.bit_rate = bit_rate or min(form.bit_rates.usual, form.bit_rates.most(rate))
        stream.layout = "mono"
        self._stream = stream
        stream.codec_context.open()

    def write(self, block: AudioArray) -> None:
        samples = np.clip(block, -1.0, 1.0)[None, :]
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), "fltp", "mono")
        frame.sample_rate, frame.pts = self._sample_rate, self._position
        self._position += len(block)
        # PyAV converts and cuts samples as the codec takes them.
        self._container.mux(self._stream.encode(frame))

    def __enter__(self) -> _CodedWriter:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        try:
            if kind is None:
                self._container.mux(self._stream.encode(None))
        finally:
            self._container.close()


def _rate_for(form: AudioFormat, sample_rate: int) -> int:
    """Return the rate to encode at: the audio's own where the codec has it."""
    rates = av.codec.Codec(form.codec, "w").audio_rates
    return sample_rate if not rates or sample_rate in rates else _CODECS_RATE


BLOCK_SAMPLES = 1 << 18


def read_blocks(path: Path, form: str, sample_rate: int) -> Iterator[AudioArray]:
    """Yield the mono audio of a file of ours, float32 [n], at `sample_rate` Hz.

    Args:
        form: a format of FORMATS.
        sample_rate: what the file was written at; a decoder's other rate is resampled to it.
    """
    known = BOOK_FORMATS[form]
    if known.bit_rates is None and known.container:
        with soundfile.SoundFile(path) as audio:
            yield from audio.blocks(BLOCK_SAMPLES, dtype="float32")
    elif known.writer == Writer.SAMPLES:
        with path.open("rb") as file:
            while content := file.read(2 * BLOCK_SAMPLES):
                yield np.frombuffer(content, dtype="<i2").astype(np.float32) / np.float32(2**15)
    else:
        to_float = av.AudioResampler(format="fltp", layout="mono", rate=sample_rate)
        with av.open(str(path)) as opened:
            for frame in chain(opened.decode(opened.streams.audio[0]), (None,)):
                for ready in to_float.resample(frame):
                    yield ready.to_ndarray()[0]


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
