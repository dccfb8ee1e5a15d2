"""Change the status of voice versions and encoder runs; the only writer of these columns.

Each step is one conditional UPDATE, fenced by the claim's token: a late worker changes nothing.
"""

from __future__ import annotations

import datetime as dt
import uuid
from functools import partial

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from synth.jobs import queue
from synth.webhooks.events import tell_of_version
from ttsweb import leases
from voices.models import ClipCodes, CodesCounter, ReferenceClip, StoredClip, VoiceVersion

Status = VoiceVersion.Status
WORKER_LOST_MESSAGE = (
    "Every worker that encoded this clip stopped before it was done. Look at the workers' "
    "logs, then encode the voice again."
)


def enqueue_version(version_id: uuid.UUID) -> None:
    """Send the version's message once the current transaction has committed."""
    transaction.on_commit(partial(_send_version, version_id))


def _send_version(version_id: uuid.UUID) -> None:
    if queue.send_encode(version_id):
        VoiceVersion.objects.filter(pk=version_id).update(sent_at=leases.database_now())


def claimable_versions() -> QuerySet[VoiceVersion]:
    """Return the versions that wait for an encoder now, oldest first."""
    return VoiceVersion.objects.filter(
        status=Status.PENDING, not_before__lte=leases.database_now()
    ).order_by("created_at")


def claim_version(version_id: uuid.UUID, *, worker: str) -> uuid.UUID | None:
    """Move a version PENDING -> ENCODING; of many callers exactly one gets a token."""
    return leases.claim(
        claimable_versions().order_by().filter(pk=version_id),
        worker=worker,
        lease_seconds=settings.LEASE_SECONDS,
        now=leases.database_now(),
        status=Status.ENCODING,
    )


def finish_version(
    version_id: uuid.UUID,
    token: uuid.UUID,
    *,
    codec_fingerprint: str,
    frames: int,
    warnings: list[dict[str, str]],
) -> bool:
    """Move ENCODING -> READY; False when the claim is no longer ours."""
    with transaction.atomic():
        moved = _held(version_id, token).update(
            status=Status.READY,
            codec_fingerprint=codec_fingerprint,
            frames=frames,
            warnings=warnings,
            error_code="",
            error_message="",
            encoded_at=leases.database_now(),
            **(leases.free(spend_attempt=True) | {"attempts": 0}),
        )
        if moved:
            tell_of_version(version_id)
    return bool(moved)


def fail_version(version_id: uuid.UUID, token: uuid.UUID, *, code: str, message: str) -> bool:
    """Move ENCODING -> FAILED with a code and a sentence; False when the claim is gone."""
    with transaction.atomic():
        moved = _held(version_id, token).update(
            status=Status.FAILED,
            error_code=code,
            error_message=message,
            **leases.free(spend_attempt=True),
        )
        if moved:
            tell_of_version(version_id)
    return bool(moved)


def stop_encoding(versions: QuerySet[VoiceVersion]) -> int:
    """Move versions of a deleted voice PENDING or ENCODING -> FAILED; return how many.

    Whoever encodes one loses its claim.
    """
    return versions.filter(status__in=(Status.PENDING, Status.ENCODING)).update(
        status=Status.FAILED,
        error_code="voice_deleted",
        error_message="The voice was deleted before it was encoded.",
        **leases.free(spend_attempt=True),
    )


def release_version(
    version_id: uuid.UUID,
    token: uuid.UUID,
    *,
    delay_seconds: float = 0.0,
    spend_attempt: bool = False,
) -> bool:
    """Move ENCODING -> PENDING: shutdown, busy clip, full disk; False when the claim is gone."""
    not_before = leases.database_now() + dt.timedelta(seconds=delay_seconds)
    return bool(
        _held(version_id, token).update(
            status=Status.PENDING,
            **leases.free(spend_attempt=spend_attempt, not_before=not_before),
        )
    )


def ready_version(version: VoiceVersion, codec_fingerprint: str) -> bool:
    """Move PENDING -> READY where each clip has its codes of this codec already; False elsewhere.

    Call inside the transaction that made the version, whose clips are locked.
    """
    clips = list(ReferenceClip.objects.filter(version=version).select_related("stored"))
    rows = ClipCodes.objects.filter(
        clip__in={clip.stored_id for clip in clips},
        codec_fingerprint=codec_fingerprint,
        encoded_at__isnull=False,
    )
    frames = dict(rows.values_list("clip_id", "frames"))
    if not clips or any(clip.stored_id not in frames for clip in clips):
        return False
    moved = VoiceVersion.objects.filter(pk=version.pk, status=Status.PENDING).update(
        status=Status.READY,
        codec_fingerprint=codec_fingerprint,
        frames=sum(frames[clip.stored_id] for clip in clips),
        warnings=[one for clip in clips for one in clip.stored.measures.get("warnings", [])],
        encoded_at=leases.database_now(),
    )
    if moved:
        tell_of_version(version.pk)
    return bool(moved)


def request_encoding(version: VoiceVersion) -> bool:
    """Move READY or FAILED -> PENDING and drop the clips' codes, so that the encoder runs again.

    Returns False when the version is being encoded already.
    """
    with transaction.atomic():
        moved = VoiceVersion.objects.filter(
            pk=version.pk, status__in=(Status.READY, Status.FAILED)
        ).update(status=Status.PENDING, attempts=0, not_before=leases.database_now(), sent_at=None)
        if moved:
            drop_codes(ClipCodes.objects.filter(clip__uses__version=version))
            enqueue_version(version.pk)
    return bool(moved)


