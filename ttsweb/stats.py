"""Show what the service does: how codes were found, its workers, what is queued."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Model, Sum
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.models import Export, RenderJob, Segment, Take, WorkerStatus
from ttsweb.api import check_query
from voices.models import CodesCounter, StoredClip, VoiceVersion

_COUNTERS = ("memory_hit", "storage_hit", "encoder_run")


class CodesStatsSerializer(serializers.Serializer[Any]):
    """How often a clip's codes came from a worker's memory, from the storage, from the encoder."""

    memory_hit = serializers.IntegerField()
    storage_hit = serializers.IntegerField()
    encoder_run = serializers.IntegerField()


class WorkerStatsSerializer(serializers.ModelSerializer[WorkerStatus]):
    """What a worker last said of itself."""

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
    """How many rows of each kind are in each status."""

    jobs = serializers.DictField(child=serializers.IntegerField())
    segments = serializers.DictField(child=serializers.IntegerField())
    voice_versions = serializers.DictField(child=serializers.IntegerField())
    exports = serializers.DictField(child=serializers.IntegerField())


class StorageStatsSerializer(serializers.Serializer[Any]):
    """How many bytes are stored, by what they are; codes of voices and rows are not in it."""

    exports = serializers.IntegerField(help_text="Finished files.")
    takes = serializers.IntegerField(help_text="Segments that were rendered.")
    clips = serializers.IntegerField(help_text="Reference clips, as they were uploaded.")
    total = serializers.IntegerField()


class StatsSerializer(serializers.Serializer[Any]):
    """The whole answer."""

    codes = CodesStatsSerializer()
    workers = WorkerStatsSerializer(many=True)
    queue = QueueStatsSerializer()
    storage = StorageStatsSerializer()


class StatsView(APIView):
    """Counters over all workers, the workers, the depth of the queue."""

    @extend_schema(operation_id="stats", responses=StatsSerializer)
    def get(self, request: Request) -> Response:
        """Return counters, workers, queue depths and stored bytes of this moment."""
        check_query(request, ())
        counted = dict(CodesCounter.objects.values_list("name", "value"))
        stats = {
            "codes": {name: counted.get(name, 0) for name in _COUNTERS},
            "workers": WorkerStatus.objects.order_by("name"),
            "queue": {
                "jobs": _depths(RenderJob),
                "segments": _depths(Segment),
                "voice_versions": _depths(VoiceVersion),
                "exports": _depths(Export),
            },
            "storage": stored_bytes(),
        }
        return Response(StatsSerializer(stats).data)


def stored_bytes() -> dict[str, int]:
    """Return the bytes that rows say are stored."""
    models: dict[str, type[Model]] = {"exports": Export, "takes": Take, "clips": StoredClip}
    found = {
        name: int(model._default_manager.aggregate(size=Sum("size_bytes"))["size"] or 0)
        for name, model in models.items()
    }
    return found | {"total": sum(found.values())}


def _depths(model: type[Model]) -> dict[str, int]:
    """Return how many rows are in each status; statuses without a row are 0."""
    column: Any = model._meta.get_field("status")
    rows = model._default_manager.order_by().values_list("status").annotate(Count("pk"))
    return {str(value): 0 for value, _ in column.choices} | dict(rows)
