"""Let codes that were made elsewhere be those of a voice, so that no encoder has to run."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from voices import transitions
from voices.models import StoredClip, Voice
from voices.objects import collect_clips, delete_objects
from voices.portable.codes_file import CheckedCodes
from voices.signals import answers_to, codecs_asked


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


@dataclass
class Kept:
    """The clips and the objects of codes that were written before there is a voice."""

    clips: list[uuid.UUID] = field(default_factory=list)
    codes: list[StoredCodes] = field(default_factory=list)

    def let_go(self) -> None:
        """Remove what no voice uses."""
        delete_objects(one.key for one in self.codes)
        collect_clips(self.clips)


def known_codecs() -> set[str]:
    """Return the fingerprints of the codecs of all workers that were ever seen here."""
    return set().union(*answers_to(codecs_asked, is_loaded=False))


def loaded_codecs() -> set[str]:
    """Return the fingerprints of the codecs that ready and living workers have loaded."""
    return set().union(*answers_to(codecs_asked, is_loaded=True))
