"""Serve the files of a book over REST, and what else is heard and seen of it: sample, cover."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.http import quote_etag
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.books.options import LimitedFiles
from synth.api.books.serializers import (
    BookFileListSerializer,
    BookFileSerializer,
    BookSerializer,
)
from synth.api.books.views import BOOK, find_book, started_job
from synth.api.fields import StrictNumberField, any_file, optional_whole
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, read_idempotency_key, sender_of
from synth.api.jobs.segment_views import made_file
from synth.api.jobs.serializers import file_name_of, made_export, stored_export
from synth.audiobooks import files as book_files
from synth.audiobooks.changes import CoverLimitHandler, change_cover
from synth.audiobooks.files import (
    MAX_CHAPTER,
    delete_file,
    name_of,
    request_file,
    with_currency,
)
from synth.audiobooks.plans import title_of
from synth.formats import CHAPTER_FORMATS, MAX_BIT_RATE, MIN_BIT_RATE, SAMPLE_RATES, safe_name
from synth.jobs.options import LOUDNESS
from synth.models import ApiKey, BookFile, BookSource, RenderJob
from synth.models.books import file_kinds
from ttsweb.http import nouns
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import StrictBooleanField
from ttsweb.http.headers import CONDITIONAL_PARAMETERS, UNCHANGED
from ttsweb.http.ranged import StoredObject
from ttsweb.refusals import POLL_SECONDS, counted

_LOW, _HIGH = -80.0, 0.0  # dB, what the axis shows
_HEIGHT, _LEFT, _TOP, _BOTTOM = 240, 44, 28, 40
_SERIES = (
    ("loudness_lufs", "Loudness (LUFS)", "#2b6cb0"),
    ("true_peak_dbtp", "Peak (dBTP)", "#b7791f"),
    ("floor_dbfs", "Noise floor (dBFS)", "#4a5568"),
)
_BAR, _STEP = 8, 32  # from one bar to the next, from one chapter to the next
_BARS_MIDDLE = len(_SERIES) * _BAR // 2
_LEGEND_STEP, _SWATCH = 105, 10


def report_plot(report: dict[str, Any]) -> str:
    """Return the bars of a report of `book_report`; a failed chapter's number is red and marked."""
    rows = report["chapters"]
    limits = ("target_lufs", "target_rms_dbfs", "peak_limit_dbtp", "floor_limit_dbfs")
    known = {name: limit for name in limits if (limit := report["mastering"][name]) is not None}
    levels = [(level, _y(level)) for level in range(int(_LOW), 1, 20)]
    shown = {
        "title": f"Levels of {counted(len(rows), 'chapter')}",
        "width": _LEFT + max(10, len(rows)) * _STEP + 12,
        "height": _TOP + _HEIGHT + _BOTTOM,
        "left": _LEFT,
        "levels_end": _LEFT - 6,
        "bar_width": _BAR - 1,
        "swatch": _SWATCH,
        "numbers_base": _TOP + _HEIGHT + 16,
        "legend": [
            (_LEFT + place * _LEGEND_STEP, _LEFT + place * _LEGEND_STEP + _SWATCH + 4, name, colour)
            for place, (_, name, colour) in enumerate(_SERIES)
        ],
        "levels": [(level, y, y + 4) for level, y in levels],
        "limits": [(name, f"{limit:g}", _y(limit)) for name, limit in known.items()],
        "chapters": [_bars(row, _LEFT + place * _STEP + 4) for place, row in enumerate(rows)],
    }
    return render_to_string("synth/book_file_plot.svg", shown)


def _bars(row: dict[str, Any], left: int) -> dict[str, Any]:
    """Return a chapter's three bars with its number below; its name and values are a tooltip."""
    name, number = safe_name(str(row["title"]), "Chapter"), row["index"] + 1
    values = [(label, row[key], colour) for key, label, colour in _SERIES]
    said = ", ".join(f"{label} {'none' if value is None else value}" for label, value, _ in values)
    verdict = "passed" if row["passed"] else "failed"
    bars = [
        (left + place * _BAR, _y(value), f"{_TOP + _HEIGHT - _y(value):.1f}", colour)
        for place, (_, value, colour) in enumerate(values)
        if value is not None
    ]
    tooltip = f"{number} {name}: {said}; {verdict}"
    return {
        "middle": left + _BARS_MIDDLE,
        "number": number,
        "passed": row["passed"],
        "tooltip": tooltip,
        "bars": bars,
    }


