"""Keep mono audio as a 24-bit FLAC object."""

from __future__ import annotations

import io
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
    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(audio, -1.0, 1.0), sample_rate, format="FLAC", subtype="PCM_24")
    return default_storage.save(f"{folder}/{uuid.uuid4().hex}.flac", ContentFile(buffer.getvalue()))
