"""Make reference clips in every container, as bytes."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import soundfile

FloatArray = npt.NDArray[np.float32]


def tone(
    *, seconds: float, rate: int = 24_000, channels: int = 1, level: float = 0.3
) -> FloatArray:
    """Return a tone with some noise, float32 [N, channels]; every channel another pitch."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(3).normal(0, 0.01, (len(time), channels))
    pitches = 220.0 * (1 + np.arange(channels))
    waves = np.sin(2 * np.pi * time[:, None] * pitches[None, :])
    return (level * waves + noise * level).astype(np.float32)


def wav_bytes(samples: FloatArray | None = None, *, rate: int = 24_000, **options: Any) -> bytes:
    """Return a file by soundfile: samples [N, channels], else a tone of `seconds`."""
    if samples is None:
        samples = tone(seconds=options.pop("seconds", 1.5), rate=rate)
    buffer = io.BytesIO()
    form = {"format": "WAV", "subtype": "PCM_16"} | options
    soundfile.write(buffer, samples, rate, **form)
    return buffer.getvalue()


def coded_bytes(
    samples: FloatArray, *, rate: int, container: str, codec: str, is_live: bool = False
) -> bytes:
    """Return a file by PyAV: samples [N, channels]; `is_live` writes no duration (webm)."""
    buffer = io.BytesIO()
    options = {"live": "1"} if is_live else {}
    with av.open(buffer, "w", format=container, options=options) as opened:
        stream: Any = opened.add_stream(codec, rate=48_000 if codec == "libopus" else rate)
        stream.layout = "mono" if samples.shape[1] == 1 else "stereo"
        stream.codec_context.open()
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples.T), "fltp", stream.layout.name
        )
        frame.sample_rate = rate
        to_codec = av.AudioResampler(
            format=stream.codec_context.format,
            layout=stream.layout.name,
            rate=stream.codec_context.sample_rate,
            frame_size=stream.codec_context.frame_size or 1024,
        )
        for ready in [*to_codec.resample(frame), *to_codec.resample(None)]:
            opened.mux(stream.encode(ready))
        opened.mux(stream.encode(None))
    return buffer.getvalue()
