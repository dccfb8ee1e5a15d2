"""Write mono audio block by block in any format of a job, with bounded memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
import soundfile

from synth.contract import AudioArray

BIT_RATES = {"mp3": 128_000, "opus": 64_000, "aac": 128_000}
PCM_RATE = 24_000  # what clients take bare samples for, since nothing in them says it
OPUS_RATE = 48_000  # the only rate that Opus has inside
_CODECS = {"mp3": ("mp3", "libmp3lame"), "opus": ("ogg", "libopus"), "aac": ("adts", "aac")}
_WAV_BYTES = 2**32 - 2**16  # sizes inside a WAV file are 32 bits wide
_BYTES_PER_SAMPLE = 2


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


@contextmanager
def open_writer(path: Path, form: str, sample_rate: int) -> Iterator[AudioWriter]:
    """Open a new file at `path` in a format of FORMATS; it is complete after the block.

    Raises:
        ValueError: the format is none of these.
    """
    if form in ("wav", "flac"):
        with _PcmWriter(path, form, sample_rate) as pcm:
            yield pcm
    elif form == "pcm":
        with _BareWriter(path, sample_rate) as bare:
            yield bare
    elif form in BIT_RATES:
        with _CodedWriter(path, form, sample_rate) as coded:
            yield coded
    else:
        raise ValueError(f"no such audio format: {form!r}")


class _PcmWriter:
    """Write 16-bit WAV or FLAC with libsndfile, which does not say why it cannot write."""

    def __init__(self, path: Path, form: str, sample_rate: int) -> None:
        self._path = path
        self._limit = _WAV_BYTES // _BYTES_PER_SAMPLE if form == "wav" else None
        self._written = 0
        try:
            self._file = soundfile.SoundFile(
                path, "w", sample_rate, channels=1, format=form.upper(), subtype="PCM_16"
            )
        except soundfile.LibsndfileError as error:
            raise OSError(errno.ENOSPC, "the audio file cannot be written") from error

    def write(self, block: AudioArray) -> None:
        self._written += len(block)
        if self._limit is not None and self._written > self._limit:
            raise FileTooLongError("The audio is too long for a WAV file: choose flac or opus.")
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
    """Write samples as s16le, mono, 24 kHz, and nothing else."""

    def __init__(self, path: Path, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._position = 0
        self._file = path.open("wb")
        self._to_pcm = av.AudioResampler(format="s16", layout="mono", rate=PCM_RATE)

    def write(self, block: AudioArray) -> None:
        self._write(_frame(block, self._sample_rate, self._position))
        self._position += len(block)

    def _write(self, frame: av.AudioFrame | None) -> None:
        for ready in self._to_pcm.resample(frame):
            self._file.write(ready.to_ndarray().astype("<i2").tobytes())

    def __enter__(self) -> _BareWriter:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        try:
            if kind is None and self._position:
                self._write(None)
        finally:
            self._file.close()


class _CodedWriter:
    """Write MP3, Opus in Ogg, or AAC in ADTS, with PyAV."""

    def __init__(self, path: Path, form: str, sample_rate: int) -> None:
        container, codec = _CODECS[form]
        self._sample_rate = sample_rate
        self._position = 0
        self._container = av.open(str(path), "w", format=container)
        stream: Any = self._container.add_stream(codec, rate=_rate_for(codec, sample_rate))
        stream.bit_rate, stream.layout = BIT_RATES[form], "mono"
        self._stream = stream
        stream.codec_context.open()
        self._to_codec = av.AudioResampler(
            format=stream.codec_context.format,
            layout="mono",
            rate=stream.codec_context.sample_rate,
            frame_size=stream.codec_context.frame_size,
        )

    def write(self, block: AudioArray) -> None:
        frame = _frame(block, self._sample_rate, self._position)
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


def _frame(block: AudioArray, sample_rate: int, position: int) -> av.AudioFrame:
    """Return a block, cut to full scale, as PyAV takes it."""
    samples = np.clip(block, -1.0, 1.0)[None, :]
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), "fltp", "mono")
    frame.sample_rate, frame.pts = sample_rate, position
    return frame


def _rate_for(codec: str, sample_rate: int) -> int:
    """Return the rate to encode at: the audio's own where the codec has it."""
    rates = av.codec.Codec(codec, "w").audio_rates or ()
    return sample_rate if codec != "libopus" and sample_rate in rates else OPUS_RATE
