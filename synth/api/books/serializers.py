"""Write what answers show of books."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Count, Q, Sum
from django.urls import reverse
from rest_framework import serializers

from synth.api.books.fields import CastingField, MetadataSerializer
from synth.api.fields import boolean, identifier, integer, integers, number, string
from synth.api.jobs.serializers import JobVoiceSerializer, has_audio, progress_of
from synth.audiobooks.plans import authors_of
from synth.jobs.eta import etas
from synth.models import BookSource, Chapter, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.fields import LookUpMixin, PageSerializer, ShownField
from ttsweb.http.query_filters import id_filter, ids_filter, names_filter

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
    chapters_total: int = 0
    chapters_done: int = 0
    audio_seconds: float = 0.0
    eta_seconds: int | None = None


def with_progress(books: Sequence[BookSource]) -> list[BookSource]:
    """Set `progress` on books, by a few queries for all of them."""
    jobs = [book.job for book in books if book.job is not None]
    left = etas([job for job in jobs if job.paused_at is None])
    chapters: dict[uuid.UUID, list[tuple[int, float]]] = {}
    rows = Chapter.objects.filter(job__in=[job.pk for job in jobs]).order_by()
    rows = rows.annotate(
        still=Count("segments", filter=Q(segments__status__in=_OPEN)),
        seconds=Sum("segments__take__audio_seconds"),
    )
    for job_id, still, seconds in rows.values_list("job_id", "still", "seconds"):
        chapters.setdefault(job_id, []).append((still, seconds or 0.0))
    for book in books:
        rendered = chapters.get(book.job_id, []) if book.job_id else []
        book.progress = Progress(  # type: ignore[attr-defined]  # as an annotation would be
            chapters_total=len(rendered),
            chapters_done=sum(not still for still, _ in rendered),
            audio_seconds=round(sum((seconds for _, seconds in rendered), 0.0), 3),
            eta_seconds=left.get(book.job_id) if book.job_id else None,
        )
    return list(books)


class BookProgressSerializer(serializers.Serializer[Any]):
    """The progress of a book's job."""

    share = number(min_value=0, max_value=1)
    chapters_total = integer()
    chapters_done = integer()
    segments_total = integer()
    segments_done = integer()
    segments_failed = integer()
    segments_cancelled = integer()
    takes_rendered = integer("Takes that were rendered for this job.")
    takes_reused = integer("Takes that existed already and were reused.")
    audio_seconds = number("Seconds of audio of all takes that exist now, without pauses.")
    real_time_factor = number(
        "Seconds of audio rendered per second since the job began.", null=True
    )
    eta_seconds = integer(null=True)


class BookFiguresSerializer(serializers.Serializer[Any]):
    """Counts of the plan."""

    chapters = integer()
    included = integer()
    spine_chars = integer("Characters, blanks not counted.")
    spoken_chars = integer()
    expected_seconds = number()
    warnings = integer()


def status_of(book: BookSource) -> str:
    """Return the state of a book's import or, once it was started, of its job."""
    if book.job is None:
        return str(book.state)
    is_paused = book.job.paused_at is not None and book.job.status in UNFINISHED
    return PAUSED if is_paused else str(book.job.status)


def progress_of_book(book: Any) -> dict[str, Any] | None:
    """Return how far a book's job is, None before it was started."""
    job: RenderJob | None = book.job
    if job is None:
        return None
    found: Progress = book.progress
    counts = {name: getattr(found if hasattr(found, name) else job, name) for name in _COUNTS}
    factor = None
    if job.started_at is not None and job.takes_rendered:
        # Seconds of audio per second of work, also while the job goes on.
        elapsed = ((job.finished_at or job.updated_at) - job.started_at).total_seconds()
        factor = round(found.audio_seconds / elapsed, 3) if elapsed > 0 else None
    return {
        "share": progress_of(job),
        **counts,
        "audio_seconds": found.audio_seconds,
        "real_time_factor": factor,
        "eta_seconds": found.eta_seconds,
    }


def audio_url_of(book: BookSource) -> str | None:
    is_there = book.job is not None and has_audio(book.job)
    return reverse("book-audio", args=[book.pk]) if is_there else None


