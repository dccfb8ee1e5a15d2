"""Claim segments: which may be rendered now, in which order, and who gets them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db import IntegrityError, connection, transaction
from django.db.models import Case, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from synth.jobs.removal import update_jobs
from synth.models import RenderJob, Segment
from synth.transitions.batches import start_batches
from synth.transitions.fair_order import Want, choose_fairly, note_turns, rendering_keys
from synth.transitions.jobs import UNFINISHED, JobStatus
from synth.transitions.silenced import unready_voices
from ttsweb import leases
from ttsweb.leases import Claim

INTERACTIVE = RenderJob.Priority.INTERACTIVE


@dataclass(frozen=True)
class SegmentClaim(Claim):
    """A held segment, with its job and that job's priority."""

    job_id: uuid.UUID
    priority: int


def claimable_segments(codec_fingerprint: str) -> QuerySet[Segment]:
    """Return the segments that a worker with this codec may render now, by class and age.

    What a worker takes is in another order where several lanes have some: see `fair_order`.
    """
    now = leases.database_now()
    unready = unready_voices(codec_fingerprint).filter(job=OuterRef("job"))
    return Segment.objects.filter(
        ~Exists(unready),
        ~Q(content_key__in=rendering_keys()),
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
    losses_below: int | None = None,
    hold: Callable[[Sequence[SegmentClaim]], None] | None = None,
) -> list[SegmentClaim]:
    """Move segments QUEUED -> CLAIMED and their jobs to RUNNING, most urgent first.

    Up to `limit` of any class; those of interactive jobs up to `interactive_limit` where that is
    more. Within a class lanes get equal shares. With `attempts_below`, only those tried less often,
    with `losses_below`, those whose workers ended less often; with `ids`, which name what is to run
    whatever else waits, only among those. Of many workers exactly one gets each segment.

    Args:
        hold: called with the claims once they are committed, before `note_claims`: a database that
            goes away between the two must not leave claims that nobody renews.
    """
    has_locks = connection.features.has_select_for_update_skip_locked
    want = Want(codec_fingerprint, attempts_below, losses_below, is_locking=has_locks)
    if has_locks:
        with transaction.atomic():
            claims = _claim(_choose(want, limit, interactive_limit, ids), worker)
    else:
        # One writer at a time: looking for candidates would keep all others waiting. Whoever takes
        # one of them meanwhile has moved it out of QUEUED.
        chosen = _choose(want, limit, interactive_limit, ids)
        if not chosen:
            return []
        with transaction.atomic():
            claims = _claim(chosen, worker)
    if claims:
        if hold is not None:
            hold(claims)
        note_claims(claims)
    return claims


@transaction.atomic
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


def begin_takes(wanted: Mapping[Claim, str]) -> set[Claim]:
    """Note which takes are rendered under which claims; return the claims that may render.

    Of all claims with one key, here and in every other worker, one may: the others wait, see
    `wait_for_takes`. A job that is more urgent than the one whose segment renders does not wait.
    Whether a take has come since it was looked for is to be looked at afterwards.

    Args:
        wanted: the content keys of takes that are not there.
    """
    chosen: dict[str, Claim] = {}
    for claim, key in wanted.items():
        chosen.setdefault(key, claim)
    if not chosen:
        return set()
    try:
        with transaction.atomic():
            return _begin_takes({claim: key for key, claim in chosen.items()})
    except IntegrityError:  # another worker has begun one of them in this moment
        begun = set()
        for key, claim in chosen.items():
            try:
                with transaction.atomic():
                    begun |= _begin_takes({claim: key})
            except IntegrityError:
                continue
        return begun


def _begin_takes(wanted: Mapping[Claim, str]) -> set[Claim]:
    rendering = Segment.objects.filter(status=Segment.Status.CLAIMED)
    ours = [claim.pk for claim in wanted]
    others = rendering.filter(content_key__in=wanted.values()).exclude(pk__in=ours)
    found = others.values_list("content_key", "pk", "job__priority")
    held = {key: (pk, priority) for key, pk, priority in found}
    if held:
        urgency = Segment.objects.filter(pk__in=ours)
        priorities = dict(urgency.values_list("pk", "job__priority"))
        slower = [
            held.pop(key)[0]
            for claim, key in wanted.items()
            if key in held and held[key][1] > priorities.get(claim.pk, INTERACTIVE)
        ]
        rendering.filter(pk__in=slower).update(content_key="")
    mine = {claim: key for claim, key in wanted.items() if key not in held}
    if mine:
        _held(rendering, mine).update(content_key=_keys_of(mine))
    return set(mine)


def wait_for_takes(waiting: Mapping[Claim, str]) -> int:
    """Move CLAIMED -> QUEUED, to be claimed again once nobody renders the take of that key.

    The claim costs no attempt. Segments of cancelled jobs stay claimed; returns how many moved.
    """
    now = leases.database_now()
    speaking = RenderJob.objects.filter(cancel_requested=False)
    rows = _held(Segment.objects.filter(job__in=speaking), waiting)
    return rows.filter(status=Segment.Status.CLAIMED).update(
        status=Segment.Status.QUEUED,
        content_key=_keys_of(waiting),
        **leases.free(spend_attempt=False, not_before=now),
    )


def _held(rows: QuerySet[Segment], claims: Collection[Claim]) -> QuerySet[Segment]:
    """Return those of the rows that are still held under these claims."""
    tokens = {claim.token for claim in claims}
    return rows.filter(pk__in=[claim.pk for claim in claims], claim_token__in=tokens)


def _keys_of(claims: Mapping[Claim, str]) -> Case:
    return Case(*[When(pk=claim.pk, then=Value(key)) for claim, key in claims.items()])


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
        content_key="", **leases.claimed(Segment, worker=worker, token=token)
    )
    won = {
        pk: SegmentClaim(pk, token, job_id, priority)
        for pk, job_id, priority in Segment.objects.filter(
            pk__in=chosen, claim_token=token
        ).values_list("pk", "job_id", "job__priority")
    }
    return [won[pk] for pk in chosen if pk in won]
