"""Put the overview on the admin's first page, and into the REST API."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.authentication import key_of
from synth.jobs.eta import hours
from synth.models import PRIORITIES
from ttsweb.http.api import check_query
from ttsweb.pages.overview import overview
from ttsweb.pages.studio import first_steps

_CHART_HEIGHT = 100.0


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
    """The figures of the admin's first page."""

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
    steps = first_steps(request)
    most = max((day["audio_hours"] for day in found.get("days", ())), default=0.0)
    for day in found.get("days", ()):
        tall = _CHART_HEIGHT * day["audio_hours"] / most if most else 0.0
        # Percent of the chart: a day with a few seconds is still seen.
        day["tall"] = max(tall, 1.5) if day["audio_hours"] else 0.0
        day["top"] = _CHART_HEIGHT - day["tall"]
    for worker in found.get("workers", ()):
        worker["heard"] = hours(worker["seen_seconds_ago"])
    for group in found["queue"]:
        if group["oldest_wait_seconds"] is not None:
            group["waits"] = hours(group["oldest_wait_seconds"])
    for day in found.get("days", ()):
        day["length"] = hours(3600 * day["audio_hours"])
    return (
        context
        | steps
        | {
            "title": "Overview",
            "overview": found,
            "most_length": hours(3600 * most),
            "is_overview": True,
        }
    )