def drop_codes(rows: QuerySet[ClipCodes]) -> None:
    """Delete codes rows and, after commit, their objects; call inside a transaction."""
    from voices.objects import (
        delete_objects_on_commit,
    )  # it evicts through models, not through here

    found = list(rows.values_list("pk", "key").distinct())
    ClipCodes.objects.filter(pk__in=[pk for pk, _ in found]).delete()
    delete_objects_on_commit(key for _, key in found if key)


def reopen_without_codes(version_id: uuid.UUID) -> bool:
    """Move READY -> PENDING because a clip's codes are gone; jobs wait for the new ones."""
    with transaction.atomic():
        moved = VoiceVersion.objects.filter(pk=version_id, status=Status.READY).update(
            status=Status.PENDING, attempts=0, not_before=leases.database_now(), sent_at=None
        )
        if moved:
            enqueue_version(version_id)
    return bool(moved)


def reopen_stale_versions(codec_fingerprint: str) -> int:
    """Move READY versions of another codec that are in use to PENDING; return how many.

    In use: the newest version of a voice that exists, every version that an unfinished job pins.
    """
    newer = VoiceVersion.objects.filter(voice=OuterRef("voice"), number__gt=OuterRef("number"))
    in_use = Q(voice__isnull=False, voice__deleted_at__isnull=True) & ~Exists(newer)
    pinned = Q(pinned_by__job__status__in=("queued", "running"))
    stale = (
        VoiceVersion.objects.filter(in_use | pinned, status=Status.READY)
        .exclude(codec_fingerprint=codec_fingerprint)
        .values_list("pk", flat=True)
    )
    return sum(reopen_without_codes(pk) for pk in set(stale))


def free_lost_versions(lost: Q) -> int:
    """Give back versions whose claim meets `lost`; those tried too often fail."""
    rows = VoiceVersion.objects.filter(lost, status=Status.ENCODING)
    hopeless = rows.filter(attempts__gte=settings.MAX_ATTEMPTS, claim_token__isnull=False)
    failed = sum(
        fail_version(pk, token, code="worker_lost", message=WORKER_LOST_MESSAGE)
        for pk, token in list(hopeless.values_list("pk", "claim_token"))
        if token is not None
    )
    return failed + rows.update(
        status=Status.PENDING,
        **leases.free(spend_attempt=True, not_before=leases.database_now()),
    )


def claim_codes(
    clip: StoredClip, codec_fingerprint: str, *, worker: str
) -> tuple[ClipCodes, uuid.UUID | None]:
    """Return the row of a clip's codes and, when the encoder must run here, a claim on that run.

    Three outcomes: `row.encoded_at` set (the codes exist), a token (run the encoder now), or
    neither (somebody else runs it: look again in a moment).
    """
    now = leases.database_now()
    try:
        with transaction.atomic():
            row, _ = ClipCodes.objects.get_or_create(clip=clip, codec_fingerprint=codec_fingerprint)
    except IntegrityError:  # made by somebody else between the look and the insert
        row = ClipCodes.objects.get(clip=clip, codec_fingerprint=codec_fingerprint)
    if row.encoded_at is not None:
        return row, None
    free = ClipCodes.objects.filter(Q(claim_token__isnull=True) | leases.expired(now), pk=row.pk)
    token = leases.claim(
        free.filter(encoded_at__isnull=True),
        worker=worker,
        lease_seconds=settings.LEASE_SECONDS,
        now=now,
    )
    return row, token


def finish_codes(
    row: ClipCodes, token: uuid.UUID, *, key: str, frames: int, resampler: str
) -> bool:
    """Publish an encoder run's result and count it; False when the row or the claim is gone."""
    with transaction.atomic():
        finished = ClipCodes.objects.filter(pk=row.pk, claim_token=token).update(
            key=key,
            frames=frames,
            resampler=resampler,
            encoded_at=leases.database_now(),
            **leases.free(spend_attempt=True),
        )
        if finished:
            count("encoder_run", 1)
    return bool(finished)


def adopt_codes(
    clip: StoredClip, codec_fingerprint: str, *, key: str, frames: int, resampler: str
) -> bool:
    """Publish codes that were made elsewhere; False when the clip has some or they are being made.

    Call inside a transaction that holds the clip.
    """
    now = leases.database_now()
    row, _ = ClipCodes.objects.get_or_create(clip=clip, codec_fingerprint=codec_fingerprint)
    free = ClipCodes.objects.filter(Q(claim_token__isnull=True) | leases.expired(now), pk=row.pk)
    return bool(
        free.filter(encoded_at__isnull=True).update(
            key=key,
            frames=frames,
            resampler=resampler,
            encoded_at=now,
            **leases.free(spend_attempt=True),
        )
    )


def release_codes(row: ClipCodes, token: uuid.UUID) -> None:
    """Give an encoder run back that did not come to an end."""
    ClipCodes.objects.filter(pk=row.pk, claim_token=token).update(
        **leases.free(spend_attempt=False)
    )


def forget_codes(row: ClipCodes) -> None:
    """Forget codes whose object is gone, so that the next caller runs the encoder again."""
    ClipCodes.objects.filter(pk=row.pk, key=row.key).update(key="", encoded_at=None)


def count(name: str, amount: int) -> None:
    """Add to one of the counters that all workers share: memory_hit, storage_hit, encoder_run."""
    if not CodesCounter.objects.filter(pk=name).update(value=F("value") + amount):
        _, made = CodesCounter.objects.get_or_create(name=name, defaults={"value": amount})
        if not made:
            CodesCounter.objects.filter(pk=name).update(value=F("value") + amount)


def _held(version_id: uuid.UUID, token: uuid.UUID) -> QuerySet[VoiceVersion]:
    return VoiceVersion.objects.filter(pk=version_id, claim_token=token, status=Status.ENCODING)
