"""Write what answers show of batches and their items."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, F, Sum
from django.db.models.functions import Length
from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from synth.api.jobs.serializers import JobListSerializer
from synth.api.option_fields import RetentionField
from synth.jobs.eta import FIRST_SHARE, eta_of_chars
from synth.models import PRIORITIES, Batch, RenderJob, Segment
from synth.transitions.batches import WITH_AUDIO

_PRIORITY_NAMES = {value: name for name, value in PRIORITIES.items()}
_COUNTS_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in RenderJob.Status.values},
    "required": list(RenderJob.Status.values),
}


@dataclass
class Figures:
    """Count a batch's items by state, their segments, and the seconds of audio they have."""

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(RenderJob.Status.values, 0)
    )
    segments_total: int = 0
    segments_closed: int = 0
    audio_seconds: float = 0.0
    eta_seconds: int | None = None


def with_figures(batches: Sequence[Batch]) -> list[Batch]:
    """Set `figures` on batches, by a few queries for all of them."""
    found: dict[uuid.UUID | None, Figures] = {batch.pk: Figures() for batch in batches}
    closed = F("segments_done") + F("segments_failed") + F("segments_cancelled")
    rows = RenderJob.objects.filter(batch__in=list(found)).order_by().values("batch", "status")
    for row in rows.annotate(
        count=Count("pk"),
        total=Sum("segments_total"),
        closed=Sum(closed),
        seconds=Sum("audio_seconds"),
    ):
        figures = found[row["batch"]]
        figures.counts[row["status"]] = row["count"]
        figures.segments_total += row["total"]
        figures.segments_closed += row["closed"]
        figures.audio_seconds += row["seconds"]
    _estimate([batch for batch in batches if batch.status == RenderJob.Status.RUNNING], found)
    for batch in batches:
        batch.figures = found[batch.pk]  # type: ignore[attr-defined]  # as an annotation would be
    return list(batches)


def _estimate(running: Sequence[Batch], found: dict[uuid.UUID | None, Figures]) -> None:
    """Add when running batches are done, once a tenth of their segments is."""
    rows = Segment.objects.filter(
        job__batch__in=[batch.pk for batch in running if not batch.cancel_requested],
        status__in=(Segment.Status.QUEUED, Segment.Status.CLAIMED),
    )
    left = rows.order_by().values_list("job__batch", "job__lane")
    asked, began = {}, {}
    of_id = {batch.pk: batch for batch in running}
    for batch_id, lane, chars in left.annotate(chars=Sum(Length("spoken_text"))):
        batch, figures = of_id[batch_id], found[batch_id]
        if figures.segments_closed >= FIRST_SHARE * figures.segments_total and batch.started_at:
            asked[batch_id] = (float(chars), batch.priority, lane)
            began[batch_id] = batch.started_at
    for batch_id, seconds in eta_of_chars(asked, began).items():
        found[batch_id].eta_seconds = seconds


class BatchSerializer(serializers.ModelSerializer[Batch]):
    """A batch and its progress."""

    progress = serializers.SerializerMethodField()
    counts = serializers.SerializerMethodField()
    audio_seconds = serializers.SerializerMethodField()
    eta_seconds = serializers.SerializerMethodField()
    results_url = serializers.SerializerMethodField()
    priority = serializers.SerializerMethodField()
    webhook = serializers.CharField(source="webhook_url")
    deadline = serializers.DateTimeField(source="deadline_at", allow_null=True)
    retention = RetentionField(source="retention_seconds", allow_null=True)
    cancel_requested = serializers.BooleanField(read_only=True)
    finished_at = serializers.DateTimeField(source="ended_at", allow_null=True, read_only=True)

    class Meta:
        model = Batch
        fields = (
            "id",
            "status",
            "progress",
            "items_total",
            "counts",
            "audio_seconds",
            "eta_seconds",
            "results_url",
            "error_code",
            "error_message",
            "cancel_requested",
            "priority",
            "webhook",
            "deadline",
            "retention",
            "expires_at",
            "created_at",
            "started_at",
            "finished_at",
            "updated_at",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.FloatField(min_value=0, max_value=1))
    def get_progress(self, batch: Any) -> float:
        """Return the share of segments that are closed; 1.0 only once the zip is there."""
        return progress_of(batch)

    @extend_schema_field(_COUNTS_SCHEMA)
    def get_counts(self, batch: Any) -> dict[str, int]:
        """Return how many items are in each state."""
        return dict(batch.figures.counts)

    @extend_schema_field(serializers.FloatField())
    def get_audio_seconds(self, batch: Any) -> float:
        """Return the seconds of audio of all items so far."""
        figures: Figures = batch.figures
        return round(figures.audio_seconds, 3)

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_eta_seconds(self, batch: Any) -> float | None:
        """Return the seconds that are probably left; null until that can be told."""
        return eta_of(batch)

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_results_url(self, batch: Any) -> str | None:
        """Return where the zip is, null until it is there."""
        return reverse("batch-results", args=[batch.pk]) if batch.status in WITH_AUDIO else None

    @extend_schema_field(serializers.ChoiceField(choices=list(PRIORITIES)))
    def get_priority(self, batch: Batch) -> str:
        """Return the priority's name."""
        return _PRIORITY_NAMES[RenderJob.Priority(batch.priority)]


class BatchItemSerializer(JobListSerializer):
    """An item of a batch: a job with its `custom_id` and its index in the batch."""

    class Meta(JobListSerializer.Meta):
        fields = ("item_index", *JobListSerializer.Meta.fields)
        read_only_fields = fields


def progress_of(batch: Any) -> float:
    """Return how far a batch is, 0 to 1; the last hundredth is the making of its zip."""
    if batch.status in WITH_AUDIO:
        return 1.0
    figures: Figures = batch.figures
    share: float = figures.segments_closed / max(1, figures.segments_total)
    return round(min(0.99, share), 3)


def eta_of(batch: Any) -> int | None:
    """Return the seconds that a running batch has before it; None where nobody knows.

    The zip is left out: it holds files that are there already.
    """
    return batch.figures.eta_seconds  # type: ignore[no-any-return]  # set by `with_figures`
