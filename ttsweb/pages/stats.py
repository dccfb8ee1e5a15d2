"""Show what the service does: what is queued and stored, its workers, how codes were found."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import sees_installation
from synth.accounts.authentication import key_of
from synth.accounts.stored_bytes import bytes_of_user, installation_bytes
from synth.models import Export, JobVoice, RenderJob, Segment, WorkerStatus
from ttsweb.http.api import check_query
from voices.models import CodesCounter, VoiceVersion

_COUNTERS = ("memory_hit", "storage_hit", "encoder_run")


class CodesStatsSerializer(serializers.Serializer[Any]):
    """How often a clip's codes came from a worker's memory, from the storage, from the encoder."""

    memory_hit = serializers.IntegerField()
    storage_hit = serializers.IntegerField()
    encoder_run = serializers.IntegerField()


class WorkerStatsSerializer(serializers.ModelSerializer[WorkerStatus]):
    """The last report of a worker."""

    figures = serializers.DictField()

    class Meta:
        model = WorkerStatus
        fields = (
            "name",
            "role",
            "state",
            "detail",
            "device",
            "checkpoint",
            "model_fingerprint",
            "codec_fingerprint",
            "resampler",
            "figures",
            "started_at",
            "last_seen_at",
        )
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
    """The answer; `codes` and `workers` are only for users who may see the whole installation."""

    whole = serializers.BooleanField(
        help_text="True: the figures are those of the whole installation, not of the user."
    )
    codes = CodesStatsSerializer(required=False)
    workers = WorkerStatsSerializer(many=True, required=False)
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
        stats = _of_installation() if is_whole else _of_user(user.pk)
        return Response(StatsSerializer(stats | {"whole": is_whole}).data)


def _of_installation() -> dict[str, Any]:
    counted = dict(CodesCounter.objects.values_list("name", "value"))
    return {
        "codes": {name: counted.get(name, 0) for name in _COUNTERS},
        "workers": WorkerStatus.objects.order_by("name"),
        "queue": _queue(
            RenderJob.objects.all(),
            Segment.objects.all(),
            VoiceVersion.objects.all(),
            Export.objects.all(),
        ),
        "storage": installation_bytes(),
    }


def _of_user(user_id: int) -> dict[str, Any]:
    of_voices = Q(voice__owner_id=user_id, voice__deleted_at=None)
    pinned = JobVoice.objects.filter(job__owner_id=user_id, version__voice=None)
    of_jobs = Q(pk__in=pinned.values("version"))
    return {
        "queue": _queue(
            RenderJob.objects.filter(owner_id=user_id),
            Segment.objects.filter(job__owner_id=user_id),
            VoiceVersion.objects.filter(of_voices | of_jobs),
            Export.objects.filter(job__owner_id=user_id),
        ),
        "storage": bytes_of_user(user_id),
    }


def _queue(
    jobs: QuerySet[Any], segments: QuerySet[Any], versions: QuerySet[Any], exports: QuerySet[Any]
) -> dict[str, dict[str, int]]:
    return {
        "jobs": _depths(jobs),
        "segments": _depths(segments),
        "voice_versions": _depths(versions),
        "exports": _depths(exports),
    }


def _depths(rows: QuerySet[Any]) -> dict[str, int]:
    """Return how many rows are in each status; statuses without a row are 0."""
    column: Any = rows.model._meta.get_field("status")
    found = rows.order_by().values_list("status").annotate(Count("pk"))
    return {str(value): 0 for value, _ in column.choices} | dict(found)
