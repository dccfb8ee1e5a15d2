"""Say where jobs stand in the queue: for a page of them at once, with a few queries for all."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import Count, F, Min, Q, QuerySet, Sum

from synth.models import RenderJob
from synth.transitions.jobs import UNFINISHED

SEGMENTS_LEFT = (
    F("segments_total") - F("segments_done") - F("segments_failed") - F("segments_cancelled")
)
_QUEUED = RenderJob.Status.QUEUED
_Lane = tuple[int, str]  # priority and lane


class Before(NamedTuple):
    """Count what comes before a job in its own lane and class."""

    queued_jobs: int
    segments: int  # of jobs that are queued or run


def queue_positions(jobs: Sequence[RenderJob]) -> dict[uuid.UUID, int]:
    """Return the place of each queued job among them, 1 for the next one.

    It says after how many other queued jobs this one begins: after those of more urgent classes,
    the older ones of its own lane, and as many of each other lane, since lanes take turns.
    """
    queued = [job for job in jobs if job.status == _QUEUED and job.paused_at is None]
    if not queued:
        return {}
    own = before_in_lane(queued)
    rows = RenderJob.objects.filter(status=_QUEUED, paused_at__isnull=True).order_by()
    lanes = {
        (priority, lane): (count, first)
        for priority, lane, count, first in rows.values_list("priority", "lane").annotate(
            Count("pk"), Min("created_at")
        )
    }
    found = {}
    for job in queued:
        place = 1 + own[job.pk].queued_jobs
        _, own_first = lanes.get((job.priority, job.lane), (0, job.created_at))
        for (priority, lane), (count, first) in lanes.items():
            if priority < job.priority:
                place += count
            elif priority == job.priority and lane != job.lane:
                # In each round of turns the lane that has waited longest comes first.
                place += min(count, own[job.pk].queued_jobs + (first < own_first))
        found[job.pk] = place
    return found


def before_in_lane(jobs: Sequence[RenderJob]) -> dict[uuid.UUID, Before]:
    """Return what comes before each job in its own lane, by one query for all of them."""
    if len(jobs) == 1:  # as every request that makes a job asks: the database counts
        return {jobs[0].pk: _before(jobs[0])}
    found = {job.pk: Before(0, 0) for job in jobs}
    if not found:
        return found
    older = unfinished_jobs().filter(
        priority__in={job.priority for job in jobs},
        lane__in={job.lane for job in jobs},
        created_at__lte=max(job.created_at for job in jobs),
    )
    rows = older.order_by("created_at", "pk").annotate(left=SEGMENTS_LEFT)
    columns = rows.values_list("pk", "priority", "lane", "status", "left")
    so_far: dict[_Lane, Before] = defaultdict(lambda: Before(0, 0))
    for pk, priority, lane, status, left in columns.iterator(chunk_size=5000):
        queued, segments = so_far[(priority, lane)]
        if pk in found:
            found[pk] = Before(queued, segments)
        so_far[(priority, lane)] = Before(queued + (status == _QUEUED), segments + left)
    return found


def _before(job: RenderJob) -> Before:
    is_older = Q(created_at__lt=job.created_at) | Q(created_at=job.created_at, pk__lt=job.pk)
    lane = unfinished_jobs().filter(is_older, priority=job.priority, lane=job.lane)
    counted = lane.aggregate(
        queued=Count("pk", filter=Q(status=_QUEUED)), segments=Sum(SEGMENTS_LEFT, default=0)
    )
    return Before(counted["queued"], counted["segments"])


def unfinished_jobs() -> QuerySet[RenderJob]:
    """Return the jobs that workers have before them, in no order; paused ones hold nobody up."""
    return RenderJob.objects.filter(
        status__in=UNFINISHED, cancel_requested=False, paused_at__isnull=True
    ).order_by()
