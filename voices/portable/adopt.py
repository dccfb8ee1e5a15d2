"""Let codes that were made elsewhere be those of a voice, so that no encoder has to run."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from voices import transitions
from voices.models import StoredClip, Voice
from voices.portable.codecs import loaded_codecs
from voices.portable.codes_file import CheckedCodes


@dataclass(frozen=True)
class StoredCodes:
    """Codes whose object is written and that no row names yet."""

    clip: StoredClip
    codes: CheckedCodes
    key: str


def store_codes(clip: StoredClip, codes: CheckedCodes) -> StoredCodes:
    """Write the object under a name of its own.

    Raises:
        OSError: the storage cannot be written.
    """
    codec = codes.codec_fingerprint
    name = f"codes/{clip.fingerprint}/{codec[:16]}-{uuid.uuid4().hex}.safetensors"
    return StoredCodes(clip, codes, default_storage.save(name, ContentFile(codes.content)))


def adopt(voice: Voice, stored: Sequence[StoredCodes]) -> list[str]:
    """Give the codes to their clips, and make the voice ready if a loaded codec has them all.

    Codes that a clip has already stay. Call inside the transaction that makes the voice.

    Returns the keys of the objects that are not used.
    """
    unused = [
        one.key
        for one in stored
        if not transitions.adopt_codes(
            one.clip,
            one.codes.codec_fingerprint,
            key=one.key,
            frames=one.codes.frames,
            resampler=one.codes.resampler,
        )
    ]
    version = voice.current_version
    if version is not None:
        any(transitions.ready_version(version, codec) for codec in sorted(loaded_codecs()))
    return unused
