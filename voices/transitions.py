"""Change the status of voice versions and encoder runs; the only writer of these columns.

Each step is one conditional UPDATE, fenced by the claim's token: a late worker changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from ttsweb import leases
from ttsweb.leases import Claim
from ttsweb.storage import delete_objects_on_commit
from ttsweb.work import Kind, enqueue
from voices.models import (
    ClipCodes,
    CodesCounter,
    ReferenceClip,
    StoredClip,
    Transcript,
    VoiceVersion,
)
from voices.signals import answers_to, uses_asked, version_ended

Status = VoiceVersion.Status


def claimable_versions() -> QuerySet[VoiceVersion]:
    """Return the versions that wait for an encoder now, oldest first."""
    return leases.claimable(VoiceVersion).order_by("created_at")


def finish_version(claim: Claim, *, codec_fingerprint: str, **summed: Any) -> bool:
    """Move ENCODING -> READY; False when the claim is no longer ours.

    Args:
        summed: what `summed_up` returns of its clips.
    """
    end = partial(
        leases.end,
        VoiceVersion,
        claim,
        Status.READY,
        codec_fingerprint=codec_fingerprint,
        **summed,
        error_code="",
        error_message="",
        encoded_at=leases.database_now(),
        attempts=0,
        losses=0,
    )
    return _end(claim, end)


def _end(claim: Claim, end: Callable[[], bool]) -> bool:
    """Take a step that ends the encoding, and tell others of it."""
    with transaction.atomic():
        moved = end()
        if moved:
            version_ended.send(VoiceVersion, version_id=claim.pk)
    return moved


def fail_version(claim: Claim, *, code: str, message: str) -> bool:
    """Move ENCODING -> FAILED with a code and a sentence; False when the claim is gone."""
    return _end(claim, partial(leases.fail, VoiceVersion, claim, code=code, message=message))


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


def ready_version(version: VoiceVersion, codec_fingerprint: str) -> bool:
    """Move PENDING -> READY where each clip has its codes of this codec already; False elsewhere.

    Call inside the transaction that made the version, whose clips are locked.
    """
    clips = ReferenceClip.objects.filter(version=version).select_related("stored")
    found = summed_up([clip.stored for clip in clips], codec_fingerprint)
    if found is None:
        return False
    moved = VoiceVersion.objects.filter(pk=version.pk, status=Status.PENDING).update(
        status=Status.READY,
        codec_fingerprint=codec_fingerprint,
        encoded_at=leases.database_now(),
        **found,
    )
    if moved:
        version_ended.send(VoiceVersion, version_id=version.pk)
    return bool(moved)


def summed_up(clips: Sequence[StoredClip], codec_fingerprint: str) -> dict[str, Any] | None:
    """Return the frames and warnings of a version of these clips; None where one has no codes."""
    rows = ClipCodes.objects.filter(
        clip__in=clips, codec_fingerprint=codec_fingerprint, encoded_at__isnull=False
    )
    frames = dict(rows.values_list("clip_id", "frames"))
    if not clips or any(clip.pk not in frames for clip in clips):
        return None
    return {
        "frames": sum(frames[clip.pk] for clip in clips),
        "warnings": [one for clip in clips for one in clip.measures.get("warnings", [])],
    }


def request_encoding(version: VoiceVersion) -> bool:
    """Move READY or FAILED -> PENDING and drop the clips' codes, so that the encoder runs again.

    Returns False when the version is being encoded already.
    """
    with transaction.atomic():
        moved = _reopen(version.pk, (Status.READY, Status.FAILED))
        if moved:
            drop_codes(ClipCodes.objects.filter(clip__uses__version=version))
    return moved


def _reopen(version_id: uuid.UUID, states: Sequence[str]) -> bool:
    """Move a version in one of the states to PENDING; call in a transaction."""
    versions = VoiceVersion.objects.filter(pk=version_id, status__in=states)
    moved = versions.update(status=Status.PENDING, **leases.untried())
    if moved:
        enqueue(Kind.VERSION, [version_id])
    return bool(moved)


def drop_codes(rows: QuerySet[ClipCodes]) -> None:
    """Delete codes rows and, after commit, their objects; call inside a transaction."""
    found = list(rows.values_list("pk", "key").distinct())
    ClipCodes.objects.filter(pk__in=[pk for pk, _ in found]).delete()
    delete_objects_on_commit(key for _, key in found if key)


def reopen_without_codes(version_id: uuid.UUID) -> bool:
    """Move READY -> PENDING because a clip's codes are gone; jobs wait for the new ones."""
    with transaction.atomic():
        return _reopen(version_id, (Status.READY,))


