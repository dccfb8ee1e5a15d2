"""Write audio files of every format, and read them back for loudness, true peak and waveform."""

from __future__ import annotations

import errno
import io
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
import soundfile
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, AudioFormat, Writer

_BYTES_PER_SAMPLE = 2
_FULL_SCALE = 2**15
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


def open_writer(
    path: Path, form: str, sample_rate: int, bit_rate: int | None = None
) -> AbstractContextManager[AudioWriter]:
    """Open a new file at `path` in a format of FORMATS; it is complete after the block.

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
    if known.writer == Writer.SNDFILE:
        return _PcmWriter(path, known, sample_rate)
    if known.writer == Writer.SAMPLES:
        return _BareWriter(path)
    return _CodedWriter(path, known, sample_rate, bit_rate)


class _PcmWriter:
    """Write 16-bit samples with libsndfile, which does not say why it cannot write."""

    def __init__(self, path: Path, form: AudioFormat, sample_rate: int) -> None:
        self._path = path
        self._form = form
        self._written = 0
        try:
            self._file = soundfile.SoundFile(
                path, "w", sample_rate, channels=1, format=form.name.upper(), subtype="PCM_16"
            )
        except soundfile.LibsndfileError as error:
            raise OSError(errno.ENOSPC, "the audio file cannot be written") from error

    def write(self, block: AudioArray) -> None:
        self._written += len(block)
        most = self._form.most_bytes
        if most is not None and _BYTES_PER_SAMPLE * self._written > most:
            raise FileTooLongError(
                f"The audio is too long for a {self._form.label} file; choose flac or mp3."
            )
        try:
            self._file.write(np.clip(block, -1.0, 1.0))
        except soundfile.LibsndfileError as error:
            raise OSError(errno.ENOSPC, "the audio file cannot be written") from error

    def __enter__(self) -> _PcmWriter:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._file.close()
        if kind is None and soundfile.info(self._path).frames != self._written:
            raise OSError(errno.ENOSPC, "the audio file was cut short")


class _BareWriter:
    """Write samples as s16le, mono, and nothing else: not even their rate."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, block: AudioArray) -> None:
        scaled = np.rint(np.clip(block, -1.0, 1.0) * _FULL_SCALE)
        self._file.write(np.minimum(scaled, _FULL_SCALE - 1).astype("<i2").tobytes())

    def __enter__(self) -> _BareWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class _CodedWriter:
    """Write with the muxer and the encoder that the table names."""

    def __init__(
        self, path: Path, form: AudioFormat, sample_rate: int, bit_rate: int | None
    ) -> None:
        rate = _rate_for(form, sample_rate)
        self._sample_rate = sample_rate
        self._position = 0
        self._container = av.open(str(path), "w", format=form.container)
        stream: Any = self._container.add_stream(form.codec, rate=rate)
        if form.bit_rates is not None:
            stream.bit_rate = bit_rate or min(form.bit_rates.usual, form.bit_rates.most(rate))
        stream.layout = "mono"
        self._stream = stream
        stream.codec_context.open()
        self._to_codec = av.AudioResampler(
            format=stream.codec_context.format,
            layout="mono",
            rate=stream.codec_context.sample_rate,
            frame_size=stream.codec_context.frame_size,
        )

    def write(self, block: AudioArray) -> None:
        samples = np.clip(block, -1.0, 1.0)[None, :]
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), "fltp", "mono")
        frame.sample_rate, frame.pts = self._sample_rate, self._position
        self._position += len(block)
        self._encode(frame)

    def _encode(self, frame: av.AudioFrame | None) -> None:
        for ready in self._to_codec.resample(frame):
            self._container.mux(self._stream.encode(ready))

    def __enter__(self) -> _CodedWriter:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        try:
            if kind is None:
                if self._position:
                    self._encode(None)
                self._container.mux(self._stream.encode(None))
        finally:
            self._container.close()


def _rate_for(form: AudioFormat, sample_rate: int) -> int:
    """Return the rate to encode at: the audio's own where the codec has it."""
    rates = av.codec.Codec(form.codec, "w").audio_rates or ()
    return sample_rate if sample_rate in rates else _CODECS_RATE


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


_FLAC_FULL_SCALE = 2**23
# One at a time: several would crowd the engine's threads out of their cores. Several write.
_encoding = threading.Lock()


def store_flac(folder: str, audio: AudioArray, sample_rate: int) -> str:
    """Write mono audio float32 [N] under a new name in `folder` and return its key.

    Samples beyond full scale are cut to it. Raises OSError where the storage cannot be written.
    """
    with _encoding:
        encoded = encode_flac(audio, sample_rate)
    return default_storage.save(f"{folder}/{uuid.uuid4().hex}.flac", ContentFile(encoded))


def encode_flac(audio: AudioArray, sample_rate: int) -> bytes:
    """Return mono audio float32 [N] as FLAC of 24 bits; samples beyond full scale are cut to it."""
    # Whole numbers here, in one pass over the samples: the encoder takes several times as long.
    scaled = np.rint(audio * np.float32(_FLAC_FULL_SCALE)).clip(
        -_FLAC_FULL_SCALE, _FLAC_FULL_SCALE - 1
    )
    samples = scaled.astype(np.int32) << 8  # the upper 24 bits count
    if not hasattr(os, "memfd_create"):
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, sample_rate, format="FLAC", subtype="PCM_24")
        return buffer.getvalue()
    # A file descriptor: the encoder would call a Python buffer back for every block, and each call
    # takes the interpreter from the thread that drives the device.
    descriptor = os.memfd_create("flac")
    try:
        soundfile.write(
            descriptor, samples, sample_rate, format="FLAC", subtype="PCM_24", closefd=False
        )
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
