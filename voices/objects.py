"""Own the bytes behind voices: store an upload once, let bytes go when no row refers to them."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from voices.models import CacheEviction, ClipCodes, StoredClip
from voices.signals import answers_to, uses_asked

logger = logging.getLogger(__name__)


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


def delete_objects_on_commit(keys: Iterable[str]) -> None:
    """Remove objects once the rows that named them are gone for good."""
    transaction.on_commit(partial(delete_objects, list(keys)))


def delete_objects(keys: Iterable[str]) -> None:
    """Remove objects; one that cannot be removed is logged and left."""
    for key in keys:
        try:
            default_storage.delete(key)
        except OSError as error:
            logger.warning("cannot remove object: key=%s error=%s", key, error)
