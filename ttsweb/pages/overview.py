"""Gather what a person wants to see first: queue, workers, what was rendered, what went wrong."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.utils import timezone

from synth.accounts.access import sees_installation, visible_books, visible_jobs
from synth.accounts.stored_bytes import installation_bytes
from synth.models import (
    PRIORITIES,
    ApiKey,
    BookSource,
    RenderedDay,
    RenderJob,
    Segment,
    WorkerStatus,
)
from synth.transitions import UNFINISHED
from voices.models import CodesCounter

DAYS_SHOWN = 14
FAILURE_DAYS = 7
MOST_REASONS = 10
_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
_COUNTERS = ("memory_hit", "storage_hit", "encoder_run")
_SILENT_LEASES = 1.0  # a worker that has not written for a lease has lost what it held


def overview(user: AbstractBaseUser | AnonymousUser, key: ApiKey | None = None) -> dict[str, Any]:
    """Return the figures that a user may see: of one's own jobs, a superuser of all.

    `queue`, `books` and `failures` are of visible jobs and books. `workers`, `days`, `caches` and
    `storage` are of the whole installation, and only in answers to those who see it.
    """
    jobs = visible_jobs(user)
    found: dict[str, Any] = {
        "queue": _queue(jobs),
        "books": _books(user),
        "failures": _failures(jobs),
    }
    if sees_installation(user, key):
        found |= {
            "workers": _workers(),
            "days": _days(),
            "caches": _caches(),
            "storage": installation_bytes(),
        }
    return found


def _queue(jobs: QuerySet[RenderJob]) -> list[dict[str, Any]]:
    """Return for each class of priority how much is open, and how long the oldest waits."""
    now = timezone.now()
    unfinished = jobs.filter(status__in=UNFINISHED).exclude(kind=RenderJob.Kind.BATCH)
    by_status = {
        (priority, status): (count, oldest)
        for priority, status, count, oldest in unfinished.order_by()
        .values_list("priority", "status")
        .annotate(Count("pk"), Min("created_at"))
    }
    segments = Segment.objects.filter(job__in=unfinished, status__in=_OPEN)
    open_segments = dict(segments.order_by().values_list("job__priority").annotate(Count("pk")))
    found = []
    for name, priority in PRIORITIES.items():
        queued, oldest = by_status.get((priority, RenderJob.Status.QUEUED), (0, None))
        running, _ = by_status.get((priority, RenderJob.Status.RUNNING), (0, None))
        found.append(
            {
                "priority": name,
                "jobs_queued": queued,
                "jobs_running": running,
                "segments_open": open_segments.get(priority, 0),
                "oldest_wait_seconds": (now - oldest).total_seconds() if oldest else None,
            }
        )
    return found


def _books(user: AbstractBaseUser | AnonymousUser) -> dict[str, Any]:
    """Return how many books are in work, and how many hours of audio are still to be made."""
    books = visible_books(user).order_by()
    working = Q(job__status__in=UNFINISHED)
    counts = books.aggregate(
        importing=Count("pk", filter=Q(state=BookSource.State.IMPORTING)),
        planned=Count("pk", filter=Q(state=BookSource.State.PLANNED, job__isnull=True)),
        in_work=Count("pk", filter=working & Q(job__paused_at__isnull=True)),
        paused=Count("pk", filter=working & Q(job__paused_at__isnull=False)),
    )
    rows = books.filter(working).values_list(
        "figures__expected_seconds", "job__segments_total", "job__segments_done"
    )
    # Of each book the share of its segments that is not spoken; they are about equally long.
    seconds = sum(
        float(expected or 0.0) * (1 - done / total) for expected, total, done in rows if total
    )
    return {**counts, "hours_left": round(seconds / 3600, 3)}


def _failures(jobs: QuerySet[RenderJob]) -> list[dict[str, Any]]:
    """Return why jobs failed in the last days, most frequent reason first."""
    since = timezone.now() - dt.timedelta(days=FAILURE_DAYS)
    failed = jobs.filter(finished_at__gte=since).exclude(error_code="")
    reasons = (
        failed.order_by()
        .values("error_code")
        .annotate(count=Count("pk"), last_at=Max("finished_at"), example=Max("error_message"))
        .order_by("-count", "error_code")
    )
    return [dict(reason) for reason in reasons[:MOST_REASONS]]


def _workers() -> list[dict[str, Any]]:
    """Return every worker that has not stopped, and how long ago it was heard of."""
    now = timezone.now()
    silent_after = _SILENT_LEASES * settings.LEASE_SECONDS
    found = []
    for worker in WorkerStatus.objects.exclude(state=WorkerStatus.State.STOPPED):
        seconds = max(0.0, (now - worker.last_seen_at).total_seconds())
        figures = worker.figures
        found.append(
            {
                "name": worker.name,
                "role": worker.role,
                "state": worker.state if seconds <= silent_after else "silent",
                "detail": worker.detail,
                "device": worker.device,
                "model": worker.checkpoint.rstrip("/").rsplit("/", 1)[-1],
                "slots": figures.get("slots"),
                "slots_in_use": figures.get("slots_in_use"),
                "frames_per_second": figures.get("frames_per_second"),
                "memory_bytes": figures.get("memory_bytes"),
                "engine_bytes": figures.get("engine_bytes"),
                "seen_seconds_ago": seconds,
            }
        )
    return found


def _days() -> list[dict[str, Any]]:
    """Return what was rendered on each of the last days, oldest first, days of rest included."""
    today = timezone.now().date()
    days = [today - dt.timedelta(days=back) for back in reversed(range(DAYS_SHOWN))]
    rows = {row.day: row for row in RenderedDay.objects.filter(day__gte=days[0])}
    return [
        {
            "day": day,
            "audio_hours": rows[day].audio_seconds / 3600 if day in rows else 0.0,
            "segments": rows[day].segments if day in rows else 0,
            "reused": rows[day].reused if day in rows else 0,
        }
        for day in days
    ]


def _caches() -> dict[str, int]:
    """Return how a clip's codes were found, and how many segments had a take already."""
    counted = dict(CodesCounter.objects.values_list("name", "value"))
    takes = RenderedDay.objects.aggregate(done=Sum("segments"), reused=Sum("reused"))
    reused = takes["reused"] or 0
    return {name: counted.get(name, 0) for name in _COUNTERS} | {
        "takes_rendered": max(0, (takes["done"] or 0) - reused),
        "takes_reused": reused,
    }
