"""Gather what is queued, stored and rendered and what failed, for the first page and the API."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import sees_installation, visible_books, visible_jobs
from synth.accounts.limits import bytes_of_user, installation_bytes, owned_by
from synth.api.authentication import key_of
from synth.dialects.views import ignored_counts
from synth.jobs.eta import hours
from synth.models import (
    PRIORITIES,
    ApiKey,
    Batch,
    BookSource,
    Export,
    JobVoice,
    RenderedDay,
    RenderJob,
    Segment,
    WorkerStatus,
)
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.api import check_query
from ttsweb.pages.front import first_steps
from voices.models import CodesCounter, VoiceVersion

DAYS_SHOWN = 14
FAILURE_DAYS = 7
MOST_REASONS = 10
_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
_COUNTERS = ("memory_hit", "storage_hit", "encoder_run")
_CHART_HEIGHT = 100.0
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
        "failures": failures(jobs, dt.timedelta(days=FAILURE_DAYS)),
    }
    if sees_installation(user, key):
        takes = RenderedDay.objects.aggregate(done=Sum("segments"), reused=Sum("reused"))
        reused = takes["reused"] or 0
        rendered = max(0, (takes["done"] or 0) - reused)
        found |= {
            "workers": worker_rows(),
            "days": _days(),
            # How a clip's codes were found, and how many segments had a take already.
            "caches": codes_found() | {"takes_rendered": rendered, "takes_reused": reused},
            "storage": installation_bytes(),
        }
    return found


def _queue(jobs: QuerySet[RenderJob]) -> list[dict[str, Any]]:
    """Return for each class of priority how much is open, and how long the oldest waits."""
    now = timezone.now()
    unfinished = jobs.filter(status__in=UNFINISHED)
    grouped = unfinished.order_by().values_list("priority", "status")
    counts = {
        (priority, status): (count, (now - oldest).total_seconds())
        for priority, status, count, oldest in grouped.annotate(Count("pk"), Min("created_at"))
    }
    segments = Segment.objects.filter(job__in=unfinished, status__in=_OPEN)
    open_segments = dict(segments.order_by().values_list("job__priority").annotate(Count("pk")))
    found = []
    for name, priority in PRIORITIES.items():
        queued, waits = counts.get((priority, RenderJob.Status.QUEUED), (0, None))
        running, _ = counts.get((priority, RenderJob.Status.RUNNING), (0, None))
        found.append(
            {
                "priority": name,
                "jobs_queued": queued,
                "jobs_running": running,
                "segments_open": open_segments.get(priority, 0),
                "oldest_wait_seconds": waits,
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


def failures(jobs: QuerySet[RenderJob], lately: dt.timedelta) -> list[dict[str, Any]]:
    """Return why jobs failed lately, most frequent reason first."""
    since = timezone.now() - lately
    failed = jobs.filter(finished_at__gte=since).exclude(error_code="").order_by()
    reasons = failed.values("error_code").annotate(
        count=Count("pk"), last_at=Max("finished_at"), example=Max("error_message")
    )
    return [dict(reason) for reason in reasons.order_by("-count", "error_code")[:MOST_REASONS]]


def worker_rows() -> list[dict[str, Any]]:
    """Return every worker that has not stopped, and how long ago it was heard of."""
    now = timezone.now()
    silent_after = _SILENT_LEASES * settings.LEASE_SECONDS
    figures = (
        "slots",
        "slots_in_use",
        "frames_per_second",
        "memory_bytes",
        "engine_bytes",
        "load_seconds",
    )
    found = []
    for worker in WorkerStatus.objects.exclude(state=WorkerStatus.State.STOPPED):
        seconds = max(0.0, (now - worker.last_seen_at).total_seconds())
        about = {
            "name": worker.name,
            "role": worker.role,
            "state": worker.state if seconds <= silent_after else "silent",
            "detail": worker.detail,
            "device": worker.device,
            "model": worker.checkpoint.rstrip("/").rsplit("/", 1)[-1],
            "seen_seconds_ago": seconds,
        }
        found.append(about | {name: worker.figures.get(name) for name in figures})
    return found


def _days() -> list[dict[str, Any]]:
    """Return what was rendered on each of the last days, oldest first, days of rest included."""
    today = timezone.now().date()
    days = [today - dt.timedelta(days=back) for back in reversed(range(DAYS_SHOWN))]
    rows = {row.day: row for row in RenderedDay.objects.filter(day__gte=days[0])}
    shown = (rows.get(day) or RenderedDay(day=day) for day in days)
    return [
        {
            "day": row.day,
            "audio_hours": row.audio_seconds / 3600,
            "segments": row.segments,
            "reused": row.reused,
        }
        for row in shown
    ]


def codes_found() -> dict[str, int]:
    """Return how often codes of clips came from memory, from the storage, from the encoder."""
    counted = dict(CodesCounter.objects.values_list("name", "value"))
    return {name: counted.get(name, 0) for name in _COUNTERS}


class QueueClassSerializer(serializers.Serializer[Any]):
    """The open jobs and segments of one priority."""

    priority = serializers.ChoiceField(choices=list(PRIORITIES))
    jobs_queued = serializers.IntegerField()
    jobs_running = serializers.IntegerField()
    segments_open = serializers.IntegerField()
    oldest_wait_seconds = serializers.FloatField(allow_null=True)


class BooksOverviewSerializer(serializers.Serializer[Any]):
    """How many books are in each state, and how much of their audio is still to be rendered."""

    importing = serializers.IntegerField()
    planned = serializers.IntegerField(help_text="Books that are planned but not started.")
    in_work = serializers.IntegerField()
    paused = serializers.IntegerField()
    hours_left = serializers.FloatField(
        help_text="Hours of audio still to be rendered, for running and paused books."
    )


class FailureSerializer(serializers.Serializer[Any]):
    """One reason for which jobs failed in the last seven days."""

    error_code = serializers.CharField()
    count = serializers.IntegerField()
    last_at = serializers.DateTimeField()
    example = serializers.CharField()


class WorkerOverviewSerializer(serializers.Serializer[Any]):
    """A worker; `silent` is true if the worker has not reported for the length of a lease."""

    name = serializers.CharField()
    role = serializers.CharField()
    state = serializers.CharField()
    detail = serializers.CharField(allow_blank=True)
    device = serializers.CharField(allow_blank=True)
    model = serializers.CharField(allow_blank=True)
    slots = serializers.IntegerField(allow_null=True)
    slots_in_use = serializers.IntegerField(allow_null=True)
    frames_per_second = serializers.FloatField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    engine_bytes = serializers.IntegerField(allow_null=True)
    load_seconds = serializers.FloatField(
        allow_null=True, help_text="That the last load of the model took: a cold start."
    )
    seen_seconds_ago = serializers.FloatField()


class DaySerializer(serializers.Serializer[Any]):
    """The audio that was rendered on one day (UTC)."""

    day = serializers.DateField()
    audio_hours = serializers.FloatField()
    segments = serializers.IntegerField()
    reused = serializers.IntegerField()


class OverviewSerializer(serializers.Serializer[Any]):
    """The whole answer.

    `workers`, `days`, `caches` and `storage` are only for users who may see the whole installation.
    """

    queue = QueueClassSerializer(many=True)
    books = BooksOverviewSerializer()
    failures = FailureSerializer(many=True)
    workers = WorkerOverviewSerializer(many=True, required=False)
    days = DaySerializer(many=True, required=False)
    caches = serializers.DictField(child=serializers.IntegerField(), required=False)
    storage = serializers.DictField(child=serializers.IntegerField(), required=False)


class OverviewView(APIView):
    @extend_schema(operation_id="overview", responses=OverviewSerializer)
    def get(self, request: Request) -> Response:
        """Return the queue and failures of your jobs; administrators also get the workers."""
        check_query(request, ())
        return Response(OverviewSerializer(overview(request.user, key_of(request))).data)


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the overview to the admin's first page, with the bars of its chart.

    Unfold calls this with what the page knows already.
    """
    found = overview(request.user)
    most = max((day["audio_hours"] for day in found.get("days", ())), default=0.0)
    for day in found.get("days", ()):
        tall = _CHART_HEIGHT * day["audio_hours"] / most if most else 0.0
        # Percent of the chart: a day with a few seconds is still seen.
        day["tall"] = max(tall, 1.5) if day["audio_hours"] else 0.0
        day["top"] = _CHART_HEIGHT - day["tall"]
        day["length"] = hours(3600 * day["audio_hours"])
    for worker in found.get("workers", ()):
        worker["heard"] = hours(worker["seen_seconds_ago"])
    found["books"]["left"] = hours(3600 * found["books"]["hours_left"])
    for group in found["queue"]:
        if group["oldest_wait_seconds"] is not None:
            group["waits"] = hours(group["oldest_wait_seconds"])
    return {
        **context,
        **first_steps(request),
        "title": "Overview",
        "overview": found,
        "most_length": hours(3600 * most),
        "is_overview": True,
    }