def _y(level: float) -> float:
    held = min(_HIGH, max(_LOW, level))
    return round(_TOP + (_HIGH - held) / (_HIGH - _LOW) * _HEIGHT, 1)


class BookFileRequestSerializer(StrictSerializer):
    """A file of a book to make; options that its kind does not take are refused."""

    kind = serializers.ChoiceField(choices=file_kinds())
    format = serializers.ChoiceField(
        choices=(*book_files.ONE_FILE, book_files.OWN, book_files.MADE),
        required=False,
        help_text=f"`chapters`: {', '.join(CHAPTER_FORMATS)}; mp3 if left out. `shelf` and "
        "`report`: also m4b, which is their default (a report on the preset acx: mp3). "
        "`read_along`: `own` for an EPUB with its own text, or `made` for an EPUB made from the "
        "spoken text.",
    )
    preset = serializers.ChoiceField(
        choices=book_files.PRESETS,
        required=False,
        help_text="Mastering preset; that of the book if left out.",
    )
    loudness = StrictNumberField(
        **asdict(LOUDNESS),
        required=False,
        help_text="Loudness of each chapter in LUFS, instead of -18 of the preset standard.",
    )
    bit_rate = optional_whole(
        MIN_BIT_RATE, MAX_BIT_RATE, "Bits per second, for formats that are compressed."
    )
    sample_rate = optional_whole(SAMPLE_RATES[0], SAMPLE_RATES[-1], "Sample rate in Hz.")
    minutes = StrictNumberField(
        *(book_files.LEAST_MINUTES, book_files.SAMPLE_MINUTES),
        required=False,
        help_text="Longest duration of a sample, in minutes.",
    )
    chapter = optional_whole(
        0,
        book_files.MAX_CHAPTER,
        "Index of one chapter, from 0 as in the proof. For `chapters`, `srt` and `vtt`: "
        "use this chapter instead of all. For `sample`: take the sample from this chapter.",
    )
    partial = StrictBooleanField(  # type: ignore[assignment]  # DRF has a flag of that name
        default=False, help_text="Use the chapters that are complete, although others are not."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return `kind`, `partial`, and the other options that were given."""
        found = dict(attrs)
        kind, partial = found.pop("kind"), found.pop("partial")
        takes, form = book_files.TAKES[kind], found.get("format")
        words = {
            name: f"A file of the kind {kind} does not take {name}; it takes {', '.join(takes)}, "
            "partial."
            for name in found
            if name not in takes
        }
        if form is not None and "format" not in words and form not in book_files.FORMATS[kind]:
            words["format"] = (
                f"The format of a file of the kind {kind} must be one of "
                f"{', '.join(book_files.FORMATS[kind])}."
            )
        if words:
            raise serializers.ValidationError(
                {name: [ErrorDetail(one, code="option_unfit")] for name, one in words.items()}
            )
        return {"kind": kind, "partial": partial, "options": found}


SVG = "image/svg+xml"
_OPEN = (BookFile.Status.QUEUED, BookFile.Status.CLAIMED)


def _find(request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> BookFile:
    """Return a file of a book that this user may see, with the book, or raise the 404."""
    book = find_book(request, book_id)
    files = BookFile.objects.filter(job=book.job_id)
    missing = "The book has no file with this id."
    return _with_book([nouns.get_row(files, "book_file_not_found", missing, pk=file_id)], book)[0]


def _with_book(rows: Sequence[BookFile], book: BookSource) -> list[BookFile]:
    """Set on files of a book what their serializer shows beside their columns."""
    for row in rows:
        row.book = book  # type: ignore[attr-defined]  # as an annotation would be
    return with_currency(rows, book)


FILE = nouns.Noun("book-file", BookFileSerializer, _find, lambda row: row.status in _OPEN)


class BookFilesView(nouns.ListView[BookFile]):
    write_scopes = (ApiKey.Scope.JOBS,)
    lists = ("list_book_files", "List the files of a book, newest first.", 404)
    serializer_class = BookFileListSerializer

    def rows(self) -> QuerySet[BookFile]:
        """Return the files of the book's job; of one that was not started there are none."""
        self._book = find_book(self.request, self.kwargs["book_id"])
        return BookFile.objects.filter(job=self._book.job_id)

    def paginate_queryset(self, queryset: Any) -> Any:
        return _with_book(super().paginate_queryset(queryset) or [], self._book)

    @nouns.operation(
        "request_book_file",
        {200: BookFileSerializer, 202: BookFileSerializer},
        *(404, 409, 422, 429),
        request=BookFileRequestSerializer,
        parameters=[IDEMPOTENCY_PARAMETER, *nouns.accepted_headers(200)],
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Make a file of a book, or return the same file if it was made before.

        The same request always returns the same file, with an Idempotency-Key or without. If the
        same key asked for the file before, the file is not made again.
        """
        key = read_idempotency_key(request)
        book = find_book(request, book_id)
        asked = nouns.read_body(request, BookFileRequestSerializer)
        row, is_repeated = request_file(
            book,
            asked["kind"],
            asked["options"],
            sender_of(request, key),
            partial=asked["partial"],
        )
        answer = FILE.answer(request, book_id, row.pk)
        if is_repeated:
            answer.status_code = 200
        return answer


class BookFileView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    get = FILE.getter(
        "get_book_file", "Return a file of a book and its progress.", is_conditional=True
    )
    delete = FILE.deleter(
        "delete_book_file",
        "Delete a file of a book in any state; the book does not change.",
        delete_file,
    )


class BookFileContentView(APIView):
    @nouns.operation("get_book_file_content", "application/octet-stream", 404, 409, 410, 416)
    def get(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> HttpResponseBase:
        """Return the file, or a byte range of it."""
        row = _find(request, book_id, file_id)
        return content_answer(request, row, row.book)  # type: ignore[attr-defined]


class BookFilePlotView(APIView):
    @nouns.operation(
        "get_book_file_plot",
        {(200, SVG): OpenApiTypes.STR, **UNCHANGED},
        *(404, 409),
        parameters=CONDITIONAL_PARAMETERS,
    )
    def get(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> HttpResponseBase:
        """Return a picture of the loudness, peak and noise floor of each chapter."""
        row: Any = _find(request, book_id, file_id)
        _check_there(row)
        etag = quote_etag(f"{row.sha256[:32]}-plot")
        filename = f"{name_of(row, row.book).name}.svg"
        return made_file(request, report_plot(row.report), SVG, filename, etag)


def content_answer(request: Request, row: BookFile, book: BookSource) -> HttpResponseBase:
    """Return the bytes of a file.

    Raises:
        ApiProblem: 409 book_file_not_ready or book_file_failed, 410 audio_gone.
    """
    _check_there(row)
    named = name_of(row, book)
    stored = StoredObject(
        row.key, named.content_type, named.name, etag=row.sha256, is_finished=True
    )
    gone = "The file is no longer stored; make it again by a POST to `files`."
    return nouns.send_stored(request, stored, "audio_gone", gone)


def _check_there(row: BookFile) -> None:
    if row.status == BookFile.Status.FAILED:
        sentence = (
            f"The file could not be made: {row.error_message} Correct this, then ask for "
            "the file again by a POST to `files`."
        )
        raise ApiProblem(409, "book_file_failed", sentence)
    if row.status != BookFile.Status.DONE:
        sentence = "The file is still being made; ask again after `Retry-After` seconds."
        raise ApiProblem(409, "book_file_not_ready", sentence, retry_after=POLL_SECONDS)


MAX_FILE_NAME_CHARS = 100


class BookAudioQuerySerializer(StrictSerializer):
    """Which audio of a book is wanted."""

    chapter = optional_whole(
        0,
        MAX_CHAPTER,
        "Index of a chapter, from 0 as in the proof. Returns the newest single-chapter "
        "file, made by a POST to `files` with the kind `chapters`.",
    )


class BookAudioView(APIView):
    @nouns.operation(
        "get_book_audio", "audio/*", *(404, 409, 410, 416), query=BookAudioQuerySerializer
    )
    def get(self, request: Request, book_id: uuid.UUID, query: dict[str, Any]) -> HttpResponseBase:
        """Return the audio of a book or of one chapter, or a byte range of it."""
        book = find_book(request, book_id)
        job = started_job(book)
        if "chapter" in query:
            return _chapter_answer(request, book, job, int(query["chapter"]))
        export = made_export(job, "book", "book_not_finished", "book_without_audio")
        name = safe_name(title_of(book)[:MAX_FILE_NAME_CHARS], f"book-{str(book.pk)[:8]}")
        gone = "The book's audio file is no longer stored; start the book again."
        stored = stored_export(export, file_name_of(job, name))
        return nouns.send_stored(request, stored, "audio_gone", gone)


def _chapter_answer(
    request: Request, book: BookSource, job: RenderJob, chapter: int
) -> HttpResponseBase:
    files: Any = BookFile.objects.filter(
        job=job.pk, kind=BookFile.Kind.CHAPTERS, status=BookFile.Status.DONE
    )
    missing = (
        "This chapter has no file of its own; make one by a POST to the book's `files` "
        f'with {{"kind": "chapters", "chapter": {chapter}}}.'
    )
    row = nouns.get_row(files, "chapter_not_made", missing, options__chapter=chapter)
    return content_answer(request, row, book)


class BookSampleView(APIView):
    @nouns.operation("get_book_sample", "audio/*", 404, 409, 410, 416)
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the audio of the book's sample, its first rendered chapter, or a byte range."""
        book = find_book(request, book_id)
        job = book.sample_job
        if job is None:
            raise ApiProblem(404, "book_without_sample", "This book has no sample.")
        export = made_export(job, "sample", "sample_not_ready", "book_without_sample")
        gone = "The sample is no longer stored; its chapter is rendered again with the book."
        stored = stored_export(export, file_name_of(job, f"sample-{str(book.pk)[:8]}"))
        return nouns.send_stored(request, stored, "audio_gone", gone)


class CoverFormSerializer(StrictSerializer):
    """A cover, sent as a form."""

    file = any_file("A JPEG, PNG or WebP image.")


class BookCoverView(LimitedFiles, APIView):
    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (MultiPartParser,)
    limit_handler = CoverLimitHandler

    @nouns.operation("get_book_cover", "image/*", 404, 410, 416)
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the cover that was uploaded, or the cover in the book's file."""
        book = find_book(request, book_id)
        if not book.cover_key:
            sentence = "The book has no cover; its audio files show its title."
            raise ApiProblem(404, "book_without_cover", sentence)
        ending = book.cover_key.rpartition(".")[2]
        etag = book.cover_key.rpartition("/")[2].partition(".")[0]
        stored = StoredObject(book.cover_key, book.cover_type, f"cover.{ending}", etag=etag)
        gone = "The cover is no longer stored; upload it again."
        return nouns.send_stored(request, stored, "cover_gone", gone)

    @nouns.operation(
        "put_book_cover",
        BookSerializer,
        *(404, 409, 413, 415),
        request={"multipart/form-data": CoverFormSerializer},
    )
    def put(self, request: Request, book_id: uuid.UUID) -> Response:
        """Replace a book's cover; files that are made after this have it."""
        book = find_book(request, book_id)
        change_cover(book, nouns.read_body(request, CoverFormSerializer)["file"].read())
        return BOOK.shown(request, book_id)

    delete = BOOK.deleter(
        "delete_book_cover",
        "Remove a book's cover; files that are made after this show the title.",
        lambda book: change_cover(book, None),
        409,
    )
