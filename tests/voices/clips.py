"""Make real clips of each container that an upload may have, and bytes that only look like one."""

from __future__ import annotations

import io

import av
import numpy as np
import numpy.typing as npt
import soundfile

# container of ours -> (muxer, encoder, sample rate)
_MUXERS = {
    "mp3": ("mp3", "libmp3lame", 44100),
    "ogg": ("ogg", "libopus", 48000),
    "m4a": ("ipod", "aac", 44100),
    "webm": ("webm", "libopus", 48000),
    "mka": ("matroska", "libopus", 48000),
}


def tone(seconds: float = 1.5, *, sample_rate: int = 44100) -> npt.NDArray[np.float32]:
    time = np.arange(int(seconds * sample_rate)) / sample_rate
    return (0.3 * np.sin(2 * np.pi * 220 * time)).astype(np.float32)


def clip_bytes(container: str = "wav", *, seconds: float = 1.5) -> bytes:
    """Return an audio file of a container: wav, flac, mp3, ogg, m4a, webm or mka."""
    buffer = io.BytesIO()
    if container in ("wav", "flac"):
        soundfile.write(buffer, tone(seconds), 44100, format=container.upper())
        return buffer.getvalue()
    muxer, encoder, sample_rate = _MUXERS[container]
    samples = (tone(seconds, sample_rate=sample_rate) * 32767).astype(np.int16)[None, :]
    with av.open(buffer, "w", format=muxer) as output:
        stream = output.add_stream(encoder, rate=sample_rate, layout="mono")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = sample_rate
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return buffer.getvalue()
