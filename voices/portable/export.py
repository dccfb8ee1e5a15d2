"""Write a voice as one archive: a zip whose bytes are the same for the same voice."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from django.core.files.storage import default_storage

from ttsweb.refusals import RefusedError
from voices.models import ClipCodes, ReferenceClip, Voice, VoiceVersion
from voices.portable.codes_file import MAX_CODES_BYTES
from voices.portable.manifest import FORMAT, FORMAT_VERSION, MANIFEST, MAX_CODES_PER_CLIP

IN_MEMORY_BYTES = 4_000_000  # a larger archive goes through a temporary file
CHUNK_BYTES = 128 * 1024


class ClipLostError(RefusedError):
    """A clip's bytes are gone from the storage, or are not those that were uploaded."""


class ArchiveFile:
    """A written archive: iterating gives its bytes in chunks, closing it lets them go."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.size = file.seek(0, 2)
        self.close = file.close
        file.seek(0)

    def __iter__(self) -> Iterator[bytes]:
        while part := self.file.read(CHUNK_BYTES):
            yield part


@dataclass(frozen=True)
class _CodesEntry:
    name: str
    content: bytes
    codec_fingerprint: str


def export_voice(voice: Voice, version: VoiceVersion) -> ArchiveFile:
    """Return an archive of a voice as its `version` has it.

    Codes whose object is gone are left out: whoever imports the voice encodes it again.

    Raises:
        ClipLostError: a clip cannot be exported as it was uploaded.
        OSError: the storage cannot be read.
    """
    clips = list(version.clips.select_related("stored").order_by("index"))
    codes = [_codes_of(clip) for clip in clips]
    file: Any = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  # returned
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as target:
            manifest = _manifest(voice, version, clips, codes)
            text = json.dumps(manifest, ensure_ascii=False, indent=1, sort_keys=True)
            target.writestr(_entry(MANIFEST), text.encode())
            for clip, entries in zip(clips, codes, strict=True):
                _copy_clip(target, clip)
                for one in entries:
                    target.writestr(_entry(one.name), one.content)
        return ArchiveFile(file)
    except BaseException:
        file.close()
        raise


def _codes_of(clip: ReferenceClip) -> list[_CodesEntry]:
    """Return the clip's codes in each codec, newest codecs first where there are too many."""
    rows = ClipCodes.objects.filter(clip=clip.stored, encoded_at__isnull=False)
    newest = rows.order_by("-encoded_at")[:MAX_CODES_PER_CLIP]
    entries = []
    for row in sorted(newest, key=lambda row: row.codec_fingerprint):
        try:
            with default_storage.open(row.key) as file:
                content = file.read(MAX_CODES_BYTES + 1)
        except FileNotFoundError:
            continue
        if len(content) <= MAX_CODES_BYTES:
            name = f"codes/{clip.index}-{row.codec_fingerprint}.safetensors"
            entries.append(_CodesEntry(name, content, row.codec_fingerprint))
    return entries


def _manifest(
    voice: Voice, version: VoiceVersion, clips: list[ReferenceClip], codes: list[list[_CodesEntry]]
) -> dict[str, Any]:
    """Return the manifest; it holds neither ids nor the time of the export."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": voice.name,
        "description": voice.description,
        "language": voice.language,
        "cache_codes": voice.cache_codes,
        "version": version.number,
        "consent": {
            "statement": voice.consent_statement,
            "by": voice.consent_by,
            "at": voice.consent_at.isoformat(),
        },
        "clips": [
            {
                "file": _clip_name(clip),
                "sha256": clip.stored.fingerprint,
                "container": clip.stored.container,
                "filename": clip.filename,
                "transcript": clip.transcript,
                "measures": clip.stored.measures,
                "codes": [
                    {
                        "file": one.name,
                        "sha256": hashlib.sha256(one.content).hexdigest(),
                        "codec_fingerprint": one.codec_fingerprint,
                    }
                    for one in entries
                ],
            }
            for clip, entries in zip(clips, codes, strict=True)
        ],
    }


def _copy_clip(target: zipfile.ZipFile, clip: ReferenceClip) -> None:
    """Copy a clip's bytes in chunks, and look whether they are still those of its digest."""
    entry = _entry(_clip_name(clip))
    entry.file_size = clip.stored.size_bytes
    digest = hashlib.sha256()
    try:
        with (
            default_storage.open(clip.stored.original_key) as source,
            target.open(entry, "w") as copy,
        ):
            while part := source.read(CHUNK_BYTES):
                digest.update(part)
                copy.write(part)
    except FileNotFoundError as error:
        raise ClipLostError(
            "clip_lost",
            f"The file of clip {clip.index} is missing in the storage; upload the clip again.",
        ) from error
    if digest.hexdigest() != clip.stored.fingerprint:
        raise ClipLostError(
            "clip_lost", f"The file of clip {clip.index} is damaged; upload the clip again."
        )


def _clip_name(clip: ReferenceClip) -> str:
    return f"clips/{clip.index}.{clip.stored.container}"


def _entry(name: str) -> zipfile.ZipInfo:
    """Return a stored entry with a fixed date and fixed rights."""
    entry = zipfile.ZipInfo(name)  # its date is the earliest that a zip can have
    entry.create_system = 3  # the one of Unix on every system
    entry.external_attr = 0o644 << 16
    return entry
