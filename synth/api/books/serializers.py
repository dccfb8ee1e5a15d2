"""Write what answers show of books."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, Sum
from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from synth.api.books.cast_fields import CastingField
from synth.api.books.metadata_fields import MetadataSerializer
from synth.api.jobs.serializers import JobVoiceSerializer, has_audio, progress_of
from synth.audiobooks.metadata import authors_of
from synth.jobs.eta import etas
from synth.models import BookSource, Chapter, RenderJob, Segment
from synth.transitions import UNFINISHED

PAUSED = "paused"
STATUSES = (
    *BookSource.State.values,
    PAUSED,
    *(s for s in RenderJob.Status.values if s != "failed"),
)
_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
_COUNTS = (
    "chapters_total",
    "chapters_done",
    "segments_total",
    "segments_done",
    "segments_failed",
    "segments_cancelled",
    "takes_rendered",
    "takes_reused",
)


@dataclass(frozen=True, slots=True)
class Progress:
    """Hold how far the job of a book is."""

    chapters_total: int = 0
    chapters_done: int = 0
    audio_seconds: float = 0.0
    eta_seconds: int | None = None


def with_progress(books: Sequence[BookSource]) -> list[BookSource]:
    """Set `progress` on books, by a few queries for all of them."""
    jobs = [book.job for book in books if book.job is not None]
    found: dict[uuid.UUID, Progress] = {}
    left = etas([job for job in jobs if job.paused_at is None])
    chapters: dict[uuid.UUID, list[tuple[int, float]]] = {}
    rows = Chapter.objects.filter(job__in=[job.pk for job in jobs]).order_by()
    rows = rows.annotate(
        still=Count("segments", filter=Q(segments__status__in=_OPEN)),
        seconds=Sum("segments__take__audio_seconds"),
    )
    for job_id, still, seconds in rows.values_list("job_id", "still", "seconds"):
        chapters.setdefault(job_id, []).append((still, seconds or 0.0))
    for job in jobs:
        rendered = chapters.get(job.pk, [])
        found[job.pk] = Progress(
            chapters_total=len(rendered),
            chapters_done=sum(not still for still, _ in rendered),
            audio_seconds=round(sum(seconds for _, seconds in rendered), 3),
            eta_seconds=left.get(job.pk),
        )
    for book in books:
        progress = found.get(book.job_id, Progress()) if book.job_id else Progress()
        book.progress = progress  # type: ignore[attr-defined]  # as an annotation would be
    return list(books)


class BookProgressSerializer(serializers.Serializer[Any]):
    """The progress of a book's job."""

    share = serializers.FloatField(min_value=0, max_value=1)
    chapters_total = serializers.IntegerField()
    chapters_done = serializers.IntegerField()
    segments_total = serializers.IntegerField()
    segments_done = serializers.IntegerField()
    segments_failed = serializers.IntegerField()
    segments_cancelled = serializers.IntegerField()
    takes_rendered = serializers.IntegerField(help_text="Takes that were rendered for this job.")
    takes_reused = serializers.IntegerField(help_text="Takes that existed already and were reused.")
    audio_seconds = serializers.FloatField(
        help_text="Seconds of audio of all takes that exist now, without pauses."
    )
    real_time_factor = serializers.FloatField(
        allow_null=True, help_text="Seconds of audio rendered per second since the job began."
    )
    eta_seconds = serializers.IntegerField(allow_null=True)


class BookFiguresSerializer(serializers.Serializer[Any]):
    """Counts of the plan."""

    chapters = serializers.IntegerField()
    included = serializers.IntegerField()
    spine_chars = serializers.IntegerField(help_text="Characters, blanks not counted.")
    spoken_chars = serializers.IntegerField()
    expected_seconds = serializers.FloatField()
    warnings = serializers.IntegerField()


