"""Say the figures of the installation as Prometheus reads them, from rows alone.

Every web process answers alike. A gauge may fall when rows are deleted; what ends in `_total` only
grows, since it is counted in rows of its own.
"""

from __future__ import annotations

import datetime as dt
import statistics
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection
from django.db.models import Count, Min, Q, Sum
from django.db.models.functions import Length
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.accounts.access import sees_installation
from synth.accounts.limits import installation_bytes
from synth.api.authentication import key_of
from synth.dialects.views import ignored_counts
from synth.jobs.eta import WINDOW_SECONDS, throughput
from synth.jobs.queue import SEGMENTS_LEFT
from synth.models import (
    PRIORITIES,
    LiveChunk,
    RenderedDay,
    RenderJob,
    Segment,
    SweepTurn,
    WebhookDelivery,
    WorkerStatus,
)
from synth.transitions.jobs import UNFINISHED
from ttsweb import leases
from ttsweb.http.api import check_query
from ttsweb.pages.overview import codes_found, failures, worker_rows
from ttsweb.work import ROLES, Kind

_LATELY = dt.timedelta(seconds=WINDOW_SECONDS)
_FAILED_WITHIN = dt.timedelta(hours=1)
_NAMES = {int(number): name for name, number in PRIORITIES.items()}
_PERCENTILES = (50, 90, 99)
MOST_SEGMENTS = 2000  # of the newest: what first audio and speed are measured from
_STATES = (*(one.value for one in WorkerStatus.State if one != "stopped"), "silent")
# What a worker says of itself: its name in the row, ours with the unit, and what it is.
_FIGURES = (
    ("frames_per_second", "frames_per_second", "Frames made a second, over the last half minute."),
    ("slots", "slots", "Segments that the worker renders at once, at most."),
    ("slots_in_use", "slots_in_use", "Segments that the worker renders now."),
    ("memory_bytes", "memory_bytes", "Resident memory of the worker's process."),
    ("engine_bytes", "engine_memory_bytes", "Memory that the engine holds on its device."),
)


class MetricsView(APIView):
    @extend_schema(exclude=True)  # not JSON, and for one program
    def get(self, request: Request) -> HttpResponse:
        """Return the figures to who sees the whole installation; a key needs the scope `admin`."""
        check_query(request, ())
        if not sees_installation(request.user, key_of(request)):
            raise PermissionDenied(
                "These figures are of the whole installation. Use an API key with the scope "
                "`admin` of a superuser, or of a staff member who may view workers."
            )
        body = generate_latest(Figures())  # which asks for no more of a registry
        return HttpResponse(body, content_type=CONTENT_TYPE_PLAIN_0_0_4)


class Figures:
    """What prometheus_client takes for a registry: it asks for all families, once."""

    def collect(self) -> Iterator[Metric]:
        begun = time.perf_counter()
        now = leases.database_now()
        answer_seconds = _answer_seconds()
        version = settings.SPECTACULAR_SETTINGS["VERSION"]
        yield _gauge("build_info", "The version that runs.", {("version",): {version: 1}})
        yield _gauge("database_answer_seconds", "Time of the smallest query.", answer_seconds)
        yield from _work(now)
        yield from _jobs()
        yield from _rendered()
        yield from _lately(now)
        yield from _workers()
        yield from _stored(now)
        took = time.perf_counter() - begun
        yield _gauge("metrics_collection_seconds", "Time that these figures took.", took)


Values = Mapping[tuple[str, ...], Mapping[Any, float]]  # label names: label values: value


def _gauge(name: str, text: str, values: float | Values) -> Metric:
    return _family(GaugeMetricFamily, name, text, values)


def _counter(name: str, text: str, values: float | Values) -> Metric:
    """Return a counter; `_total` is added to its name."""
    return _family(CounterMetricFamily, name, text, values)


def _family(kind: Any, name: str, text: str, values: float | Values) -> Metric:
    if isinstance(values, (int, float)):
        single: Metric = kind(f"ttsweb_{name}", text, value=values)
        return single
    ((labels, of_labels),) = values.items()
    family: Any = kind(f"ttsweb_{name}", text, labels=labels)
    for found, value in of_labels.items():
        family.add_metric([found] if isinstance(found, str) else list(found), value)
    made: Metric = family
    return made


def _answer_seconds() -> float:
    begun = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()
    return time.perf_counter() - begun