def reopen_stale_versions(codec_fingerprint: str) -> int:
    """Move READY versions of another codec that are in use to PENDING; return how many.

    In use: the newest version of a voice that exists, and what others use of the versions.
    """
    newer = VoiceVersion.objects.filter(voice=OuterRef("voice"), number__gt=OuterRef("number"))
    alive = Q(voice__isnull=False, voice__deleted_at__isnull=True)
    in_use = alive & Q(~Exists(newer))
    for used in answers_to(uses_asked, is_over=False):
        in_use |= Q(pk__in=used)
    stale = (
        VoiceVersion.objects.filter(in_use, status=Status.READY)
        .exclude(codec_fingerprint=codec_fingerprint)
        .values_list("pk", flat=True)
    )
    return sum(reopen_without_codes(pk) for pk in set(stale))


def claim_codes(
    clip: StoredClip, codec_fingerprint: str, *, worker: str, token: uuid.UUID | None = None
) -> tuple[ClipCodes, uuid.UUID | None]:
    """Return the row of a clip's codes and, when the encoder must run here, a claim on that run.

    Three outcomes: `row.encoded_at` set (the codes exist), a token (run the encoder now), or
    neither (somebody else runs it: look again in a moment).

    Args:
        token: that of the claim, also where an earlier call with it won; None makes one.
    """
    try:
        with transaction.atomic():
            row, _ = ClipCodes.objects.get_or_create(clip=clip, codec_fingerprint=codec_fingerprint)
    except IntegrityError:  # made by somebody else between the look and the insert
        row = ClipCodes.objects.get(clip=clip, codec_fingerprint=codec_fingerprint)
    if row.encoded_at is not None:
        return row, None
    if token is not None and row.claim_token == token:
        return row, token
    claims = leases.claim(_unmade_codes(), [row.pk], worker=worker, token=token)
    return row, claims[0].token if claims else None


def finish_codes(row: ClipCodes, token: uuid.UUID, **made: Any) -> bool:
    """Publish an encoder run's result and count it; False when the row or the claim is gone.

    `made` is key, frames and resampler, here and below.
    """
    with transaction.atomic():
        finished = _publish(ClipCodes.objects.filter(pk=row.pk, claim_token=token), **made)
        if finished:
            count("encoder_run", 1)
    return finished


def _publish(rows: QuerySet[ClipCodes], *, key: str, frames: int, resampler: str) -> bool:
    return bool(
        rows.update(
            key=key,
            frames=frames,
            resampler=resampler,
            encoded_at=leases.database_now(),
            **leases.free(spend_attempt=True),
        )
    )


def adopt_codes(clip: StoredClip, codec_fingerprint: str, **made: Any) -> bool:
    """Publish codes that were made elsewhere; False when the clip has some or they are being made.

    Call inside a transaction that holds the clip.
    """
    row, _ = ClipCodes.objects.get_or_create(clip=clip, codec_fingerprint=codec_fingerprint)
    return _publish(_unmade_codes().filter(pk=row.pk), **made)


def forget_codes(row: ClipCodes) -> None:
    """Forget codes whose object is gone, so that the next caller runs the encoder again."""
    ClipCodes.objects.filter(pk=row.pk, key=row.key).update(key="", encoded_at=None)


def claimable_transcripts() -> QuerySet[Transcript]:
    """Return the clips that wait for a transcriber now, oldest first."""
    return leases.claimable(Transcript).order_by("created_at")


def finish_transcript(claim: Claim, text: str) -> bool:
    """Move TRANSCRIBING -> DONE with what was heard; False when the claim is no longer ours."""
    state = Transcript.Status.DONE
    return _end_transcript(claim, partial(leases.end, Transcript, claim, state, text=text))


def fail_transcript(claim: Claim, *, code: str, message: str) -> bool:
    """Move TRANSCRIBING -> FAILED with a code and a sentence; False when the claim is gone."""
    return _end_transcript(
        claim, partial(leases.fail, Transcript, claim, code=code, message=message)
    )


def _end_transcript(claim: Claim, end: Callable[[], bool]) -> bool:
    """Take a step that ends the work at a clip, whose bytes then go."""
    with transaction.atomic():
        keys = Transcript.objects.filter(pk=claim.pk).values_list("original_key", flat=True)
        found = [key for key in keys if key]
        moved = end()
        if moved:
            Transcript.objects.filter(pk=claim.pk).update(original_key="")
            delete_objects_on_commit(found)
    return moved


def count(name: str, amount: int) -> None:
    """Add to one of the counters that all workers share: memory_hit, storage_hit, encoder_run."""
    if not CodesCounter.objects.filter(pk=name).update(value=F("value") + amount):
        _, made = CodesCounter.objects.get_or_create(name=name, defaults={"value": amount})
        if not made:
            CodesCounter.objects.filter(pk=name).update(value=F("value") + amount)


def _unmade_codes() -> QuerySet[ClipCodes]:
    """Return the codes that nobody has made, nor is making."""
    free = Q(claim_token__isnull=True) | leases.expired(leases.database_now())
    return ClipCodes.objects.filter(free, encoded_at__isnull=True)
