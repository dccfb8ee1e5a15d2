"""Move segments: claim, finish, fail, cancel, release, reopen."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from synth.models import JobVoice, RenderJob, Segment, Take
from synth.removal import lock_jobs
from synth.transitions.claims import WORKER_LOST_MESSAGE, Claim
from synth.transitions.jobs import UNFINISHED, JobStatus, count_closed
from ttsweb import leases
from voices.models import VoiceVersion


def claimable_segments(codec_fingerprint: str) -> QuerySet[Segment]:
    """Return the segments that a worker with this codec may render now, most urgent first."""
    unready = JobVoice.objects.filter(job=OuterRef("job")).exclude(
        version__status=VoiceVersion.Status.READY, version__codec_fingerprint=codec_fingerprint
    )
    return Segment.objects.filter(
        ~Exists(unready),
        status=Segment.Status.QUEUED,
        not_before__lte=leases.database_now(),
        job__cancel_requested=False,
        job__status__in=UNFINISHED,
    ).order_by("job__priority", "job__created_at", "pk")


def claim_segments(
    *,
    worker: str,
    limit: int,
    codec_fingerprint: str,
    ids: Sequence[int] | None = None,
    attempts_below: int | None = None,
) -> list[Claim]:
    """Move up to `limit` segments QUEUED -> CLAIMED and their jobs to RUNNING.

    With `ids`, only among those; with `attempts_below`, only those tried less often. Of many
    workers exactly one gets each segment.
    """
    candidates = claimable_segments(codec_fingerprint)
    if ids is not None:
        candidates = candidates.filter(pk__in=ids)
    if attempts_below is not None:
        candidates = candidates.filter(attempts__lt=attempts_below)
    token, now = uuid.uuid4(), leases.database_now()
    with transaction.atomic():
        if connection.features.has_select_for_update_skip_locked:
            candidates = candidates.select_for_update(skip_locked=True, of=("self",))
        chosen = list(candidates.values_list("pk", flat=True)[:limit])
        if not chosen:
            return []
        Segment.objects.filter(pk__in=chosen, status=Segment.Status.QUEUED).update(
            status=Segment.Status.CLAIMED,
            claimed_by=worker,
            claim_token=token,
            lease_until=now + dt.timedelta(seconds=settings.LEASE_SECONDS),
            attempts=F("attempts") + 1,
        )
        won = list(Segment.objects.filter(claim_token=token).values_list("pk", "job_id"))
    # On its own: with the rows still locked it could wait for a cancel that waits for them.
    RenderJob.objects.filter(pk__in={job_id for _, job_id in won}, status=JobStatus.QUEUED).update(
        status=JobStatus.RUNNING, started_at=now, updated_at=now
    )
    order = {pk: place for place, pk in enumerate(chosen)}
    return [Claim(pk, token) for pk, _ in sorted(won, key=lambda row: order[row[0]])]


def finish_segment(claim: Claim, take: Take) -> bool:
    """Move CLAIMED -> DONE with its take; False when the claim is gone and nothing was changed."""
    with transaction.atomic():
        segment = _close_segment(claim, Segment.Status.DONE, take=take)
        if segment is None:
            return False
        seconds = take.audio_seconds + segment.pause_after_ms / 1000
        count_closed(segment.job_id, segments_done=1, audio_seconds=seconds)
    return True


def fail_segment(claim: Claim, *, code: str, message: str) -> bool:
    """Move CLAIMED -> FAILED; its job goes on without it. False when the claim is gone."""
    with transaction.atomic():
        segment = _close_segment(
            claim, Segment.Status.FAILED, error_code=code, error_message=message
        )
        if segment is None:
            return False
        count_closed(segment.job_id, segments_failed=1)
    return True


def cancel_segment(claim: Claim) -> bool:
    """Move CLAIMED -> CANCELLED after its job was cancelled; False when the claim is gone."""
    with transaction.atomic():
        segment = _close_segment(claim, Segment.Status.CANCELLED)
        if segment is None:
            return False
        count_closed(segment.job_id, segments_cancelled=1)
    return True


def release_segment(
    claim: Claim, *, delay_seconds: float = 0.0, spend_attempt: bool = False
) -> bool:
    """Move CLAIMED -> QUEUED: shutdown, a passing error; False when the claim is gone."""
    not_before = leases.database_now() + dt.timedelta(seconds=delay_seconds)
    return bool(
        _held(claim).update(
            status=Segment.Status.QUEUED,
            **leases.free(spend_attempt=spend_attempt, not_before=not_before),
        )
    )


def reopen_segments(segment_ids: Iterable[int]) -> int:
    """Move DONE -> QUEUED because a take's audio is gone; the job is completed again afterwards."""
    reopened, ids = 0, list(segment_ids)
    with transaction.atomic():
        jobs = Segment.objects.filter(pk__in=ids).values("job")
        lock_jobs(RenderJob.objects.filter(pk__in=jobs))
        for segment in Segment.objects.filter(pk__in=ids).select_related("take"):
            moved = Segment.objects.filter(pk=segment.pk, status=Segment.Status.DONE).update(
                status=Segment.Status.QUEUED,
                take=None,
                **(leases.free(spend_attempt=True) | {"attempts": 0}),
            )
            if moved:
                seconds = segment.pause_after_ms / 1000
                seconds += segment.take.audio_seconds if segment.take else 0.0
                count_closed(segment.job_id, segments_done=-1, audio_seconds=-seconds)
                reopened += 1
    return reopened


def free_lost_segments(lost: Q) -> int:
    """Give back segments whose claim meets `lost`; those tried too often fail."""
    count = 0
    rows = Segment.objects.filter(lost, status=Segment.Status.CLAIMED)
    for pk, token, attempts, cancelled in rows.values_list(
        "pk", "claim_token", "attempts", "job__cancel_requested"
    ):
        if token is None:  # freed by somebody else meanwhile
            continue
        claim = Claim(pk, token)
        if cancelled:
            count += cancel_segment(claim)
        elif attempts >= settings.MAX_ATTEMPTS:
            count += fail_segment(claim, code="worker_lost", message=WORKER_LOST_MESSAGE)
        else:
            count += release_segment(claim, spend_attempt=True)
    return count


def _held(claim: Claim) -> QuerySet[Segment]:
    return Segment.objects.filter(
        pk=claim.pk, claim_token=claim.token, status=Segment.Status.CLAIMED
    )


def _close_segment(claim: Claim, status: Segment.Status, **changes: Any) -> Segment | None:
    """Move a held segment to a final status; return the row, or None when the claim is gone."""
    lock_jobs(RenderJob.objects.filter(segments=claim.pk))
    columns = leases.free(spend_attempt=True) | {"status": status} | changes
    columns.pop("claimed_by")  # stays: pages show who rendered it
    if not _held(claim).update(finished_at=leases.database_now(), **columns):
        return None
    return Segment.objects.get(pk=claim.pk)
