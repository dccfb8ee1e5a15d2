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

BIT_RATES = {"mp3": 128_000, "opus": 64_000, "aac": 128_000}  # where the job asks for none
PCM_RATE = 24_000  # what clients take bare samples for, since nothing in them says it
OPUS_RATE = 48_000  # the only rate that Opus has inside
_CODECS = {"mp3": ("mp3", "libmp3lame"), "opus": ("ogg", "libopus"), "aac": ("adts", "aac")}
_MP3_MOST = ((12_000, 64_000), (24_000, 160_000), (48_000, 320_000))  # by sample rate
_AAC_BITS_PER_SAMPLE = 6
_WAV_BYTES = 2**32 - 2**16  # sizes inside a WAV file are 32 bits wide
_BYTES_PER_SAMPLE = 2
_FULL_SCALE = 2**15


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
    if form == "pcm":
        return PCM_RATE
    if form not in BIT_RATES:
        return take_rate
    if form == "opus":
        return OPUS_RATE
    rate = _rate_for(form, take_rate)
    return rate if bit_rate is None or bit_rate <= most_bits(form, rate) else OPUS_RATE


def most_bits(form: str, sample_rate: int) -> int:
    """Return how many bits per second, of mono audio, a coded format can hold at a sample rate."""
    if form == "mp3":
        return next((most for rate, most in _MP3_MOST if sample_rate <= rate), _MP3_MOST[-1][1])
    return _AAC_BITS_PER_SAMPLE * sample_rate if form == "aac" else 256_000


@contextmanager
def open_writer(
    path: Path, form: str, sample_rate: int, bit_rate: int | None = None
) -> Iterator[AudioWriter]:
    """Open a new file at `path` in a format of FORMATS; it is complete after the block.

    Args:
        sample_rate: Hz of what is written; where the format has no such rate it is resampled.
        bit_rate: bits per second of a coded format; None takes that of BIT_RATES, or what the
            sample rate allows.

    Raises:
        ValueError: the format is none of these.
    """
    if form in ("wav", "flac"):
        with _PcmWriter(path, form, sample_rate) as pcm:
            yield pcm
    elif form == "pcm":
        with _BareWriter(path) as bare:
            yield bare
    elif form in BIT_RATES:
        with _CodedWriter(path, form, sample_rate, bit_rate) as coded:
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
            raise FileTooLongError("The audio is too long for a WAV file; choose flac or opus.")
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
    """Write MP3, Opus in Ogg, or AAC in ADTS, with PyAV."""

    def __init__(self, path: Path, form: str, sample_rate: int, bit_rate: int | None) -> None:
        container, codec = _CODECS[form]
        rate = _rate_for(form, sample_rate)
        self._sample_rate = sample_rate
        self._position = 0
        self._container = av.open(str(path), "w", format=container)
        stream: Any = self._container.add_stream(codec, rate=rate)
        stream.bit_rate = bit_rate or min(BIT_RATES[form], most_bits(form, rate))
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


def _rate_for(form: str, sample_rate: int) -> int:
    """Return the rate to encode at: the audio's own where the codec has it."""
    rates = av.codec.Codec(_CODECS[form][1], "w").audio_rates or ()
    return sample_rate if sample_rate in rates else OPUS_RATE
