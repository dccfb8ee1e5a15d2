"""Make real clips of each container that an upload may have, requests that send them, and codes."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import soundfile
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from tests.factories import make_worker
from voices.models import ClipCodes, StoredClip
from workers.audio.clips import warnings_for
from workers.rendering.codes import pack_codes

Listing = Callable[[], list[str]]

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


CLIP, OTHER_CLIP = clip_bytes("wav"), clip_bytes("flac")


def upload(content: bytes = CLIP, name: str = "ada.wav") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def voice_fields(**changed: Any) -> dict[str, Any]:
    """Return the fields of a good request for a voice; None leaves one out."""
    values = {
        "name": "Ada", "consent_statement": "She agreed in writing.", "audio": upload(),
        "transcript": "Hello there.",
    }  # fmt: skip
    return {name: value for name, value in (values | changed).items() if value is not None}


CODEC, OLD_CODEC = "c" * 64, "d" * 64
CODES = np.arange(40, dtype=np.int16).reshape(10, 4)
MEASURES: dict[str, Any] = {
    "duration_seconds": 1.5, "peak_dbfs": -10.46, "rms_dbfs": -13.47, "silence_share": 0.0,
    "noise_floor_dbfs": -70.5, "peaks": [0, 17, 255], "sample_rate": 44100, "channels": 1,
    "codec": "pcm_s16le", "container": "wav", "clipped_share": 0.0, "damaged_packets": 0,
}  # fmt: skip
MEASURES["warnings"] = warnings_for(MEASURES)


def give_codes(stored: StoredClip, codec: str = CODEC) -> None:
    """Let a worker's part be done for one clip."""
    content = pack_codes(CODES, clip=stored.fingerprint, codec=codec, resampler="builtin")
    key = default_storage.save(f"codes/{uuid.uuid4().hex}", ContentFile(content))
    ClipCodes.objects.create(
        clip=stored, codec_fingerprint=codec, key=key, frames=4, encoded_at=timezone.now()
    )


def start_worker(codec: str = CODEC, **columns: Any) -> None:
    """Let a worker say that it has loaded a codec."""
    make_worker(codec[:4], codec_fingerprint=codec, **columns)