class CodesStatsSerializer(serializers.Serializer[Any]):
    """How often a clip's codes came from a worker's memory, from the storage, from the encoder."""

    memory_hit = serializers.IntegerField()
    storage_hit = serializers.IntegerField()
    encoder_run = serializers.IntegerField()


class WorkerStatsSerializer(serializers.ModelSerializer[WorkerStatus]):
    """The last report of a worker."""

    figures = serializers.DictField()
    is_elsewhere = serializers.BooleanField(help_text="Whether it works over HTTPS.")

    class Meta:
        model = WorkerStatus
        fields = (
            "name", "role", "is_elsewhere", "state", "detail", "device", "checkpoint",
            "model_fingerprint", "codec_fingerprint", "resampler", "figures", "started_at",
            "last_seen_at",
        )  # fmt: skip
        read_only_fields = fields


class QueueStatsSerializer(serializers.Serializer[Any]):
    """The number of rows in each status, by kind."""

    jobs = serializers.DictField(child=serializers.IntegerField())
    segments = serializers.DictField(child=serializers.IntegerField())
    voice_versions = serializers.DictField(child=serializers.IntegerField())
    exports = serializers.DictField(child=serializers.IntegerField())


class StorageStatsSerializer(serializers.Serializer[Any]):
    """The bytes that are stored, by kind, without the codes of voices and the database's rows."""

    exports = serializers.IntegerField(help_text="Finished files of jobs and batches.")
    book_files = serializers.IntegerField(help_text="Further files of books.")
    books = serializers.IntegerField(help_text="Books as they were uploaded.")
    clips = serializers.IntegerField(
        help_text="Reference clips as they were uploaded, those of jobs included."
    )
    takes = serializers.IntegerField(
        required=False, help_text="Audio of rendered segments; only for the whole installation."
    )
    total = serializers.IntegerField()


