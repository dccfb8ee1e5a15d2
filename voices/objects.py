"""Own the bytes behind voices: store an upload once, let go of voices and of what nothing needs.

Rows go first, in a transaction; their objects go after it has committed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError, QuerySet
from django.utils import timezone

from ttsweb.leases import database_now
from ttsweb.storage import delete_objects, delete_objects_on_commit
from voices.models import (
    CacheEviction,
    ClipCodes,
    ReferenceClip,
    StoredClip,
    Transcript,
    Voice,
    VoiceAlias,
    VoiceVersion,
)
from voices.signals import answers_to, uses_asked, voice_silenced
from voices.transitions import stop_encoding

KEPT = dt.timedelta(hours=1)  # for which a proposal, or what became of it, can be read
ROWS_AT_ONCE = 500


def tenant_of(owner_id: int | None) -> str:
    """Return the name under which a user's clips are kept apart from those of others.

    Empty is the installation itself: voices without an owner.
    """
    return "" if owner_id is None else f"user:{owner_id}"


def store_clip(content: bytes, *, container: str, tenant: str = "") -> StoredClip:
    """Return the tenant's stored clip with these bytes, writing them if no row has them yet.

    Tenants share no rows: an upload that were ready at once, or had measures before a worker saw
    it, would tell that somebody else has the same clip, and codes that one user imports would be
    the sound of another one's voice.

    The object's name holds the content's digest and a part of its own, so that a deletion of an
    earlier object with the same content can never remove this one.

    Raises:
        OSError: the storage cannot be written; no row is made.
    """
    fingerprint = hashlib.sha256(content).hexdigest()
    same = {"fingerprint": fingerprint, "tenant": tenant}
    found = StoredClip.objects.filter(**same).first()
    if found is not None and found.original_key:
        return found
    key = default_storage.save(
        f"clips/{fingerprint}/{uuid.uuid4().hex}.{container}", ContentFile(content)
    )
    about = {"original_key": key, "container": container}
    if found is not None:  # only its codes are left, of jobs that have ended
        if not StoredClip.objects.filter(pk=found.pk, original_key="").update(**about):
            delete_objects([key])
        return StoredClip.objects.get(**same)
    try:
        with transaction.atomic():
            return StoredClip.objects.create(**same, **about, size_bytes=len(content))
    except IntegrityError:  # another request stored the same bytes meanwhile: use that row
        delete_objects([key])
        return StoredClip.objects.get(**same)


def collect_clips(clip_ids: Iterable[uuid.UUID]) -> None:
    """Delete those of the stored clips that no version uses any more.

    Their objects go after the commit and every worker is told to drop their codes. Of a clip that
    only jobs use which brought it along and have ended, the audio goes, unless
    TTS_KEEP_INLINE_REFERENCES keeps it, and the codes stay as long as one of these jobs does.
    """
    for clip_id in set(clip_ids):
        # The errors: a new version took the clip in the same moment.
        with suppress(IntegrityError, ProtectedError), transaction.atomic():
            clip = StoredClip.objects.select_for_update().filter(pk=clip_id).first()
            if clip is not None:
                _let_go(clip)


def _let_go(clip: StoredClip) -> None:
    """Let a locked clip go, or its audio, or nothing, as far as others use it."""
    audio = [key for key in (clip.original_key, clip.used_key) if key]
    if not clip.uses.exists():
        keys = ClipCodes.objects.filter(clip=clip).exclude(key="").values_list("key", flat=True)
        codes = list(keys)
        CacheEviction.objects.create(clip_fingerprint=clip.fingerprint)
        clip.delete()
        delete_objects_on_commit([*audio, *codes])
        return
    others = clip.uses.all()
    for over in answers_to(uses_asked, is_over=True):
        others = others.exclude(version__voice__isnull=True, version__in=over)
    if not settings.KEEP_INLINE_REFERENCES and not others.exists():
        delete_objects_on_commit(audio)
        StoredClip.objects.filter(pk=clip.pk).update(original_key="", used_key="")


def delete_voice(voice: Voice) -> bool:
    """Hide a voice at once, stop the work that needs it, and let its bytes go.

    Nothing is begun with it once this has committed, and a worker that speaks with it stops within
    a moment. Returns False when the voice was deleted already.
    """
    with transaction.atomic():
        deleted = Voice.objects.filter(pk=voice.pk, deleted_at__isnull=True).update(
            deleted_at=timezone.now()
        )
        if not deleted:
            return False
        versions = VoiceVersion.objects.filter(voice=voice)
        voice_silenced.send(Voice, voice=voice)
        stop_encoding(versions)
        evict_voice(voice)
        drop_references(versions)
        VoiceAlias.objects.filter(voice=voice).delete()
    return True


def evict_voice(voice: Voice) -> None:
    """Have every worker drop the codes of all clips of a voice from memory."""
    clips = ReferenceClip.objects.filter(version__voice=voice)
    CacheEviction.objects.bulk_create(
        CacheEviction(clip_fingerprint=fingerprint)
        for fingerprint in clips.values_list("stored__fingerprint", flat=True).distinct()
    )


def drop_references(versions: QuerySet[VoiceVersion]) -> None:
    """Delete the versions' clip rows; bytes that nothing else uses go after the commit."""
    clips = ReferenceClip.objects.filter(version__in=versions)
    stored = list(clips.values_list("stored_id", flat=True))
    clips.delete()
    if stored:
        transaction.on_commit(partial(collect_clips, stored))


def delete_voices_of(instance: Any, **kwargs: Any) -> None:
    """Delete the voices of a user who is being deleted, inside the transaction that does it.

    Those that were shared go too: who agreed to them is gone, and a voice without an owner is
    one that the installation itself answers for.
    """
    for voice in Voice.objects.filter(owner_id=instance.pk, deleted_at__isnull=True):
        delete_voice(voice)


def forget_transcripts() -> int:
    """Delete the rows of an hour ago, in whatever state, with their clips; return how many."""
    old = Transcript.objects.filter(created_at__lt=database_now() - KEPT).order_by()
    found = dict(old.values_list("pk", "original_key")[:ROWS_AT_ONCE])
    if found:
        with transaction.atomic():
            Transcript.objects.filter(pk__in=list(found)).delete()
            delete_objects_on_commit([key for key in found.values() if key])
    return len(found)
