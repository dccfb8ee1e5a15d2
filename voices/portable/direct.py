"""Make a voice of clips and codes that somebody has made already with the codec loaded here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.db.models import Model

from ttsweb.counted import counted
from voices.clip_checks import check_clip
from voices.models import Voice
from voices.objects import delete_objects, store_clip, tenant_of
from voices.portable.adopt import Kept, adopt, loaded_codecs, store_codes
from voices.portable.archive import ImportRefusedError
from voices.portable.codes_file import CheckedCodes, check_codes
from voices.submit import NewClip, create_voice


def create_voice_with_codes(
    fields: Mapping[str, Any],
    *,
    clips: Sequence[NewClip],
    codes: Sequence[bytes],
    by: str,
    owner: AbstractBaseUser | AnonymousUser | None = None,
    api_key: Model | None = None,
) -> Voice:
    """Make a voice whose clips bring their codes, safetensors objects in the same order.

    Codes that a clip has here already stay instead of those that were sent.

    Args:
        fields: name, consent_statement, description, language, shared and cache_codes, as for
            `create_voice`.

    Raises:
        ImportRefusedError: the codes are damaged, or not of these clips and the loaded codec.
        ClipRejectedError, VoiceNameTakenError, KeyLimitError, OSError: as for `create_voice`.
    """
    checked = _check(clips, codes)
    kept = Kept()
    try:
        tenant = tenant_of(owner.pk if owner else None)
        pairs = zip(clips, checked, strict=True)
        stored = [_store(clip, one, kept, tenant) for clip, one in pairs]
        with transaction.atomic():
            voice = create_voice(**fields, clips=stored, by=by, owner=owner, api_key=api_key)
            unused = adopt(voice, kept.codes)
    except BaseException:
        kept.let_go()
        raise
    delete_objects(unused)
    return voice


def _check(clips: Sequence[NewClip], codes: Sequence[bytes]) -> list[CheckedCodes]:
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
                f"{one.clip_fingerprint[:64]!r}, but the clip's sha256 is "
                f"{clip.fingerprint}.",
            )
    _check_codecs({one.codec_fingerprint for one in checked})
    return checked


def _check_codecs(given: set[str]) -> None:
    """Refuse codes of a codec that no worker has loaded at the moment."""
    loaded = loaded_codecs()
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


def _store(clip: NewClip, codes: CheckedCodes, kept: Kept, tenant: str) -> NewClip:
    """Store a clip's bytes and its codes."""
    content = clip.content or b""
    stored = store_clip(content, container=check_clip(content), tenant=tenant)
    kept.clips.append(stored.pk)
    kept.codes.append(store_codes(stored, codes))
    return replace(clip, content=None, stored=stored)
