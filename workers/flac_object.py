"""Keep mono audio as a 24-bit FLAC object."""

from __future__ import annotations

import io
import os
import uuid

import numpy as np
import soundfile
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.contract import AudioArray


def store_flac(folder: str, audio: AudioArray, sample_rate: int) -> str:
    """Write mono audio float32 [N] under a new name in `folder` and return its key.

    Samples beyond full scale are cut to it. Raises OSError where the storage cannot be written.
    """
    content = ContentFile(encode_flac(audio, sample_rate))
    return default_storage.save(f"{folder}/{uuid.uuid4().hex}.flac", content)


def encode_flac(audio: AudioArray, sample_rate: int) -> bytes:
    """Return mono audio float32 [N] as FLAC of 24 bits; samples beyond full scale are cut to it."""
    if len(audio) and max(audio.max(), -audio.min()) > 1.0:
        audio = np.clip(audio, -1.0, 1.0)
    if not hasattr(os, "memfd_create"):
        buffer = io.BytesIO()
        soundfile.write(buffer, audio, sample_rate, format="FLAC", subtype="PCM_24")
        return buffer.getvalue()
    # A file descriptor: the encoder would call a Python buffer back for every block, and each call
    # takes the interpreter from the thread that drives the device.
    descriptor = os.memfd_create("flac")
    try:
        soundfile.write(
            descriptor, audio, sample_rate, format="FLAC", subtype="PCM_24", closefd=False
        )
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