def _work(now: dt.datetime) -> Iterator[Metric]:
    """Yield what waits for workers and what they hold, by kind; segments by class as well."""
    waiting: dict[tuple[str, str], float] = {}
    claimed: dict[tuple[str, str], float] = {}
    oldest: dict[tuple[str, str], float] = {}
    expired = 0
    _count_segments(now, waiting, claimed, oldest)
    for kind in Kind:
        if not kind.task:
            continue
        rows = kind.model._default_manager.filter(claim_token__isnull=False).order_by()
        is_held = {f"{kind.model.STATE}": kind.model.HELD} if kind.model.STATE else {}
        held = rows.filter(**is_held).aggregate(
            all=Count("pk"), expired=Count("pk", filter=leases.expired(now))
        )
        expired += held["expired"]
        if kind is Kind.SEGMENT:
            continue
        free = leases.claimable(kind.model).aggregate(all=Count("pk"), since=Min("not_before"))
        place = (kind.label, "")
        waiting[place], claimed[place] = free["all"], held["all"]
        oldest[place] = _age(free["since"], now)
    labels = ("kind", "priority")
    yield _gauge("work_waiting", "Rows that wait for a worker.", {labels: waiting})
    yield _gauge(
        "work_oldest_wait_seconds",
        "Age of the oldest row that waits; of segments, of the oldest job that has not begun.",
        {labels: oldest},
    )
    yield _gauge("work_claimed", "Rows that workers hold.", {labels: claimed})
    yield _gauge("work_claims_expired", "Claims whose lease is over, not freed yet.", expired)
    unsent = WebhookDelivery.objects.filter(status=WebhookDelivery.Status.QUEUED).count()
    text = "Webhook messages not delivered yet, those that wait for another try as well."
    yield _gauge("webhook_deliveries_waiting", text, unsent)


def _count_segments(
    now: dt.datetime,
    waiting: dict[tuple[str, str], float],
    claimed: dict[tuple[str, str], float],
    oldest: dict[tuple[str, str], float],
) -> None:
    """Count by the jobs' own counters: their rows are far fewer than the segments."""
    held = dict(
        Segment.objects.filter(status=Segment.Status.CLAIMED)
        .order_by()
        .values_list("job__priority")
        .annotate(Count("pk"))
    )
    open_jobs = RenderJob.objects.filter(
        status__in=UNFINISHED, cancel_requested=False, paused_at__isnull=True
    )
    rows = open_jobs.order_by().values_list("priority")
    is_queued = Q(status=RenderJob.Status.QUEUED)
    found = {
        priority: (left, since)
        for priority, left, since in rows.annotate(
            left=Sum(SEGMENTS_LEFT), since=Min("created_at", filter=is_queued)
        )
    }
    for name, priority in PRIORITIES.items():
        left, since = found.get(priority, (0, None))
        place = (Kind.SEGMENT.label, name)
        claimed[place] = held.get(priority, 0)
        waiting[place] = max(0, (left or 0) - claimed[place])
        oldest[place] = _age(since, now)


def _jobs() -> Iterator[Metric]:
    counts = {(one.value, name): 0 for one in RenderJob.Status for name in PRIORITIES}
    rows = RenderJob.objects.order_by().values_list("status", "priority").annotate(Count("pk"))
    counts |= {(status, _NAMES[priority]): count for status, priority, count in rows}
    yield _gauge("jobs", "Jobs that are stored.", {("status", "priority"): counts})
    unfit = [one for one in RenderJob.FINAL if one != RenderJob.Status.SUCCEEDED]
    failed = failures(RenderJob.objects.filter(status__in=unfit), _FAILED_WITHIN)
    codes = {one["error_code"]: one["count"] for one in failed}
    text = "Jobs that failed or stayed partial in the last hour, by the code of the error."
    yield _gauge("jobs_failed_last_hour", text, {("code",): codes})


def _rendered() -> Iterator[Metric]:
    sums = RenderedDay.objects.aggregate(
        done=Sum("segments", default=0),
        reused=Sum("reused", default=0),
        audio=Sum("audio_seconds", default=0.0),
    )
    takes = {"rendered": max(0, sums["done"] - sums["reused"]), "reused": sums["reused"]}
    text = "Segments finished, with a take that was rendered for them or was there already."
    yield _counter("takes", text, {("source",): takes})
    text = "Audio that was rendered; its rate is the real-time factor of all workers together."
    yield _counter("audio_seconds", text, sums["audio"])
    text = "Looks for the codes of a clip, by where they were found."
    yield _counter("codes_lookups", text, {("result",): codes_found()})
    ignored = {name: sum(fields.values()) for name, fields in ignored_counts().items()}
    text = "Fields that calls of other services' clients gave in vain."
    yield _counter("ignored_fields", text, {("dialect",): ignored})


class _Ended(NamedTuple):
    """A segment that was finished lately, and its job."""

    at: dt.datetime
    chars: int
    seconds: float | None
    job: uuid.UUID
    priority: int
    made: dt.datetime
    begun: dt.datetime | None


