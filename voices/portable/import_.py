"""Make a voice of an archive: clips are checked and stored, codes are used where they can be."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import IO, Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.db.models import Model

from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import StoredClip, Voice
from voices.objects import delete_objects, store_clip, tenant_of
from voices.portable.adopt import Kept, adopt, known_codecs, store_codes
from voices.portable.archive import Archive, ImportRefusedError, open_archive
from voices.portable.codes_file import MAX_CODES_BYTES, CheckedCodes, check_codes
from voices.portable.manifest import read_manifest
from voices.submit import NewClip, create_voice

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
    kept = Kept()
    try:
        with open_archive(file, max_bytes=settings.MAX_BODY_BYTES) as archive:
            manifest = read_manifest(archive)
            clips = _store(archive, manifest["clips"], kept, tenant_of(owner.pk if owner else None))
        with transaction.atomic():
            voice = _create(
                manifest, clips, by=by, owner=owner, api_key=api_key, name=name, shared=shared
            )
            unused = adopt(voice, kept.codes)
    except BaseException:
        kept.let_go()
        raise
    delete_objects(unused)
    return voice


def _store(
    archive: Archive, members: Sequence[dict[str, Any]], kept: Kept, tenant: str
) -> list[NewClip]:
    """Store the clips, and the codes of known codecs; one of them is in memory at a time."""
    codecs = known_codecs()
    clips = []
    for member in members:
        stored = _store_clip(archive, member, tenant)
        kept.clips.append(stored.pk)
        for codes in member["codes"]:
            if codes["codec_fingerprint"] in codecs:
                checked = _read_codes(archive, codes, clip=stored.fingerprint)
                kept.codes.append(store_codes(stored, checked))
        clips.append(NewClip(member["transcript"], member["filename"], stored=stored))
    return clips


def _store_clip(archive: Archive, member: dict[str, Any], tenant: str) -> StoredClip:
    """Return the stored clip of an entry whose bytes are those that the manifest promises."""
    content = _read(archive, member, max_bytes=settings.MAX_CLIP_BYTES)
    container = check_clip(content)
    if container != member["container"]:
        raise ClipRejectedError(
            "clip_not_audio",
            f"The clip {member['file']!r} is {container}, but the manifest says "
            f"{member['container']}.",
        )
    stored = store_clip(content, container=container, tenant=tenant)
    if member["measures"] and not stored.measures:
        # A worker that decodes the clip puts its own in their place.
        StoredClip.objects.filter(pk=stored.pk, used_key="").update(measures=member["measures"])
    return stored


def _read_codes(archive: Archive, member: dict[str, Any], *, clip: str) -> CheckedCodes:
    """Return codes that are what the manifest promises, and of this clip."""
    checked = check_codes(_read(archive, member, max_bytes=MAX_CODES_BYTES))
    promised = (clip, member["codec_fingerprint"])
    if (checked.clip_fingerprint, checked.codec_fingerprint) != promised:
        raise ImportRefusedError(
            "codes_invalid", f"The codes {member['file']!r} belong to another clip or codec."
        )
    return checked


def _read(archive: Archive, member: dict[str, Any], *, max_bytes: int) -> bytes:
    content = archive.read(member["file"], max_bytes=max_bytes)
    if hashlib.sha256(content).hexdigest() != member["sha256"]:
        raise ImportRefusedError(
            "archive_digest_mismatch",
            f"The file {member['file']!r} was changed after the export: its digest differs. "
            "Export the voice again.",
        )
    return content


def _create(
    manifest: dict[str, Any],
    clips: list[NewClip],
    *,
    by: str,
    owner: AbstractBaseUser | AnonymousUser | None,
    api_key: Model | None,
    name: str,
    shared: bool,
) -> Voice:
    consent = manifest["consent"]
    importer = f" (imported by {by[:100]})"
    voice = create_voice(
        name=name or manifest["name"],
        description=manifest["description"],
        language=manifest["language"],
        shared=shared,
        cache_codes=manifest["cache_codes"],
        consent_statement=consent["statement"],
        by=consent["by"][: _BY_LENGTH - len(importer)] + importer,
        clips=clips,
        owner=owner,
        api_key=api_key,
    )
    Voice.objects.filter(pk=voice.pk).update(consent_at=consent["at"])
    return voice
