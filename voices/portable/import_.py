"""Make a voice of an archive, or of clips with codes: checked, stored, ready if codes fit."""

from __future__ import annotations

import hashlib
import uuid
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

from ttsweb.counted import counted
from voices import transitions
from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import StoredClip, Voice
from voices.objects import collect_clips, delete_objects, store_clip, tenant_of
from voices.portable.archive import (
    MAX_CODES_BYTES,
    Archive,
    CheckedCodes,
    ImportRefusedError,
    check_codes,
    open_archive,
)
from voices.portable.export import read_manifest
from voices.signals import answers_to, codecs_asked
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
    importer = f" (imported by {by[:100]})"
    with _drop_unused() as kept:
        with open_archive(file, max_bytes=settings.MAX_BODY_BYTES) as archive:
            manifest = read_manifest(archive)
            clips = _store(archive, manifest["clips"], kept, tenant_of(owner.pk if owner else None))
        consent = manifest["consent"]
        with transaction.atomic():
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
    archive: Archive, members: Sequence[dict[str, Any]], kept: _Kept, tenant: str
) -> list[NewClip]:
    """Store the clips, and the codes of known codecs; one of them is in memory at a time."""
    codecs = _codecs(is_loaded=False)
    clips = []
    for member in members:
        stored = _store_clip(archive, member, tenant)
        kept.clips.append(stored.pk)
        for codes in member["codes"]:
            if codes["codec_fingerprint"] not in codecs:
                continue
            checked = check_codes(_read(archive, codes, max_bytes=MAX_CODES_BYTES))
            promised = (stored.fingerprint, codes["codec_fingerprint"])
            if (checked.clip_fingerprint, checked.codec_fingerprint) != promised:
                raise ImportRefusedError(
                    "codes_invalid", f"The codes {codes['file']!r} belong to another clip or codec."
                )
            kept.store_codes(stored, checked)
        clips.append(NewClip(member["transcript"], member["filename"], stored=stored))
    return clips


def _store_clip(archive: Archive, member: dict[str, Any], tenant: str) -> StoredClip:
    """Return the stored clip of an entry whose bytes are those that the manifest promises."""
    content = _read(archive, member, max_bytes=settings.MAX_CLIP_BYTES)
    container = check_clip(content)
    if container != member["container"]:
        named, said = member["file"], member["container"]
        sentence = f"The clip {named!r} is {container}, but the manifest says {said}."
        raise ClipRejectedError("clip_not_audio", sentence)
    stored = store_clip(content, container=container, tenant=tenant)
    if member["measures"] and not stored.measures:
        # A worker that decodes the clip puts its own in their place.
        StoredClip.objects.filter(pk=stored.pk, used_key="").update(measures=member["measures"])
    return stored


def _read(archive: Archive, member: dict[str, Any], *, max_bytes: int) -> bytes:
    content = archive.read(member["file"], max_bytes=max_bytes)
    if hashlib.sha256(content).hexdigest() != member["sha256"]:
        raise ImportRefusedError(
            "archive_digest_mismatch",
            f"The file {member['file']!r} was changed after the export: its digest differs. "
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
