"""Claim segments: which may be rendered now, in which order, and who gets them."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from synth.models import JobVoice, RenderJob, Segment
from synth.transitions.batches import start_batches
from synth.transitions.claims import SegmentClaim
from synth.transitions.jobs import UNFINISHED, JobStatus
from ttsweb import leases
from voices.models import VoiceVersion

INTERACTIVE = RenderJob.Priority.INTERACTIVE


def claimable_segments(codec_fingerprint: str) -> QuerySet[Segment]:
    """Return the segments that a worker with this codec may render now, most urgent first.

    Within a class the oldest job goes first and its text in order: what is in the engine together
    mostly has one voice, and no job waits for a younger one.
    """
    now = leases.database_now()
    unready = JobVoice.objects.filter(job=OuterRef("job")).exclude(
        version__status=VoiceVersion.Status.READY, version__codec_fingerprint=codec_fingerprint
    )
    return Segment.objects.filter(
        ~Exists(unready),
        Q(job__deadline_at__isnull=True) | Q(job__deadline_at__gt=now),
        status=Segment.Status.QUEUED,
        not_before__lte=now,
        job__cancel_requested=False,
        job__status__in=UNFINISHED,
    ).order_by("job__priority", "job__created_at", "pk")


def claim_segments(
    *,
    worker: str,
    limit: int,
    codec_fingerprint: str,
    interactive_limit: int = 0,
    ids: Sequence[int] | None = None,
    attempts_below: int | None = None,
) -> list[SegmentClaim]:
    """Move segments QUEUED -> CLAIMED and their jobs to RUNNING, most urgent first.

    Up to `limit` of any class; those of interactive jobs up to `interactive_limit` where that is
    more. With `ids`, only among those; with `attempts_below`, only those tried less often. Of many
    workers exactly one gets each segment.
    """
    candidates = claimable_segments(codec_fingerprint)
    if ids is not None:
        candidates = candidates.filter(pk__in=ids)
    if attempts_below is not None:
        candidates = candidates.filter(attempts__lt=attempts_below)
    if connection.features.has_select_for_update_skip_locked:
        with transaction.atomic():
            locked = candidates.select_for_update(skip_locked=True, of=("self",))
            claims = _claim(_choose(locked, limit, interactive_limit), worker)
    else:
        # One writer at a time: looking for candidates would keep all others waiting. Whoever takes
        # one of them meanwhile has moved it out of QUEUED.
        chosen = _choose(candidates, limit, interactive_limit)
        with transaction.atomic():
            claims = _claim(chosen, worker)
    if claims:
        # On its own: with the rows still locked it could wait for a cancel that waits for them.
        now = leases.database_now()
        jobs = {claim.job_id for claim in claims}
        begun = RenderJob.objects.filter(pk__in=jobs, status=JobStatus.QUEUED).update(
            status=JobStatus.RUNNING, started_at=now, updated_at=now
        )
        if begun:
            start_batches(jobs)
    return claims


def _choose(candidates: QuerySet[Segment], limit: int, interactive_limit: int) -> list[int]:
    """Return primary keys, most urgent first."""
    if interactive_limit <= limit:
        return list(candidates.values_list("pk", flat=True)[:limit])
    urgent = candidates.filter(job__priority=INTERACTIVE)
    chosen = list(urgent.values_list("pk", flat=True)[:interactive_limit])
    if len(chosen) < limit:
        others = candidates.exclude(job__priority=INTERACTIVE)
        chosen += others.values_list("pk", flat=True)[: limit - len(chosen)]
    return chosen


def _claim(chosen: Sequence[int], worker: str) -> list[SegmentClaim]:
    """Claim those of the rows that are still free, under one token; call in a transaction."""
    if not chosen:
        return []
    token = uuid.uuid4()
    Segment.objects.filter(pk__in=chosen, status=Segment.Status.QUEUED).update(
        status=Segment.Status.CLAIMED,
        claimed_by=worker,
        claim_token=token,
        lease_until=leases.database_now() + dt.timedelta(seconds=settings.LEASE_SECONDS),
        attempts=F("attempts") + 1,
    )
    won = {
        pk: SegmentClaim(pk, token, job_id, priority)
        for pk, job_id, priority in Segment.objects.filter(
            pk__in=chosen, claim_token=token
        ).values_list("pk", "job_id", "job__priority")
    }
    return [won[pk] for pk in chosen if pk in won]
