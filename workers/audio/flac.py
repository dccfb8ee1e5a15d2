"""Keep audio in the storage, losslessly, as FLAC of 24 bits."""

from __future__ import annotations

import io
import os
import threading
import uuid

import numpy as np
import soundfile
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.contract import AudioArray

_FLAC_FULL_SCALE = 2**23
BYTES_PER_SAMPLE = 3
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
