"""Write what answers show of batches of books and of their entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from synth.api.books.serializers import BookProgressSerializer, BookSerializer, with_progress
from synth.api.jobs.serializers import has_audio
from synth.batches.figures import (
    STORED,
    BatchFigures,
    error_of,
    stored_bytes,
    with_figures,
)
from synth.batches.states import ENDED_STATES, LABELS, STATES, label_of
from synth.models import PRIORITIES, Batch, BatchEntry, RenderJob

MOST_SHOWN_BOOKS = 20  # that did not become whole, in a webhook
_COUNTS_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in STATES},
    "required": list(STATES),
}
_BYTES = (*STORED, "total")
_BYTES_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in _BYTES},
    "required": list(_BYTES),
}


class BatchProgressSerializer(serializers.Serializer[Any]):
    """The progress of a batch."""

    share = serializers.FloatField(min_value=0, max_value=1)
    books_total = serializers.IntegerField()
    books_ended = serializers.IntegerField()
    segments_total = serializers.IntegerField(help_text="Segments of the books that were started.")
    segments_done = serializers.IntegerField()
    segments_failed = serializers.IntegerField()
    takes_rendered = serializers.IntegerField(
        help_text="Takes that were rendered, samples included."
    )
    takes_reused = serializers.IntegerField(help_text="Takes that existed already and were reused.")
    audio_seconds = serializers.FloatField(help_text="Seconds of audio that the books have now.")
    expected_seconds = serializers.FloatField(
        help_text="Seconds of audio expected for all planned books."
    )
    real_time_factor = serializers.FloatField(
        allow_null=True, help_text="Seconds of audio rendered per second since the first job began."
    )
    eta_seconds = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Estimated seconds until all planned books are done; null if no estimate is "
            "possible, or if the batch waits for a person."
        ),
    )


class SkippedSerializer(serializers.Serializer[Any]):
    """An entry that was refused, and the reason."""

    index = serializers.IntegerField()
    line = serializers.IntegerField(allow_null=True)
    attr = serializers.CharField(allow_null=True)
    code = serializers.CharField()
    detail = serializers.CharField()


class BookBatchSerializer(serializers.ModelSerializer[Batch]):
    """A batch of books and its progress."""

    status = serializers.SerializerMethodField()
    priority = serializers.SerializerMethodField()
    webhook = serializers.CharField(source="webhook_url")
    defaults = serializers.DictField()
    counts = serializers.SerializerMethodField()
    progress = serializers.SerializerMethodField()
    stored_bytes = serializers.SerializerMethodField()
    skipped = serializers.SerializerMethodField()
    summary = serializers.SerializerMethodField()

    class Meta:
        model = Batch
        fields = (
            "id",
            "name",
            "status",
            "sample",
            "priority",
            "webhook",
            "defaults",
            "counts",
            "progress",
            "stored_bytes",
            "skipped",
            "summary",
            "closed_at",
            "approved_at",
            "paused_at",
            "cancelled_at",
            "ended_at",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=LABELS))
    def get_status(self, batch: Any) -> str:
        """Return what the batch does, or waits for."""
        return label_of(batch, batch.figures.states)

    @extend_schema_field(serializers.ChoiceField(choices=list(PRIORITIES)))
    def get_priority(self, batch: Batch) -> str:
        """Return the priority's name."""
        return RenderJob.Priority(batch.priority).name.lower()

    @extend_schema_field(_COUNTS_SCHEMA)
    def get_counts(self, batch: Any) -> dict[str, int]:
        """Return how many entries are in each state."""
        return dict(batch.figures.states)

    @extend_schema_field(BatchProgressSerializer)
    def get_progress(self, batch: Any) -> dict[str, Any]:
        """Return how far the batch is."""
        figures: BatchFigures = batch.figures
        has_ended = batch.ended_at is not None
        return {
            "share": 1.0 if has_ended else round(min(0.99, figures.share), 3),
            "books_total": sum(figures.states.values()),
            "books_ended": sum(figures.states[state] for state in ENDED_STATES),
            "segments_total": figures.segments_total,
            "segments_done": figures.segments_done,
            "segments_failed": figures.segments_failed,
            "takes_rendered": figures.takes_rendered,
            "takes_reused": figures.takes_reused,
            "audio_seconds": round(figures.audio_seconds, 3),
            "expected_seconds": round(figures.expected_seconds, 1),
            "real_time_factor": figures.real_time_factor,
            "eta_seconds": None if has_ended else figures.eta_seconds,
        }

    @extend_schema_field(
        {
            "type": "object",
            "properties": {name: {"type": "integer"} for name in STORED[:3]},
            "required": list(STORED[:3]),
        }
    )
    def get_stored_bytes(self, batch: Any) -> dict[str, int]:
        """Return the bytes of uploads and files; the takes' are in the summary and the entries."""
        figures: BatchFigures = batch.figures
        return {name: getattr(figures, name) for name in STORED[:3]}

    @extend_schema_field(SkippedSerializer(many=True))
    def get_skipped(self, batch: Batch) -> list[Any]:
        """Return what was wrong with entries that were skipped."""
        return list(batch.report.get("skipped", []))

    @extend_schema_field({"type": "object", "nullable": True, "additionalProperties": {}})
    def get_summary(self, batch: Batch) -> dict[str, Any] | None:
        """Return the totals of an ended batch; `report` has its books as well."""
        found: dict[str, Any] | None = batch.report.get("totals")
        return found


