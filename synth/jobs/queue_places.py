"""Say where jobs stand in the queue: for a page of them at once, with a few queries for all."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
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


class LaneState(NamedTuple):
    """Count what a lane still has of one class of priority."""

    queued_jobs: int
    oldest: dt.datetime | None  # when the first of its queued jobs was made
    segments: int  # that are left of jobs that are queued or run


class QueueState:
    """Read the queue once for places and times of the same jobs, each part when it is asked for."""

    def __init__(self, jobs: Sequence[RenderJob]) -> None:
        self._jobs = [
            job
            for job in jobs
            if job.status in UNFINISHED and not job.cancel_requested and job.paused_at is None
        ]

    @cached_property
    def before(self) -> dict[uuid.UUID, Before]:
        return before_in_lane(self._jobs)

    @cached_property
    def lanes(self) -> dict[_Lane, LaneState]:
        return read_lanes()


def queue_positions(
    jobs: Sequence[RenderJob], queue: QueueState | None = None
) -> dict[uuid.UUID, int]:
    """Return the place of each queued job among them, 1 for the next one.

    It says after how many other queued jobs this one begins: after those of more urgent classes,
    the older ones of its own lane, and as many of each other lane, since lanes take turns.
    """
    queue = queue or QueueState(jobs)
    found = {}
    for job in jobs:
        if job.status != _QUEUED or job.paused_at is not None or job.pk not in queue.before:
            continue
        own = queue.before[job.pk].queued_jobs
        place = 1 + own
        mine = queue.lanes.get((job.priority, job.lane))
        own_first = job.created_at if mine is None or mine.oldest is None else mine.oldest
        for (priority, name), lane in queue.lanes.items():
            if priority < job.priority:
                place += lane.queued_jobs
            elif priority == job.priority and name != job.lane and lane.oldest is not None:
                # In each round of turns the lane that has waited longest comes first.
                place += min(lane.queued_jobs, own + (lane.oldest < own_first))
        found[job.pk] = place
    return found


def read_lanes() -> dict[_Lane, LaneState]:
    """Return what each lane with unfinished jobs has left, by one query."""
    is_queued = Q(status=_QUEUED)
    rows = unfinished_jobs().values("priority", "lane")
    counted = rows.annotate(
        queued=Count("pk", filter=is_queued),
        oldest=Min("created_at", filter=is_queued),
        left=Sum(SEGMENTS_LEFT),
    )
    return {
        (row["priority"], row["lane"]): LaneState(row["queued"], row["oldest"], row["left"])
        for row in counted
    }


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