def _lately(now: dt.datetime) -> Iterator[Metric]:
    """Yield how fast and how soon there was audio in the last ten minutes."""
    rows = Segment.objects.filter(finished_at__gte=now - _LATELY, take__isnull=False)
    columns = (
        *("finished_at", "chars", "take__audio_seconds"),
        *("job", "job__priority", "job__created_at", "job__started_at"),
    )
    found = rows.annotate(chars=Length("spoken_text")).order_by("-finished_at")
    ended = [_Ended(*row) for row in found.values_list(*columns)[:MOST_SEGMENTS]]
    speed, chars = throughput(), sum(one.chars for one in ended)
    factor = float("nan")
    if speed is not None and chars:
        factor = speed.chars_per_second * sum(one.seconds or 0.0 for one in ended) / chars
    text = "Seconds of audio a second, of late; NaN where too little was rendered to tell."
    yield _gauge("real_time_factor_ratio", text, factor)
    percentiles: dict[tuple[str, str], float] = {}
    counts: Counter[str] = Counter(dict.fromkeys(PRIORITIES, 0))
    for priority, waits in _first_audio(ended, now).items():
        counts[priority] = len(waits)
        for percent in _PERCENTILES:
            percentiles[(priority, str(percent))] = _percentile(waits, percent)
    yield _gauge(
        "first_audio_seconds",
        "Time from a job to its first audio, of jobs that began in the last ten minutes: to the "
        "first live piece where somebody listened, else to the first finished segment.",
        {("priority", "percentile"): percentiles},
    )
    text = "Jobs that these times are of."
    yield _gauge("first_audio_jobs", text, {("priority",): counts})


def _first_audio(ended: Sequence[_Ended], now: dt.datetime) -> dict[str, list[float]]:
    """Return the waits of jobs whose first segment is surely among these."""
    since = now - _LATELY
    if len(ended) == MOST_SEGMENTS:
        since = max(since, ended[-1].at)
    first: dict[uuid.UUID, _Ended] = {}
    for one in ended:  # newest first
        if one.begun is not None and one.begun >= since:
            first[one.job] = one
    pieces = LiveChunk.objects.filter(segment__job__in=list(first)).order_by()
    live = dict(pieces.values_list("segment__job").annotate(Min("created_at")))
    waits = defaultdict(list)
    for job, one in first.items():
        heard = min(one.at, live.get(job, one.at))
        waits[_NAMES[one.priority]].append(max(0.0, (heard - one.made).total_seconds()))
    return waits


def _percentile(values: Iterable[float], percent: int) -> float:
    ordered = sorted(values)
    if len(ordered) == 1:
        return ordered[0]
    return statistics.quantiles(ordered, n=100, method="inclusive")[percent - 1]


def _workers() -> Iterator[Metric]:
    workers = worker_rows()
    counts = {(role, state): 0 for role in ROLES for state in _STATES}
    for worker in workers:
        counts[(worker["role"], worker["state"])] += 1
    text = "Workers that have not stopped; one that was not heard of for a lease is silent."
    yield _gauge("workers", text, {("role", "state"): counts})

    def each(name: str) -> Values:
        rows = {
            (worker["name"], worker["role"]): worker[name]
            for worker in workers
            if worker[name] is not None
        }
        return {("worker", "role"): rows}

    labels = ("worker", "role", "state", "device", "model")
    shown = ("name", *labels[1:])
    about = {tuple(worker[name] for name in shown): 1.0 for worker in workers}
    yield _gauge("worker_info", "What a worker is.", {labels: about})
    text = "Time since the worker was heard of."
    yield _gauge("worker_heartbeat_age_seconds", text, each("seen_seconds_ago"))
    troubled = {
        (worker["name"], worker["role"]): float(bool(worker["detail"])) for worker in workers
    }
    text = "1 where the worker says that something is wrong."
    yield _gauge("worker_in_trouble", text, {("worker", "role"): troubled})
    for figure, name, text in _FIGURES:
        yield _gauge(f"worker_{name}", text, each(figure))


def _stored(now: dt.datetime) -> Iterator[Metric]:
    kinds = {kind: size for kind, size in installation_bytes().items() if kind != "total"}
    text = "Bytes of objects, without the codes of voices."
    yield _gauge("storage_bytes", text, {("kind",): kinds})
    turns = SweepTurn.objects.filter(name=SweepTurn.BACKUP).values_list("next_at", flat=True)
    if (made := turns.first()) is not None:
        text = "Age of the newest backup that ./tts backup has made."
        yield _gauge("backup_age_seconds", text, _age(made, now))


def _age(since: dt.datetime | None, now: dt.datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