class BookSerializer(LookUpMixin, serializers.ModelSerializer[BookSource]):
    """A book and its progress."""

    status = ShownField(status_of, serializers.ChoiceField(choices=STATUSES))
    job = identifier(null=True, source="job_id")
    title = ShownField(
        lambda book: str(book.metadata.get("title") or book.title),
        help_text="Return the title that users set or the file has; empty if there is none yet.",
    )
    authors = ShownField(authors_of, serializers.ListField(child=serializers.CharField()))
    plan = ShownField(lambda book: book.figures or None, BookFiguresSerializer(allow_null=True))
    progress = ShownField(progress_of_book, BookProgressSerializer(allow_null=True))
    options = serializers.DictField(help_text="The voices of the job, as requested.")
    policies = serializers.DictField(child=serializers.CharField())
    casting = CastingField(help_text="The voices besides the narrator, as requested.")
    opening_credits = string(source="production.opening_credits", default="")
    closing_credits = string(source="production.closing_credits", default="")
    voices = ShownField(
        lambda book: (
            [] if book.job is None else JobVoiceSerializer(book.job.voices, many=True).data
        ),
        JobVoiceSerializer(many=True),
    )
    metadata = ShownField(lambda book: dict(book.metadata), MetadataSerializer())
    cover_url = ShownField(
        lambda book: reverse("book-cover", args=[book.pk]) if book.cover_key else None, str | None
    )
    audio_url = ShownField(audio_url_of, str | None)
    error_code = ShownField(
        lambda book: book.error_code if book.job is None else book.job.error_code,
        help_text="Return the code of an error in its import, its start or its job; empty without "
        "one.",
    )
    error_message = ShownField(
        lambda book: book.error_message if book.job is None else book.job.error_message,
        help_text="Return the sentence that explains the error.",
    )

    class Meta:
        model = BookSource
        list_serializer_class = PageSerializer
        fields = (
            "id", "status", "job", "title", "authors", "language", "filename", "size_bytes",
            "sha256", "plan_number", "plan", "progress", "options", "policies", "casting",
            "opening_credits", "closing_credits", "voices", "metadata", "cover_url",
            "start_wanted", "audio_url", "error_code", "error_message", "created_at", "updated_at",
        )  # fmt: skip
        read_only_fields = fields

    def look_up(self, rows: Sequence[BookSource]) -> None:
        with_progress(rows)


class ChapterProofSerializer(serializers.Serializer[Any]):
    """What happened to a chapter's text, in characters without blanks."""

    id = string()
    index = integer()
    title = string()
    source_chars = integer("Characters of the book.")
    text_chars = integer("Characters that were given to the model.")
    spoken_chars = integer()
    failed_chars = integer()
    open_chars = integer()
    segments = integer()
    short_segments = integers()
    is_balanced = boolean()


class ProofSerializer(serializers.Serializer[Any]):
    """What happened to each character of the book."""

    spine_chars = integer("Characters of all text in reading order.")
    spoken_chars = integer()
    skipped_chars = integer()
    failed_chars = integer()
    open_chars = integer("Not rendered yet.")
    skipped = serializers.DictField(child=serializers.IntegerField(), help_text="Counts by reason.")
    is_balanced = boolean("Whether all characters are accounted for.")
    is_complete = boolean("Whether everything that has to be spoken was spoken.")
    short_segments = integers("Ids of segments whose takes are too short.")
    chapters = ChapterProofSerializer(many=True)


MAX_IDS = 200


def status_condition(names: Iterable[str]) -> Q:
    """Return the condition for books that are in one of these states, as answers call them."""
    return reduce(or_, map(_condition, names), Q(pk__in=()))


def _condition(name: str) -> Q:
    of_job = Q(job__status=name, job__paused_at__isnull=True)
    if name == PAUSED:
        return Q(job__paused_at__isnull=False, job__status__in=UNFINISHED)
    if name in UNFINISHED:
        return of_job
    if name in RenderJob.Status.values:
        of_job = Q(job__status=name)  # one that ended is no longer paused, whatever its row says
    if name in BookSource.State.values:
        of_import = Q(job__isnull=True, state=name)
        return of_import | of_job if name in RenderJob.Status.values else of_import
    return of_job


class BookFilterSerializer(serializers.Serializer[Any]):
    """The filters of the list of books, as a condition on books."""

    status = names_filter(STATUSES, "One or more states, separated by commas.", status_condition)
    ids = ids_filter("books", MAX_IDS)
    batch = id_filter("batch of books", lambda batch: Q(batch_entry__batch=batch))
