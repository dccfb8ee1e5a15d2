"""Claim segments: which may be rendered now, in which order, and who gets them."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from synth.models import JobVoice, RenderJob, Segment
from synth.removal import update_jobs
from synth.transitions.batches import start_batches
from synth.transitions.claims import SegmentClaim
from synth.transitions.fair_order import Want, choose_fairly, note_turns
from synth.transitions.jobs import UNFINISHED, JobStatus
from ttsweb import leases
from voices.models import VoiceVersion

INTERACTIVE = RenderJob.Priority.INTERACTIVE


def claimable_segments(codec_fingerprint: str) -> QuerySet[Segment]:
    """Return the segments that a worker with this codec may render now, by class and age.

    What a worker takes is in another order where several lanes have some: see `fair_order`.
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
        job__paused_at__isnull=True,
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
    hold: Callable[[Sequence[SegmentClaim]], None] | None = None,
) -> list[SegmentClaim]:
    """Move segments QUEUED -> CLAIMED and their jobs to RUNNING, most urgent first.

    Up to `limit` of any class; those of interactive jobs up to `interactive_limit` where that is
    more. Within a class lanes get equal shares. With `attempts_below`, only those tried less often;
    with `ids`, which name what is to run whatever else waits, only among those. Of many workers
    exactly one gets each segment.

    Args:
        hold: called with the claims once they are committed, before `note_claims`: a database that
            goes away between the two must not leave claims that nobody renews.
    """
    has_locks = connection.features.has_select_for_update_skip_locked
    want = Want(codec_fingerprint, attempts_below, is_locking=has_locks)
    if has_locks:
        with transaction.atomic():
            claims = _claim(_choose(want, limit, interactive_limit, ids), worker)
    else:
        # One writer at a time: looking for candidates would keep all others waiting. Whoever takes
        # one of them meanwhile has moved it out of QUEUED.
        chosen = _choose(want, limit, interactive_limit, ids)
        with transaction.atomic():
            claims = _claim(chosen, worker)
    if claims:
        if hold is not None:
            hold(claims)
        note_claims(claims)
    return claims


def note_claims(claims: Sequence[SegmentClaim]) -> None:
    """Move the jobs of claims to RUNNING and note whose turn it was; it may be done again.

    On its own: with the rows still locked it could wait for a cancel that waits for them.
    """
    now = leases.database_now()
    jobs = {claim.job_id for claim in claims}
    queued = RenderJob.objects.filter(pk__in=jobs, status=JobStatus.QUEUED)
    if update_jobs(queued, status=JobStatus.RUNNING, started_at=now, updated_at=now):
        start_batches(jobs)
    turns: dict[int, set[str]] = {}
    for priority, lane in RenderJob.objects.filter(pk__in=jobs).values_list("priority", "lane"):
        turns.setdefault(priority, set()).add(lane)
    for priority, lanes in turns.items():
        note_turns(priority, lanes)


def _choose(want: Want, limit: int, interactive_limit: int, ids: Sequence[int] | None) -> list[int]:
    """Return primary keys, most urgent first."""
    if ids is not None:
        rows = claimable_segments(want.codec_fingerprint).filter(pk__in=ids)
        if want.attempts_below is not None:
            rows = rows.filter(attempts__lt=want.attempts_below)
        if want.is_locking:
            rows = rows.select_for_update(skip_locked=True, of=("self",))
        return list(rows.values_list("pk", flat=True)[:limit])
    chosen: list[int] = []
    for priority in sorted(RenderJob.Priority.values):
        most = max(limit, interactive_limit) if priority == INTERACTIVE else limit - len(chosen)
        chosen += choose_fairly(priority, most, want)
    return chosen


def _claim(chosen: Sequence[int], worker: str) -> list[SegmentClaim]:
    """Claim those of the rows that are still free, under one token; call in a transaction."""
    if not chosen:
        return []
    token = uuid.uuid4()
    # An expression, so that SQLite reads these rows and not its index of all that is queued.
    rows = Segment.objects.alias(state=Coalesce("status", Value(""))).filter(pk__in=chosen)
    rows.filter(state=Segment.Status.QUEUED).update(
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
