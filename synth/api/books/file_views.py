"""Serve the files of a book over REST: ask for one, see how far it is, fetch it, delete it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.utils.http import quote_etag
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.accounts.authentication import key_of
from synth.api.books.file_serializers import (
    BookFileListSerializer,
    BookFileRequestSerializer,
    BookFileSerializer,
)
from synth.api.books.views import find_book
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, digest_of_body, read_idempotency_key
from synth.api.jobs.segment_views import made_file
from synth.audiobooks.files import RequestKey, delete_file, name_of, request_file, with_currency
from synth.books.file_names import safe_name
from synth.models import ApiKey, BookFile, BookSource
from ttsweb.counted import counted
from ttsweb.http.api import ApiProblem
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED
from ttsweb.http.nouns import (
    ListView,
    Noun,
    accepted_headers,
    get_row,
    operation,
    read_body,
    send_stored,
)
from ttsweb.http.ranged import StoredObject
from ttsweb.refusals import POLL_SECONDS

_LOW, _HIGH = -80.0, 0.0  # dB, what the axis shows
_HEIGHT, _LEFT, _TOP, _BOTTOM = 240, 44, 28, 40
_SERIES = (
    ("loudness_lufs", "Loudness (LUFS)", "#2b6cb0"),
    ("true_peak_dbtp", "Peak (dBTP)", "#b7791f"),
    ("floor_dbfs", "Noise floor (dBFS)", "#4a5568"),
)
_BAR = 8


def report_plot(report: dict[str, Any]) -> str:
    """Return the bars of a report of `book_report`; a failed chapter's number is red and marked."""
    rows = report["chapters"]
    step = 3 * _BAR + 8
    width = _LEFT + max(10, len(rows)) * step + 12
    height = _TOP + _HEIGHT + _BOTTOM
    title = f"Levels of {counted(len(rows), 'chapter')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(title)} '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for place, (_, name, colour) in enumerate(_SERIES):
        x = _LEFT + place * 105
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="17">{name}</text>')
    for level in range(int(_LOW), 1, 20):
        y = _y(level)
        parts.append(f'<line x1="{_LEFT}" x2="{width}" y1="{y}" y2="{y}" stroke="#e2e8f0"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{level}</text>')
    for name in ("target_lufs", "target_rms_dbfs", "peak_limit_dbtp", "floor_limit_dbfs"):
        limit = report["mastering"][name]
        if limit is not None:
            y = _y(limit)
            parts.append(
                f'<line x1="{_LEFT}" x2="{width}" y1="{y}" y2="{y}" stroke="#c53030" '
                f'stroke-dasharray="4 3"><title>{name} {limit:g}</title></line>'
            )
    parts += [_bars(row, _LEFT + place * step + 4) for place, row in enumerate(rows)]
    return "\n".join([*parts, "</svg>\n"])


def _bars(row: dict[str, Any], left: int) -> str:
    """Return a chapter's three bars with its number below; its name and values are a tooltip."""
    name = safe_name(str(row["title"]), "Chapter")
    values = [(label, row[key], colour) for key, label, colour in _SERIES]
    said = ", ".join(f"{label} {'none' if value is None else value}" for label, value, _ in values)
    verdict = "passed" if row["passed"] else "failed"
    tooltip = escape(f"{row['index'] + 1} {name}: {said}; {verdict}")
    parts = [f"<g><title>{tooltip}</title>"]
    for place, (_, value, colour) in enumerate(values):
        if value is not None:
            y = _y(value)
            x, height = left + place * _BAR, _TOP + _HEIGHT - y
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_BAR - 1}" height="{height:.1f}" fill="{colour}"/>'
            )
    colour, mark = ("#1a202c", "") if row["passed"] else ("#c53030", "!")
    parts.append(
        f'<text x="{left + 12}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle" fill="{colour}">'
        f"{row['index'] + 1}{mark}</text></g>"
    )
    return "".join(parts)


def _y(level: float) -> float:
    held = min(_HIGH, max(_LOW, level))
    return round(_TOP + (_HIGH - held) / (_HIGH - _LOW) * _HEIGHT, 1)


SVG = "image/svg+xml"
_OPEN = (BookFile.Status.QUEUED, BookFile.Status.CLAIMED)


def _find(request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> BookFile:
    """Return a file of a book that this user may see, with the book, or raise the 404."""
    book = find_book(request, book_id)
    files = BookFile.objects.filter(job=book.job_id)
    missing = "The book has no file with this id."
    return _with_book([get_row(files, "book_file_not_found", missing, pk=file_id)], book)[0]


def _with_book(rows: Sequence[BookFile], book: BookSource) -> list[BookFile]:
    """Set on files of a book what their serializer shows beside their columns."""
    for row in rows:
        row.book = book  # type: ignore[attr-defined]  # as an annotation would be
    return with_currency(rows, book)


FILE = Noun("book-file", BookFileSerializer, _find, lambda row: row.status in _OPEN)


class BookFilesView(ListView[BookFile]):
    write_scopes = (ApiKey.Scope.JOBS,)
    lists = ("list_book_files", "List the files of a book, newest first.", 404)
    serializer_class = BookFileListSerializer

    def rows(self) -> QuerySet[BookFile]:
        """Return the files of the book's job; of one that was not started there are none."""
        self._book = find_book(self.request, self.kwargs["book_id"])
        return BookFile.objects.filter(job=self._book.job_id)

    def paginate_queryset(self, queryset: Any) -> Any:
        return _with_book(super().paginate_queryset(queryset) or [], self._book)

    @operation(
        "request_book_file",
        {200: BookFileSerializer, 202: BookFileSerializer},
        *(404, 409, 422, 429),
        request=BookFileRequestSerializer,
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200)],
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Make a file of a book, or return the same file if it was made before.

        The same request always returns the same file, with an Idempotency-Key or without. If the
        same key asked for the file before, the file is not made again.
        """
        key = read_idempotency_key(request)
        book = find_book(request, book_id)
        asked = read_body(request, BookFileRequestSerializer)
        row, is_repeated = request_file(
            book,
            asked["kind"],
            asked["options"],
            partial=asked["partial"],
            api_key=key_of(request),
            request_key=RequestKey(key, digest_of_body(request.data)) if key else RequestKey(),
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
    @operation("get_book_file_content", "application/octet-stream", 404, 409, 410, 416)
    def get(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> HttpResponseBase:
        """Return the file, or a byte range of it."""
        row = _find(request, book_id, file_id)
        return content_answer(request, row, row.book)  # type: ignore[attr-defined]


class BookFilePlotView(APIView):
    @operation(
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
    stored = StoredObject(row.key, named.content_type, named.name, etag=row.sha256)
    gone = "The file is no longer stored; make it again by a POST to `files`."
    return send_stored(request, stored, "audio_gone", gone)


def _check_there(row: BookFile) -> None:
    if row.status == BookFile.Status.FAILED:
        raise ApiProblem(
            409,
            "book_file_failed",
            f"The file could not be made: {row.error_message} Correct this, then ask for "
            "the file again by a POST to `files`.",
        )
    if row.status != BookFile.Status.DONE:
        raise ApiProblem(
            409,
            "book_file_not_ready",
            "The file is still being made; ask again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
        )
