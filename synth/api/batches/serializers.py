"""Find batches of texts and of books, and write what answers show of them and of their rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, F, Sum
from django.db.models.functions import Length
from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request

from synth.accounts.access import visible_batches
from synth.api.books.serializers import (
    BookProgressSerializer,
    audio_url_of,
    progress_of_book,
    with_progress,
)
from synth.api.fields import boolean, identifier, integer, moment, number, string
from synth.api.jobs.serializers import JobListSerializer, has_audio, priority_field
from synth.api.option_fields import RetentionField
from synth.batches import figures as of_books
from synth.batches.figures import STORED, BatchFigures, error_of, stored_bytes
from synth.jobs.eta import FIRST_SHARE, eta_of_chars
from synth.models import Batch, BatchEntry, RenderJob, Segment
from synth.transitions.batches import WITH_AUDIO
from synth.transitions.book_batches import ENDED_STATES, LABELS, STATES, label_of
from ttsweb.http.fields import LookUpMixin, PageSerializer, ShownField
from ttsweb.http.nouns import get_row

MOST_SHOWN_BOOKS = 20  # that did not become whole, in a webhook
_MISSING = {
    Batch.Kind.TEXTS: ("batch_not_found", "No batch that you may see has this id."),
    Batch.Kind.BOOKS: ("book_batch_not_found", "No batch of books that you may see has this id."),
}


def find_batch(request: Request, batch_id: uuid.UUID, kind: Batch.Kind) -> Batch:
    batches = visible_batches(request.user, kind).select_related("owner", "api_key")
    return get_row(batches, *_MISSING[kind], pk=batch_id)


def _numbers(names: Iterable[str]) -> dict[str, Any]:
    names = list(names)
    properties = {name: {"type": "integer"} for name in names}
    return {"type": "object", "properties": properties, "required": names}


_BYTES = _numbers((*STORED, "total"))


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


def progress_of(batch: Any) -> float:
    """Return how far a batch is, 0 to 1; the last hundredth is the making of its zip."""
    if batch.status in WITH_AUDIO:
        return 1.0
    figures: Figures = batch.figures
    share: float = figures.segments_closed / max(1, figures.segments_total)
    return round(min(0.99, share), 3)


def _results_url(batch: Batch) -> str | None:
    return reverse("batch-results", args=[batch.pk]) if batch.status in WITH_AUDIO else None


class BatchSerializer(LookUpMixin, serializers.ModelSerializer[Batch]):
    """A batch and its progress."""

    # 1.0 only once the zip is there.
    progress = ShownField(progress_of, serializers.FloatField(min_value=0, max_value=1))
    counts = ShownField(lambda batch: dict(batch.figures.counts), _numbers(RenderJob.Status.values))
    audio_seconds = ShownField(lambda batch: round(batch.figures.audio_seconds, 3), float)
    eta_seconds = ShownField(lambda batch: batch.figures.eta_seconds, float | None)
    results_url = ShownField(_results_url, str | None)
    priority = priority_field()
    webhook = string(source="webhook_url")
    deadline = moment(null=True, source="deadline_at")
    retention = RetentionField(source="retention_seconds", allow_null=True)
    cancel_requested = boolean(read_only=True)
    finished_at = moment(null=True, source="ended_at", read_only=True)

    class Meta:
        model = Batch
        fields = (
            "id", "status", "progress", "items_total", "counts", "audio_seconds", "eta_seconds",
            "results_url", "error_code", "error_message", "cancel_requested", "priority",
            "webhook", "deadline", "retention", "expires_at", "created_at", "started_at",
            "finished_at", "updated_at",
        )  # fmt: skip
        read_only_fields = fields
        list_serializer_class = PageSerializer

    def look_up(self, rows: Sequence[Batch]) -> None:
        with_figures([batch for batch in rows if not hasattr(batch, "figures")])


class BatchItemSerializer(JobListSerializer):
    """An item of a batch: a job with its `custom_id` and its index in the batch."""

    class Meta(JobListSerializer.Meta):
        fields = ("item_index", *JobListSerializer.Meta.fields)
        read_only_fields = fields


class BatchProgressSerializer(serializers.Serializer[Any]):
    """The progress of a batch."""

    share = number(min_value=0, max_value=1)
    books_total = integer()
    books_ended = integer()
    segments_total = integer("Segments of the books that were started.")
    segments_done = integer()
    segments_failed = integer()
    takes_rendered = integer("Takes that were rendered, samples included.")
    takes_reused = integer("Takes that existed already and were reused.")
    audio_seconds = number("Seconds of audio that the books have now.")
    expected_seconds = number("Seconds of audio expected for all planned books.")
    real_time_factor = number(
        "Seconds of audio rendered per second since the first job began.", null=True
    )
    eta_seconds = integer(
        "Estimated seconds until all planned books are done; null if no estimate is "
        "possible, or if the batch waits for a person.",
        null=True,
    )


class SkippedSerializer(serializers.Serializer[Any]):
    """An entry that was refused, and the reason."""

    index = integer()
    line = integer(null=True)
    attr = string(null=True)
    code = string()
    detail = string()


class _ReportedSerializer(serializers.Serializer[Any]):
    audio_seconds = number()
    segments = integer()
    segments_failed = integer()
    takes_rendered = integer()
    takes_reused = integer()
    retakes = integer()
    files = integer()
    bytes = ShownField(dict, _BYTES)


class BookBatchTotalsSerializer(_ReportedSerializer):
    """The totals of a batch that has ended."""

    books = integer()
    states = ShownField(dict, _numbers(STATES))


class ReportedBookSerializer(_ReportedSerializer):
    """What became of one book of a batch that has ended."""

    index = integer()
    file = string()
    book = identifier(null=True)
    title = string()
    status = serializers.ChoiceField(choices=STATES)
    real_time_factor = number(null=True)
    error_code = string()
    error_message = string()


class ReportSerializer(serializers.Serializer[Any]):
    """The summary of a batch that has ended, as it was written then."""

    totals = ShownField(lambda report: report["totals"], BookBatchTotalsSerializer())
    books = ShownField(lambda report: report["books"], ReportedBookSerializer(many=True))
    skipped = SkippedSerializer(many=True, required=False)


def _progress_of_books(batch: Any) -> dict[str, Any]:
    figures: BatchFigures = batch.figures
    has_ended = batch.ended_at is not None
    counts = ("segments_total", "segments_done", "segments_failed", "takes_rendered")
    return {
        **{name: getattr(figures, name) for name in (*counts, "takes_reused", "real_time_factor")},
        "share": 1.0 if has_ended else round(min(0.99, figures.share), 3),
        "books_total": sum(figures.states.values()),
        "books_ended": sum(figures.states[state] for state in ENDED_STATES),
        "audio_seconds": round(figures.audio_seconds, 3),
        "expected_seconds": round(figures.expected_seconds, 1),
        "eta_seconds": None if has_ended else figures.eta_seconds,
    }


class BookBatchSerializer(LookUpMixin, serializers.ModelSerializer[Batch]):
    """A batch of books and its progress."""

    status = ShownField(
        lambda batch: label_of(batch, batch.figures.states), serializers.ChoiceField(choices=LABELS)
    )
    priority = priority_field()
    webhook = string(source="webhook_url")
    defaults = serializers.DictField()
    counts = ShownField(lambda batch: dict(batch.figures.states), _numbers(STATES))
    progress = ShownField(_progress_of_books, BatchProgressSerializer())
    # Of uploads and files; the takes' are in the summary and the entries.
    stored_bytes = ShownField(
        lambda batch: {name: getattr(batch.figures, name) for name in STORED[:3]},
        _numbers(STORED[:3]),
    )
    skipped = ShownField(
        lambda batch: list(batch.report.get("skipped", [])), SkippedSerializer(many=True)
    )
    summary = ShownField(
        lambda batch: batch.report.get("totals"), BookBatchTotalsSerializer(allow_null=True)
    )

    class Meta:
        model = Batch
        fields = (
            "id", "name", "status", "sample", "priority", "webhook", "defaults", "counts",
            "progress", "stored_bytes", "skipped", "summary", "closed_at", "approved_at",
            "paused_at", "cancelled_at", "ended_at", "created_at", "updated_at",
        )  # fmt: skip
        read_only_fields = fields
        list_serializer_class = PageSerializer

    def look_up(self, rows: Sequence[Batch]) -> None:
        of_books.with_figures([batch for batch in rows if not hasattr(batch, "figures")])


class SampleSerializer(serializers.Serializer[Any]):
    """The sample of a book."""

    job = identifier("Null if the book was deleted.", null=True)
    status = string()
    chapter = string("Title of the chapter.")
    audio_url = string(null=True)
    error_code = string()
    error_message = string()


def _sample_of(entry: BatchEntry) -> dict[str, Any] | None:
    book = entry.book
    sample = book.started.get("sample") if book is not None else None
    job = book.sample_job if book is not None else None
    if book is None or (sample is None and job is None):
        return None
    found = {"job": None, "status": "deleted", "error_code": "", "error_message": ""}
    if job is not None:
        found = {name: getattr(job, name) for name in ("status", "error_code", "error_message")}
        found["job"] = str(job.pk)
    is_there = job is not None and has_audio(job)
    return {
        **found,
        "chapter": (sample or {}).get("title", ""),
        "audio_url": reverse("book-sample", args=[book.pk]) if is_there else None,
    }


class BookBatchEntrySerializer(LookUpMixin, serializers.ModelSerializer[BatchEntry]):
    """An entry of a batch: its line in the manifest, and the progress of its book."""

    file = string(source="filename")
    state = ShownField(lambda entry: str(entry.state), serializers.ChoiceField(choices=STATES))
    options = serializers.DictField(help_text="The options that differ from the defaults.")
    metadata = serializers.DictField()
    book = identifier(null=True, source="book_id")
    title = ShownField(
        lambda entry: str(entry.metadata.get("title") or entry.book or entry.filename),
        help_text="Return the book's title, or the file's name until it is known.",
    )
    sample = ShownField(_sample_of, SampleSerializer(allow_null=True))
    plan = ShownField(
        lambda entry: (entry.book.figures or None) if entry.book is not None else None,
        {"type": "object", "nullable": True, "additionalProperties": {}},
    )
    progress = ShownField(
        lambda entry: progress_of_book(entry.book) if entry.book is not None else None,
        BookProgressSerializer(allow_null=True),
    )
    stored_bytes = ShownField(lambda entry: dict(entry.stored), _BYTES)
    audio_url = ShownField(
        lambda entry: audio_url_of(entry.book) if entry.book is not None else None, str | None
    )
    waits_for = ShownField(
        lambda entry: str(entry.error_message) if entry.state in ("waiting", "sampled") else "",
        help_text="Return why a planned book waits longer than its turn; empty if it does not.",
    )
    error_code = ShownField(
        lambda entry: error_of(entry)[0],
        help_text="Return the code of the book's error; empty without one.",
    )
    error_message = ShownField(
        lambda entry: error_of(entry)[1], help_text="Return the sentence that explains the error."
    )

    class Meta:
        model = BatchEntry
        fields = (
            "index", "file", "state", "options", "metadata", "book", "title", "sample", "plan",
            "progress", "stored_bytes", "audio_url", "waits_for", "error_code", "error_message",
        )  # fmt: skip
        read_only_fields = fields
        list_serializer_class = PageSerializer

    def look_up(self, rows: Sequence[BatchEntry]) -> None:
        with_progress([entry.book for entry in rows if entry.book is not None])
        stored = stored_bytes(rows)
        for entry in rows:
            entry.stored = stored[entry.pk]  # type: ignore[attr-defined]  # as an annotation would be


def describe_batch(row: Batch) -> dict[str, Any]:
    """Return what a message says of a batch; of one of books its totals, and what is not whole."""
    if row.kind == Batch.Kind.TEXTS:
        return {"kind": "batch", **BatchSerializer(with_figures([row])[0]).data}
    data = dict(BookBatchSerializer(row).data)
    books = [one for one in row.report.get("books", []) if one["status"] != "succeeded"]
    shown = ("index", "file", "book", "title", "status", "error_code", "error_message")
    data["not_whole"] = [{name: one[name] for name in shown} for one in books[:MOST_SHOWN_BOOKS]]
    return data