class StatsSerializer(serializers.Serializer[Any]):
    """The whole answer.

    `codes`, `workers` and `ignored_fields` are only for users who may see the whole installation.
    """

    whole = serializers.BooleanField(
        help_text="True: the figures are those of the whole installation, not of the user."
    )
    codes = CodesStatsSerializer(required=False)
    workers = WorkerStatsSerializer(many=True, required=False)
    ignored_fields = serializers.DictField(
        child=serializers.DictField(child=serializers.IntegerField()),
        required=False,
        help_text="For each dialect of other services, such as `openai`: by a field's name, the "
        "number of calls in which it was ignored.",
    )
    queue = QueueStatsSerializer()
    storage = StorageStatsSerializer()


class StatsView(APIView):
    """What is queued and stored; over all workers, how codes were found."""

    @extend_schema(operation_id="stats", responses=StatsSerializer)
    def get(self, request: Request) -> Response:
        """Return the queue depths and stored bytes of the user.

        To superusers, and to staff who may view workers, those of the whole installation, with its
        workers and counters; a key needs the scope `admin` for it.
        """
        check_query(request, ())
        user: Any = request.user
        is_whole = sees_installation(user, key_of(request))
        if is_whole:
            stats: dict[str, Any] = {
                "codes": codes_found(),
                "workers": WorkerStatus.objects.order_by("name"),
                "ignored_fields": ignored_counts(),
                "queue": _depths_by_kind(Q(), Q(), Q(), Q()),
                "storage": installation_bytes(),
            }
        else:
            stats = _of_user(user.pk)
        return Response(StatsSerializer(stats | {"whole": is_whole}).data)


def _of_user(user_id: int) -> dict[str, Any]:
    pinned = JobVoice.objects.filter(job__owner_id=user_id, version__voice=None)
    versions = Q(voice__owner_id=user_id, voice__deleted_at=None)
    versions |= Q(pk__in=pinned.values("version"))
    jobs, segments = Q(owner_id=user_id), Q(job__owner_id=user_id)
    depths = _depths_by_kind(jobs, segments, versions, owned_by(user_id))
    return {"queue": depths, "storage": bytes_of_user(user_id)}


def _depths_by_kind(jobs: Q, segments: Q, versions: Q, exports: Q) -> dict[str, dict[str, int]]:
    """Return how many rows there are in each status, of those that meet the conditions."""
    batches = depths(Batch, jobs & Q(kind=Batch.Kind.TEXTS))  # they have the statuses of jobs
    of_jobs = depths(RenderJob, jobs)
    return {
        "jobs": {status: count + batches[status] for status, count in of_jobs.items()},
        "segments": depths(Segment, segments),
        "voice_versions": depths(VoiceVersion, versions),
        "exports": depths(Export, exports),
    }


def depths(model: Any, condition: Q) -> dict[str, int]:
    """Return how many rows are in each status, none left out."""
    rows = model.objects.filter(condition).order_by().values_list("status").annotate(Count("pk"))
    return {str(value): 0 for value, _ in model._meta.get_field("status").choices} | dict(rows)