class BookSerializer(serializers.ModelSerializer[BookSource]):
    """A book and its progress."""

    status = serializers.SerializerMethodField()
    job = serializers.UUIDField(source="job_id", allow_null=True)
    title = serializers.SerializerMethodField()
    authors = serializers.SerializerMethodField()
    plan = serializers.SerializerMethodField()
    progress = serializers.SerializerMethodField()
    options = serializers.DictField(help_text="The voices of the job, as requested.")
    policies = serializers.DictField(child=serializers.CharField())
    casting = CastingField(help_text="The voices besides the narrator, as requested.")
    opening_credits = serializers.CharField(source="production.opening_credits", default="")
    closing_credits = serializers.CharField(source="production.closing_credits", default="")
    voices = serializers.SerializerMethodField()
    metadata = serializers.SerializerMethodField()
    cover_url = serializers.SerializerMethodField()
    audio_url = serializers.SerializerMethodField()
    error_code = serializers.SerializerMethodField()
    error_message = serializers.SerializerMethodField()

    class Meta:
        model = BookSource
        fields = (
            "id",
            "status",
            "job",
            "title",
            "authors",
            "language",
            "filename",
            "size_bytes",
            "sha256",
            "plan_number",
            "plan",
            "progress",
            "options",
            "policies",
            "casting",
            "opening_credits",
            "closing_credits",
            "voices",
            "metadata",
            "cover_url",
            "start_wanted",
            "audio_url",
            "error_code",
            "error_message",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(choices=STATUSES))
    def get_status(self, book: BookSource) -> str:
        """Return the state of its import or, once it was started, of its job."""
        if book.job is None:
            return str(book.state)
        is_paused = book.job.paused_at is not None and book.job.status in UNFINISHED
        return PAUSED if is_paused else str(book.job.status)

    def get_title(self, book: BookSource) -> str:
        """Return the title that users set or the file has; empty if there is none yet."""
        return str(book.metadata.get("title") or book.title)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_authors(self, book: BookSource) -> list[str]:
        """Return who wrote it, by people or its file."""
        return authors_of(book)

    @extend_schema_field(MetadataSerializer)
    def get_metadata(self, book: BookSource) -> dict[str, Any]:
        """Return what people say of it in place of its file."""
        return dict(book.metadata)

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_cover_url(self, book: BookSource) -> str | None:
        """Return where its cover is, null where it has none."""
        return reverse("book-cover", args=[book.pk]) if book.cover_key else None

    @extend_schema_field(JobVoiceSerializer(many=True))
    def get_voices(self, book: BookSource) -> Any:
        """Return who speaks in its job, empty before it was started."""
        return [] if book.job is None else JobVoiceSerializer(book.job.voices, many=True).data

    @extend_schema_field(BookFiguresSerializer(allow_null=True))
    def get_plan(self, book: BookSource) -> dict[str, Any] | None:
        """Return the counts of the plan, null until there is one."""
        return book.figures or None

    @extend_schema_field(BookProgressSerializer(allow_null=True))
    def get_progress(self, book: Any) -> dict[str, Any] | None:
        """Return how far its job is, null before it was started."""
        job: RenderJob | None = book.job
        if job is None:
            return None
        found: Progress = book.progress
        counts = {name: getattr(found if hasattr(found, name) else job, name) for name in _COUNTS}
        return {
            "share": progress_of(job),
            **counts,
            "audio_seconds": found.audio_seconds,
            "real_time_factor": _real_time_factor_now(job, found.audio_seconds),
            "eta_seconds": found.eta_seconds,
        }

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_audio_url(self, book: BookSource) -> str | None:
        """Return where the file is, null until it is there."""
        is_there = book.job is not None and has_audio(book.job)
        return reverse("book-audio", args=[book.pk]) if is_there else None

    def get_error_code(self, book: BookSource) -> str:
        """Return the code of an error in its import, its start or its job; empty without one."""
        return book.error_code if book.job is None else book.job.error_code

    def get_error_message(self, book: BookSource) -> str:
        """Return the sentence that explains the error."""
        return book.error_message if book.job is None else book.job.error_message


class ChapterProofSerializer(serializers.Serializer[Any]):
    """What happened to a chapter's text, in characters without blanks."""

    id = serializers.CharField()
    index = serializers.IntegerField()
    title = serializers.CharField()
    source_chars = serializers.IntegerField(help_text="Characters of the book.")
    text_chars = serializers.IntegerField(help_text="Characters that were given to the model.")
    spoken_chars = serializers.IntegerField()
    failed_chars = serializers.IntegerField()
    open_chars = serializers.IntegerField()
    segments = serializers.IntegerField()
    short_segments = serializers.ListField(child=serializers.IntegerField())
    is_balanced = serializers.BooleanField()


class ProofSerializer(serializers.Serializer[Any]):
    """What happened to each character of the book."""

    spine_chars = serializers.IntegerField(help_text="Characters of all text in reading order.")
    spoken_chars = serializers.IntegerField()
    skipped_chars = serializers.IntegerField()
    failed_chars = serializers.IntegerField()
    open_chars = serializers.IntegerField(help_text="Not rendered yet.")
    skipped = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by reason.")
    is_balanced = serializers.BooleanField(help_text="Whether all characters are accounted for.")
    is_complete = serializers.BooleanField(
        help_text="Whether everything that has to be spoken was spoken."
    )
    short_segments = serializers.ListField(
        child=serializers.IntegerField(), help_text="Ids of segments whose takes are too short."
    )
    chapters = ChapterProofSerializer(many=True)


def _real_time_factor_now(job: RenderJob, seconds: float) -> float | None:
    """Return the seconds of audio per second of work, also while the job goes on."""
    if job.started_at is None or not job.takes_rendered:
        return None
    elapsed = ((job.finished_at or job.updated_at) - job.started_at).total_seconds()
    return round(seconds / elapsed, 3) if elapsed > 0 else None
