"""Write a voice as an archive, and make one of an archive, or of clips with codes.

The bytes of an archive are the same for the same voice. What comes in is checked, stored, and ready
if its codes fit.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Model

from ttsweb.refusals import RefusedError, counted
from ttsweb.storage import delete_objects
from ttsweb.zips import fixed_entry
from voices import transitions
from voices.archives import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    MAX_CODES_BYTES,
    MAX_CODES_PER_CLIP,
    Archive,
    CheckedCodes,
    ClipFile,
    CodesFile,
    ImportRefusedError,
    check_codes,
    open_archive,
    read_manifest,
)
from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import (
    ClipCodes,
    ReferenceClip,
    StoredClip,
    Voice,
    VoiceVersion,
)
from voices.objects import collect_clips, store_clip, tenant_of
from voices.signals import answers_to, codecs_asked
from voices.submit import NewClip, create_voice

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


_Codes = list[tuple[dict[str, str], bytes]]  # what the manifest says of each, and its bytes


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
            target.writestr(fixed_entry(MANIFEST), text.encode())
            for clip, entries in zip(clips, codes, strict=True):
                _copy_clip(target, clip)
                for member, content in entries:
                    target.writestr(fixed_entry(member["file"]), content)
        return ArchiveFile(file)
    except BaseException:
        file.close()
        raise


def _codes_of(clip: ReferenceClip) -> _Codes:
    """Return the clip's codes in each codec, newest codecs first where there are too many."""
    rows = ClipCodes.objects.filter(clip=clip.stored, encoded_at__isnull=False)
    newest = rows.order_by("-encoded_at")[:MAX_CODES_PER_CLIP]
    entries: _Codes = []
    for row in sorted(newest, key=lambda row: row.codec_fingerprint):
        try:
            with default_storage.open(row.key) as file:
                content = file.read(MAX_CODES_BYTES + 1)
        except FileNotFoundError:
            continue
        if len(content) <= MAX_CODES_BYTES:
            codec, digest = row.codec_fingerprint, hashlib.sha256(content).hexdigest()
            name = f"codes/{clip.index}-{codec}.safetensors"
            member = {"file": name, "sha256": digest, "codec_fingerprint": codec}
            entries.append((member, content))
    return entries


def _manifest(
    voice: Voice, version: VoiceVersion, clips: list[ReferenceClip], codes: list[_Codes]
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
                "codes": [member for member, _ in entries],
            }
            for clip, entries in zip(clips, codes, strict=True)
        ],
    }


def _copy_clip(target: zipfile.ZipFile, clip: ReferenceClip) -> None:
    """Copy a clip's bytes in chunks, and look whether they are still those of its digest."""
    entry = fixed_entry(_clip_name(clip))
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


_BY_LENGTH = 200


def import_voice(
    file: IO[bytes],
    *,
    by: str,
    owner: AbstractBaseUser | AnonymousUser | None = None,
    api_key: Model | None = None,
    name: str = "",
    shared: bool = False,
) -> Voice:
    """Make a voice of the archive in a seekable file; it is ready at once if its codes can be used.

    Codes can be used where a worker of this installation has, or had, their codec. Others are left
    in the archive, and the voice is encoded as any other.

    Args:
        by: who imports it; added to who gave the consent.
        name: instead of the name in the archive.
        shared: whether every user may speak with it; what it was elsewhere is not in the archive.

    Raises:
        ImportRefusedError, ClipRejectedError, VoiceNameTakenError, KeyLimitError: it is not taken.
        OSError: the storage cannot be written; nothing is kept.
    """
    importer = f" (imported by {by[:100]})"
    with _drop_unused() as kept:
        with open_archive(file, max_bytes=settings.MAX_BODY_BYTES) as archive:
            manifest = read_manifest(archive)
            clips = _store(archive, manifest.clips, kept, tenant_of(owner.pk if owner else None))
        consent = manifest.consent
        with transaction.atomic():
            voice = create_voice(
                name=name or manifest.name,
                description=manifest.description,
                language=manifest.language,
                shared=shared,
                cache_codes=manifest.cache_codes,
                consent_statement=consent.statement,
                by=consent.by[: _BY_LENGTH - len(importer)] + importer,
                clips=clips,
                owner=owner,
                api_key=api_key,
            )
            Voice.objects.filter(pk=voice.pk).update(consent_at=consent.at)
            _adopt(voice, kept)
    return voice


@dataclass
class _Kept:
    """The clips and the objects of codes that were written before there is a voice.

    Of codes, `(clip, codes, key)` of each object, which no row names yet.
    """

    clips: list[uuid.UUID] = field(default_factory=list)
    codes: list[tuple[StoredClip, CheckedCodes, str]] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def store_codes(self, clip: StoredClip, codes: CheckedCodes) -> None:
        """Write the object under a name of its own; OSError where the storage cannot be written."""
        codec = codes.codec_fingerprint
        name = f"codes/{clip.fingerprint}/{codec[:16]}-{uuid.uuid4().hex}.safetensors"
        key = default_storage.save(name, ContentFile(codes.content))
        self.codes.append((clip, codes, key))


@contextmanager
def _drop_unused() -> Iterator[_Kept]:
    """Give a list of what is written, and remove afterwards what no voice uses."""
    kept = _Kept()
    try:
        yield kept
    except BaseException:
        delete_objects(key for _, _, key in kept.codes)
        collect_clips(kept.clips)
        raise
    delete_objects(kept.unused)


