"""Tell with which voices a job may not speak any more, and which versions of them jobs use.

The one rule of who may speak: claims leave such jobs out, workers ask it before they begin, and
what is queued or rendered meanwhile is closed in the transaction that silences the voice.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.dispatch import receiver

from synth.models import JobVoice, RenderJob, WorkerStatus
from ttsweb import leases
from voices.models import VoiceVersion
from voices.signals import codecs_asked, uses_asked

VOICE_DELETED = "voice_deleted"
CONSENT_WITHDRAWN = "consent_withdrawn"
VOICE_NOT_SHARED = "voice_not_shared"
CODES = (VOICE_DELETED, CONSENT_WITHDRAWN, VOICE_NOT_SHARED)

_DELETED = Q(version__voice__deleted_at__isnull=False)
_WITHDRAWN = Q(version__voice__consent_withdrawn_at__isnull=False)
# As `voices.access.visible_voices`; a job without an owner is the installation's own.
_OF_ANOTHER = Q(
    version__voice__shared=False,
    version__voice__owner__isnull=False,
    job__owner__is_superuser=False,
) & ~Q(version__voice__owner=F("job__owner"))
SILENCED = _DELETED | _WITHDRAWN | _OF_ANOTHER  # a condition of JobVoice


class Silence(NamedTuple):
    """Why a voice may not speak for a job: a stable code and a sentence."""

    code: str
    message: str


def silence_of(pinned: JobVoice) -> Silence | None:
    """Return why a job may not speak with one of its voices; None where it may."""
    voice, owner = pinned.version.voice, pinned.job.owner
    if voice is None:
        return None
    if voice.deleted_at is not None:
        return Silence(VOICE_DELETED, f"The voice {voice.name!r} was deleted.")
    if voice.consent_withdrawn_at is not None:
        return Silence(
            CONSENT_WITHDRAWN, f"The consent to use the voice {voice.name!r} was withdrawn."
        )
    is_own = owner is None or owner.is_superuser or voice.owner_id in (None, owner.pk)
    if not is_own and not voice.shared:
        return Silence(VOICE_NOT_SHARED, f"The voice {voice.name!r} is no longer shared with you.")
    return None


def unready_voices(codec_fingerprint: str) -> QuerySet[JobVoice]:
    """Return the jobs' voices that a worker with this codec may not speak with now."""
    ready = Q(
        version__status=VoiceVersion.Status.READY, version__codec_fingerprint=codec_fingerprint
    )
    return JobVoice.objects.filter(~ready | SILENCED)


def silenced_among(job_ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Return those of the jobs that have a voice that may not speak for them any more."""
    pinned = JobVoice.objects.filter(SILENCED, job__in=job_ids)
    return set(pinned.values_list("job_id", flat=True))


@receiver(uses_asked)
def used_versions(is_over: bool, **_: Any) -> QuerySet[JobVoice, Any]:
    """Answer which versions jobs use that have ended, or have not."""
    ended = Q(job__status__in=RenderJob.FINAL)
    return JobVoice.objects.filter(ended if is_over else ~ended).order_by().values("version")


@receiver(codecs_asked)
def codecs_of_workers(is_loaded: bool, **_: Any) -> set[str]:
    """Answer which codecs workers have, those alone that are ready and alive where it is asked."""
    rows = WorkerStatus.objects.exclude(codec_fingerprint="")
    if is_loaded:
        silence = dt.timedelta(seconds=2 * settings.LEASE_SECONDS)
        since = leases.database_now() - silence
        rows = rows.filter(state=WorkerStatus.State.READY, last_seen_at__gt=since)
    return set(rows.values_list("codec_fingerprint", flat=True))