class SampleSerializer(serializers.Serializer[Any]):
    """The sample of a book."""

    job = serializers.UUIDField(allow_null=True, help_text="Null if the book was deleted.")
    status = serializers.CharField()
    chapter = serializers.CharField(help_text="Title of the chapter.")
    audio_url = serializers.CharField(allow_null=True)
    error_code = serializers.CharField()
    error_message = serializers.CharField()


class BookBatchEntrySerializer(serializers.ModelSerializer[BatchEntry]):
    """An entry of a batch: its line in the manifest, and the progress of its book."""

    file = serializers.CharField(source="filename")
    state = serializers.SerializerMethodField()
    options = serializers.DictField(help_text="The options that differ from the defaults.")
    metadata = serializers.DictField()
    book = serializers.UUIDField(source="book_id", allow_null=True)
    title = serializers.SerializerMethodField()
    sample = serializers.SerializerMethodField()
    plan = serializers.SerializerMethodField()
    progress = serializers.SerializerMethodField()
    stored_bytes = serializers.SerializerMethodField()
    audio_url = serializers.SerializerMethodField()
    waits_for = serializers.SerializerMethodField()
    error_code = serializers.SerializerMethodField()
    error_message = serializers.SerializerMethodField()

    class Meta:
        model = BatchEntry
        fields = (
            "index",
            "file",
            "state",
            "options",
            "metadata",
            "book",
            "title",
            "sample",
            "plan",
            "progress",
            "stored_bytes",
            "audio_url",
            "waits_for",
            "error_code",
            "error_message",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=STATES))
    def get_state(self, entry: Any) -> str:
        """Return how far the entry is."""
        return str(entry.state)

    def get_title(self, entry: BatchEntry) -> str:
        """Return the book's title, or the file's name until it is known."""
        said = entry.metadata.get("title")
        return str(said or entry.book or entry.filename)

    @extend_schema_field(SampleSerializer(allow_null=True))
    def get_sample(self, entry: BatchEntry) -> dict[str, Any] | None:
        """Return the sample, null where none was begun."""
        book = entry.book
        sample = book.started.get("sample") if book is not None else None
        job = book.sample_job if book is not None else None
        if book is None or (sample is None and job is None):
            return None
        is_there = job is not None and has_audio(job)
        return {
            "job": str(job.pk) if job is not None else None,
            "status": job.status if job is not None else "deleted",
            "chapter": (sample or {}).get("title", ""),
            "audio_url": reverse("book-sample", args=[book.pk]) if is_there else None,
            "error_code": job.error_code if job is not None else "",
            "error_message": job.error_message if job is not None else "",
        }

    @extend_schema_field({"type": "object", "nullable": True, "additionalProperties": {}})
    def get_plan(self, entry: BatchEntry) -> dict[str, Any] | None:
        """Return the counts of the book's plan, null until there is one."""
        return (entry.book.figures or None) if entry.book is not None else None

    @extend_schema_field(BookProgressSerializer(allow_null=True))
    def get_progress(self, entry: BatchEntry) -> dict[str, Any] | None:
        """Return how far the book's job is, null before it was started."""
        return BookSerializer().get_progress(entry.book) if entry.book is not None else None

    @extend_schema_field(_BYTES_SCHEMA)
    def get_stored_bytes(self, entry: Any) -> dict[str, int]:
        """Return the bytes that are stored for the book; a shared take counts for each book."""
        return dict(entry.stored)

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_audio_url(self, entry: BatchEntry) -> str | None:
        """Return where the book's file is, null until it is there."""
        return BookSerializer().get_audio_url(entry.book) if entry.book is not None else None

    def get_waits_for(self, entry: Any) -> str:
        """Return why a planned book waits longer than its turn; empty if it does not."""
        return str(entry.error_message) if entry.state in ("waiting", "sampled") else ""

    def get_error_code(self, entry: BatchEntry) -> str:
        """Return the code of the book's error; empty without one."""
        return error_of(entry)[0]

    def get_error_message(self, entry: BatchEntry) -> str:
        """Return the sentence that explains the error."""
        return error_of(entry)[1]


class ReportSerializer(serializers.Serializer[Any]):
    """The summary of a batch that has ended."""

    totals = serializers.DictField()
    books = serializers.ListField(child=serializers.DictField())
    skipped = SkippedSerializer(many=True, required=False)


def with_entry_figures(entries: Sequence[BatchEntry]) -> list[BatchEntry]:
    """Set what the serializer needs of entries, by a few queries for all of them."""
    with_progress([entry.book for entry in entries if entry.book is not None])
    stored = stored_bytes(entries)
    for entry in entries:
        entry.stored = stored[entry.pk]  # type: ignore[attr-defined]  # as an annotation would be
    return list(entries)


def webhook_data(batch: Batch) -> dict[str, Any]:
    """Return what a message says of a batch that has ended: its totals, and what is not whole."""
    data = dict(BookBatchSerializer(with_figures([batch])[0]).data)
    books = [one for one in batch.report.get("books", []) if one["status"] != "succeeded"]
    shown = ("index", "file", "book", "title", "status", "error_code", "error_message")
    data["not_whole"] = [{name: one[name] for name in shown} for one in books[:MOST_SHOWN_BOOKS]]
    return data
