"""Let go of voices: the rows first, in a transaction, and their objects after it has committed.

A user's voices go before the user: without an owner they would be everybody's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from voices.models import CacheEviction, ReferenceClip, Voice, VoiceAlias, VoiceVersion
from voices.objects import collect_clips
from voices.signals import voice_silenced
from voices.transitions import stop_encoding


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
