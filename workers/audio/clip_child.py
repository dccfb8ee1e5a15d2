"""Decode one clip in an own process: `python -m workers.audio.clip_child`, a JSON request on stdin.

What is decoded comes from strangers, so this process has limits, no environment, no network
protocol and nothing in it but numpy and PyAV. It writes the mono waveform as raw float32 to the
file it was told and one JSON object to stdout: the measures, or `error` (a code) and `message`.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

from synth.audio.filters import peaks_of
from workers.audio.clips import (
    FULL_SCALE,
    SILENT_PEAK_DBFS,
    ClipError,
    FloatArray,
    measure,
)
from workers.bounded_child import answer_request

DEMUXERS = {
    "wav": "wav",
    "flac": "flac",
    "mp3": "mp3",
    "ogg": "ogg",
    "m4a": "mov",
    "webm": "matroska",
}
CODECS = frozenset(
    (
        *("pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le"),
        *("pcm_alaw", "pcm_mulaw", "flac", "alac"),
        *("mp3", "mp3float", "vorbis", "opus", "libopus", "aac"),
    )
)
MAX_CHANNELS = 8
MAX_PEAKS = 400  # of the waveform that pages draw
LOWEST_RATE, HIGHEST_RATE = 4_000, 384_000
DAMAGED_SHARE = 0.05  # above it a file is not a recording with a scratch but not what it says


@dataclass(slots=True)
class Tally:
    """Count while decoding: samples per channel, samples at full scale, packets, damaged ones."""

    samples: int = 0
    values: int = 0
    clipped: int = 0
    packets: int = 0
    damaged: int = 0


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the measures, or why the clip cannot be used, for every foreseen outcome."""
    try:
        return decode(
            Path(request["input"]),
            Path(request["output"]),
            container=request["container"],
            max_seconds=request["max_seconds"],
        )
    except ClipError as error:
        return {"error": error.code, "message": error.message}
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        return {"error": "clip_decode_memory", "message": ""}


def decode(source: Path, target: Path, *, container: str, max_seconds: float) -> dict[str, Any]:
    """Decode the first audio stream to a mono float32 file at its own rate; return the measures.

    Stops as soon as more than `max_seconds` were decoded, whatever the header says.

    Raises:
        ClipError: the clip cannot be used.
    """
    tally = Tally()
    options = {"protocol_whitelist": "file", "codec_whitelist": ",".join(sorted(CODECS))}
    try:
        with av.open(
            str(source),
            format=DEMUXERS[container],
            options=options,
            metadata_errors="replace",  # tags may be in any encoding; nobody reads them
        ) as opened:
            stream = _first_audio_stream(opened)
            context = stream.codec_context
            codec, sample_rate, channels = context.name, context.sample_rate, context.channels
            with target.open("wb") as file:
                for block in _mono_blocks(opened, stream, tally):
                    file.write(block.tobytes())
                    if tally.samples > max_seconds * sample_rate:
                        raise ClipError(
                            "clip_too_long",
                            f"The clip is longer than {max_seconds:g} seconds; cut it.",
                        )
    except av.error.FFmpegError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError from error
        raise ClipError("clip_undecodable", _broken_message(container)) from error
    if not tally.samples or tally.damaged > DAMAGED_SHARE * tally.packets:
        raise ClipError("clip_undecodable", _broken_message(container))
    waveform = np.fromfile(target, dtype=np.float32)
    if not np.isfinite(waveform).all():
        raise ClipError(
            "clip_not_finite", "The clip contains samples that are not numbers; export it again."
        )
    measures = measure(waveform, sample_rate)
    if measures["peak_dbfs"] <= SILENT_PEAK_DBFS:
        raise ClipError("clip_silent", "The clip is silent; record it again.")
    return measures | {
        "sample_rate": sample_rate,
        "channels": channels,
        "codec": codec,
        "container": container,
        "clipped_share": round(tally.clipped / tally.values, 6),
        "damaged_packets": tally.damaged,
        "peaks": peaks_of(waveform, most=MAX_PEAKS),
    }


def _broken_message(container: str) -> str:
    return (
        f"The clip cannot be decoded as {container}: it is damaged or has another format. "
        "Export it again, for example as WAV."
    )


def _first_audio_stream(opened: Any) -> Any:
    """Return the first audio stream, checked before anything of it is decoded."""
    if not opened.streams.audio:
        raise ClipError("clip_no_audio", "The file contains no audio.")
    stream = opened.streams.audio[0]
    context = stream.codec_context
    if context is None or context.name not in CODECS or context.sample_rate <= 0:
        raise ClipError(
            "clip_undecodable",
            "The file's audio is damaged, or its format is not supported; convert it to WAV "
            "or FLAC.",
        )
    if context.channels > MAX_CHANNELS:
        raise ClipError(
            "clip_too_many_channels",
            f"The clip has {context.channels} channels; at most {MAX_CHANNELS} are allowed. "
            "Export it with one channel.",
        )
    if not LOWEST_RATE <= context.sample_rate <= HIGHEST_RATE:
        raise ClipError(
            "clip_rate_unsupported",
            f"The clip has a sample rate of {context.sample_rate} Hz; {LOWEST_RATE} to "
            f"{HIGHEST_RATE} Hz are allowed. Export it with 44100 Hz.",
        )
    return stream


def _mono_blocks(opened: Any, stream: Any, tally: Tally) -> Iterator[FloatArray]:
    """Yield the mean of the channels, float32 [n] per decoded frame, and keep the tally."""
    rate, channels = stream.codec_context.sample_rate, stream.codec_context.channels
    to_float = av.AudioResampler(format="flt")  # not planar: PyAV crashes on 8 planes
    for packet in opened.demux(stream):
        tally.packets += 1
        try:
            decoded = packet.decode()
        except av.error.InvalidDataError:  # damaged: counted and skipped
            tally.damaged += 1
            continue
        for frame in decoded:
            if frame.sample_rate != rate or frame.layout.nb_channels != channels:
                raise ClipError(
                    "clip_undecodable",
                    "The clip's sample rate or channels change within the file; export it again "
                    "as WAV.",
                )
            for converted in to_float.resample(frame):
                values = converted.to_ndarray().reshape(-1, channels)  # float32 [n, channels]
                tally.samples += len(values)
                tally.values += values.size
                tally.clipped += int(np.count_nonzero(np.abs(values) >= FULL_SCALE))
                yield values.mean(axis=1, dtype=np.float32)


if __name__ == "__main__":
    sys.exit(answer_request(answer, open_files=32))