def _adopt(voice: Voice, kept: _Kept) -> None:
    """Give the codes to their clips, and make the voice ready if a loaded codec has them all.

    Codes that a clip has already stay. Call inside the transaction that makes the voice.
    """
    for clip, codes, key in kept.codes:
        is_adopted = transitions.adopt_codes(
            clip,
            codes.codec_fingerprint,
            key=key,
            frames=codes.frames,
            resampler=codes.resampler,
        )
        if not is_adopted:
            kept.unused.append(key)
    version = voice.current_version
    if version is not None:
        any(transitions.ready_version(version, codec) for codec in sorted(_codecs(is_loaded=True)))


def _codecs(*, is_loaded: bool) -> set[str]:
    """Return the codecs of all workers that were ever seen here, or those loaded by living ones."""
    return set().union(*answers_to(codecs_asked, is_loaded=is_loaded))


def _store(
    archive: Archive, members: Sequence[ClipFile], kept: _Kept, tenant: str
) -> list[NewClip]:
    """Store the clips, and the codes of known codecs; one of them is in memory at a time."""
    codecs = _codecs(is_loaded=False)
    clips = []
    for member in members:
        stored = _store_clip(archive, member, tenant)
        kept.clips.append(stored.pk)
        for codes in member.codes:
            if codes.codec_fingerprint not in codecs:
                continue
            checked = check_codes(_read(archive, codes, max_bytes=MAX_CODES_BYTES))
            promised = (stored.fingerprint, codes.codec_fingerprint)
            if (checked.clip_fingerprint, checked.codec_fingerprint) != promised:
                raise ImportRefusedError(
                    "codes_invalid", f"The codes {codes.file!r} belong to another clip or codec."
                )
            kept.store_codes(stored, checked)
        clips.append(NewClip(member.transcript, member.filename, stored=stored))
    return clips


def _store_clip(archive: Archive, member: ClipFile, tenant: str) -> StoredClip:
    """Return the stored clip of an entry whose bytes are those that the manifest promises."""
    content = _read(archive, member, max_bytes=settings.MAX_CLIP_BYTES)
    container = check_clip(content)
    if container != member.container:
        named, said = member.file, member.container
        sentence = f"The clip {named!r} is {container}, but the manifest says {said}."
        raise ClipRejectedError("clip_not_audio", sentence)
    stored = store_clip(content, container=container, tenant=tenant)
    measures = member.measures.as_json()
    if measures and not stored.measures:
        # A worker that decodes the clip puts its own in their place.
        StoredClip.objects.filter(pk=stored.pk, used_key="").update(measures=measures)
    return stored


def _read(archive: Archive, member: ClipFile | CodesFile, *, max_bytes: int) -> bytes:
    content = archive.read(member.file, max_bytes=max_bytes)
    if hashlib.sha256(content).hexdigest() != member.sha256:
        raise ImportRefusedError(
            "archive_digest_mismatch",
            f"The file {member.file!r} was changed after the export: its digest differs. "
            "Export the voice again.",
        )
    return content


def create_voice_with_codes(
    *,
    clips: Sequence[NewClip],
    codes: Sequence[bytes],
    owner: AbstractBaseUser | AnonymousUser | None = None,
    **fields: Any,
) -> Voice:
    """Make a voice whose clips bring their codes, safetensors objects in the same order.

    Codes that a clip has here already stay instead of those that were sent.

    Args:
        fields: what else `create_voice` takes.

    Raises:
        ImportRefusedError: the codes are damaged, or not of these clips and the loaded codec.
        ClipRejectedError, VoiceNameTakenError, KeyLimitError, OSError: as for `create_voice`.
    """
    checked = _check_pairs(clips, codes)
    tenant, stored = tenant_of(owner.pk if owner else None), []
    with _drop_unused() as kept:
        for clip, one in zip(clips, checked, strict=True):
            content = clip.content or b""
            row = store_clip(content, container=check_clip(content), tenant=tenant)
            kept.clips.append(row.pk)
            kept.store_codes(row, one)
            stored.append(replace(clip, content=None, stored=row))
        with transaction.atomic():
            voice = create_voice(clips=stored, owner=owner, **fields)
            _adopt(voice, kept)
    return voice


def _check_pairs(clips: Sequence[NewClip], codes: Sequence[bytes]) -> list[CheckedCodes]:
    """Return the codes, each of its clip and all of one loaded codec."""
    if len(clips) != len(codes):
        raise ImportRefusedError(
            "codes_required",
            f"Each clip needs a file of codes, but there are {counted(len(clips), 'clip')} "
            f"and {counted(len(codes), 'file')} of codes.",
        )
    checked = [check_codes(content) for content in codes]
    for index, (clip, one) in enumerate(zip(clips, checked, strict=True)):
        if one.clip_fingerprint != clip.fingerprint:
            raise ImportRefusedError(
                "codes_of_other_clip",
                f"Codes {index} belong to another clip: their `clip` is "
                f"{one.clip_fingerprint[:64]!r}, but the clip's sha256 is {clip.fingerprint}.",
            )
    given, loaded = {one.codec_fingerprint for one in checked}, _codecs(is_loaded=True)
    if not loaded:
        raise ImportRefusedError(
            "codec_unknown",
            "No worker is ready, so the loaded codec is not known. Start a worker, or send "
            "the clips without codes.",
        )
    if len(given) > 1 or not given <= loaded:
        raise ImportRefusedError(
            "codes_of_other_codec",
            "The codes were made with the codec "
            f"{', '.join(one[:64] for one in sorted(given))}, but "
            f"{', '.join(sorted(loaded))} is loaded. Send the clips without codes to have "
            "them encoded here.",
        )
    return checked
