"""Write what answers show of books and of their files."""

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
from synth.api.fields import (
    boolean,
    identifier,
    integer,
    integers,
    number,
    string,
)
from synth.api.jobs.serializers import JobVoiceSerializer, has_audio, progress_of
from synth.audiobooks import files as book_files
from synth.audiobooks.plans import authors_of
from synth.jobs.eta import etas
from synth.models import BookFile, BookSource, Chapter, RenderJob, Segment
from synth.models.books import file_kinds
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


class _OptionsField(serializers.DictField):
    """The options of a file, without the keys that have asked for it."""

    def to_representation(self, value: Any) -> dict[str, Any]:
        return dict(super().to_representation(book_files.shown_options(value)))


def _url(name: str, row: Any) -> str:
    return reverse(name, args=[row.book.pk, row.pk])


def _plot_url(row: Any) -> str | None:
    is_measured = row.status == BookFile.Status.DONE and bool(row.report.get("chapters"))
    return _url("book-file-plot", row) if is_measured else None


class BookFileListSerializer(serializers.ModelSerializer[BookFile]):
    """A file of a book, besides the file of its job."""

    # Rows have a `book`, as an annotation would be.
    kind = serializers.ChoiceField(choices=file_kinds())
    options = _OptionsField(
        help_text="All options of its kind. Bit rates and sample rates are null if the format's "
        "defaults are used; `chapter` is null if the file has all chapters."
    )
    is_partial = boolean(
        "True: the file holds some chapters only, or may do so, as others were not complete."
    )
    is_current = boolean(
        "True: the file holds the present takes and metadata. If false, ask for it again "
        "to make it again."
    )
    filename = ShownField(
        lambda row: book_files.name_of(row, row.book).name, help_text="Return the file's name."
    )
    content_type = ShownField(
        lambda row: book_files.name_of(row, row.book).content_type,
        help_text="Return its media type.",
    )
    content_url = ShownField(
        lambda row: _url("book-file-content", row) if row.key else None, str | None
    )
    plot_url = ShownField(_plot_url, str | None)

    class Meta:
        model = BookFile
        fields: tuple[str, ...] = (
            "id", "kind", "options", "status", "is_partial", "is_current", "filename",
            "content_type", "size_bytes", "sha256", "duration_seconds", "content_url", "plot_url",
            "error_code", "error_message", "created_at", "finished_at",
        )  # fmt: skip
        read_only_fields = fields


class ChapterCheckSerializer(serializers.Serializer[Any]):
    """One requirement for a chapter's file, and the measured value."""

    code = serializers.ChoiceField(
        choices=("speech", "loudness", "rms", "peak", "floor", "duration")
    )
    passed = boolean()
    sentence = string()


class ChapterReportSerializer(serializers.Serializer[Any]):
    """The values measured in a chapter after encoding; levels in dBFS, dBTP and LUFS."""

    index = integer()
    title = string()
    seconds = number()
    rms_dbfs = number()
    peak_dbfs = number()
    true_peak_dbtp = number()
    floor_dbfs = number("RMS of the quietest half second.")
    loudness_lufs = number(null=True)
    num_samples = integer()
    sample_rate = integer()
    size_bytes = integer()
    gain_db = number()
    limiter_db = number()
    passed = boolean()
    checks = ChapterCheckSerializer(many=True)


class VoiceLevelSerializer(serializers.Serializer[Any]):
    """The gain that brings one voice to the narrator's level."""

    voice = string()
    speakers = integers()
    loudness_lufs = number("Loudness over all text of this voice.", null=True)
    gain_db = number()
    is_bounded = boolean("True: the voice needs more gain than is allowed.")


class MissingChapterSerializer(serializers.Serializer[Any]):
    """A chapter that is not in the file."""

    index = integer()
    title = string()


class BookFileReportSerializer(serializers.Serializer[Any]):
    """The values measured in the chapters of the file."""

    mastering = serializers.DictField(help_text="The requirements.")
    passed = boolean("Whether every chapter meets the requirements.")
    failed_chapters = integers()
    seconds = number()
    chapters = ChapterReportSerializer(many=True)
    chapters_missing = MissingChapterSerializer(many=True)
    voices = VoiceLevelSerializer(many=True, help_text="For books with several voices.")
    chapters_encoded = integer()
    chapters_reused = integer()
    assembly_realtime = number("Seconds of audio per second of work that the file took.", null=True)
    cover_note = string()
    unplaced_segments = integer(
        "For a read-along EPUB: segments that are missing in its text.", required=False
    )


class BookFileSerializer(BookFileListSerializer):
    """A file of a book, with its measured values."""

    report = ShownField(lambda row: row.report or None, BookFileReportSerializer(allow_null=True))

    class Meta(BookFileListSerializer.Meta):
        fields = (*BookFileListSerializer.Meta.fields, "report")
        read_only_fields = fields
