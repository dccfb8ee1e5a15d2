"""Serve the files of a book over REST: ask for one, see how far it is, fetch it, delete it."""

from __future__ import annotations

import uuid
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
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
from synth.audiobooks.files import RequestKey, delete_file, name_of, request_file, with_currency
from synth.books.file_names import safe_name
from synth.models import ApiKey, BookFile, BookSource
from ttsweb.counted import counted
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.nouns import (
    RANGE,
    ListView,
    accepted_headers,
    file_responses,
    list_rows,
    send_stored,
)
from ttsweb.http.ranged import StoredObject
from ttsweb.http.schema import problems
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
    parts += _limits(report["mastering"], width)
    for place, row in enumerate(rows):
        parts.append(_bars(row, _LEFT + place * step + 4))
    return "\n".join([*parts, "</svg>\n"])


def _limits(mastering: dict[str, Any], width: int) -> list[str]:
    found = []
    for name in ("target_lufs", "target_rms_dbfs", "peak_limit_dbtp", "floor_limit_dbfs"):
        if mastering[name] is not None:
            y = _y(mastering[name])
            found.append(
                f'<line x1="{_LEFT}" x2="{width}" y1="{y}" y2="{y}" stroke="#c53030" '
                f'stroke-dasharray="4 3"><title>{name} {mastering[name]:g}</title></line>'
            )
    return found


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


class BookFilesView(ListView[BookFile]):
    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BookFileListSerializer

    def rows(self) -> QuerySet[BookFile]:
        """Return the files of the book's job; of one that was not started there are none."""
        return BookFile.objects.filter(job=self._book().job_id)

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return a page of files, and whether each is of the takes of now."""
        return with_currency(super().paginate_queryset(queryset) or [], self._book())

    def get_serializer_context(self) -> dict[str, Any]:
        """Return what the serializer needs of the book."""
        if getattr(self, "swagger_fake_view", False):
            return dict(super().get_serializer_context())
        return {**super().get_serializer_context(), "book": self._book()}

    def _book(self) -> BookSource:
        if not hasattr(self, "_found"):
            self._found = find_book(self.request, self.kwargs["book_id"])
        return self._found

    get = list_rows(
        "list_book_files", "List the files of a book, newest first.", BookFileListSerializer, 404
    )

    @extend_schema(
        operation_id="request_book_file",
        request=BookFileRequestSerializer,
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200)],
        responses={
            200: BookFileSerializer,
            202: BookFileSerializer,
            **problems(400, 401, 404, 409, 422, 429),
        },
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Make a file of a book, or return the same file if it was made before.

        The same request always returns the same file, with an Idempotency-Key or without. If the
        same key asked for the file before, the file is not made again.
        """
        check_query(request, ())
        key = read_idempotency_key(request)
        book = self._book()
        serializer = BookFileRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        asked = serializer.validated_data
        row, is_repeated = request_file(
            book,
            asked["kind"],
            asked["options"],
            partial=asked["partial"],
            api_key=key_of(request),
            request_key=RequestKey(key, digest_of_body(request.data)) if key else RequestKey(),
        )
        answer = _answer(row, book)
        if is_repeated:
            answer.status_code = 200
        return answer


class BookFileView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_book_file",
        parameters=CONDITIONAL_PARAMETERS,
        responses={200: BookFileSerializer, **UNCHANGED, **problems(400, 401, 404)},
    )
    def get(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> Response:
        """Return a file of a book and its progress."""
        check_query(request, ())
        book, row = _find(request, book_id, file_id)
        answer = _shown(row, book)
        if row.status in _OPEN:
            answer["Retry-After"] = str(POLL_SECONDS)
        return conditional(request, answer)

    @extend_schema(
        operation_id="delete_book_file", responses={204: None, **problems(400, 401, 404)}
    )
    def delete(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> Response:
        """Delete a file of a book in any state; the book does not change."""
        check_query(request, ())
        delete_file(_find(request, book_id, file_id)[1])
        return Response(status=204)


class BookFileContentView(APIView):
    @extend_schema(
        operation_id="get_book_file_content",
        parameters=[RANGE],
        responses=file_responses("application/octet-stream", 400, 401, 404, 409, 410, 416),
    )
    def get(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> HttpResponseBase:
        """Return the file, or a byte range of it."""
        check_query(request, ())
        book, row = _find(request, book_id, file_id)
        return content_answer(request, row, book)


class BookFilePlotView(APIView):
    @extend_schema(
        operation_id="get_book_file_plot",
        parameters=CONDITIONAL_PARAMETERS,
        responses={(200, SVG): OpenApiTypes.STR, **UNCHANGED, **problems(400, 401, 404, 409)},
    )
    def get(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> HttpResponseBase:
        """Return a picture of the loudness, peak and noise floor of each chapter."""
        check_query(request, ())
        book, row = _find(request, book_id, file_id)
        _check_there(row)
        answer = HttpResponse(report_plot(row.report), content_type=SVG)
        etag = quote_etag(f"{row.sha256[:32]}-plot")
        name = f"{name_of(row, book).name}.svg"
        answer["Content-Disposition"] = content_disposition_header(False, name) or "inline"
        answer["ETag"], answer["Cache-Control"] = etag, "private, no-cache"
        answer["X-Content-Type-Options"] = "nosniff"
        return get_conditional_response(request._request, etag, response=answer) or answer


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


def _find(request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> tuple[BookSource, BookFile]:
    """Return a book that this user may see with one of its files, or raise the 404."""
    book = find_book(request, book_id)
    row = BookFile.objects.filter(pk=file_id, job=book.job_id).first() if book.job_id else None
    if row is None:
        raise ApiProblem(404, "book_file_not_found", "The book has no file with this id.")
    return book, row


def _shown(row: BookFile, book: BookSource) -> Response:
    with_currency([row], book)
    return Response(BookFileSerializer(row, context={"book": book}).data)


def _answer(row: BookFile, book: BookSource) -> Response:
    """Return a file as work that goes on (202), or as one that is there (200)."""
    answer = _shown(row, book)
    answer["Location"] = reverse("book-file", args=[book.pk, row.pk])
    if row.status in _OPEN:
        answer.status_code = 202
        answer["Retry-After"] = str(POLL_SECONDS)
    return answer
