"""Serve the files of a book over REST: ask for one, see how far it is, fetch it, delete it."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.authentication import key_of
from synth.api.books.file_serializers import (
    BookFileListSerializer,
    BookFileRequestSerializer,
    BookFileSerializer,
)
from synth.api.books.report_plot import report_plot
from synth.api.books.views import find_book, rejections_as_problems
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, digest_of_body, read_idempotency_key
from synth.bookshelf.files.asking import (
    POLL_SECONDS,
    delete_file,
    name_of,
    request_file,
    with_currency,
)
from synth.bookshelf.files.keys import Asking
from synth.models import ApiKey, BookFile, BookSource
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.query_filters import PAGE_PARAMETERS
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response
from ttsweb.http.schema import problems

SVG = "image/svg+xml"
_OPEN = (BookFile.Status.QUEUED, BookFile.Status.CLAIMED)
_ACCEPTED_HEADERS = [
    OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[200, 202]),
    OpenApiParameter("Retry-After", int, OpenApiParameter.HEADER, response=[202]),
]


class BookFilesView(generics.ListAPIView[BookFile]):
    """All files of a book, beside its job's."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BookFileListSerializer

    def get_queryset(self) -> QuerySet[BookFile]:
        """Return the files of the book's job; of one that was not started there are none."""
        if getattr(self, "swagger_fake_view", False):
            return BookFile.objects.none()
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

    @extend_schema(
        operation_id="list_book_files",
        responses={200: BookFileListSerializer(many=True), **problems(400, 401, 404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the files of a book, newest first."""
        check_query(request, PAGE_PARAMETERS)
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="request_book_file",
        request=BookFileRequestSerializer,
        parameters=[IDEMPOTENCY_PARAMETER, *_ACCEPTED_HEADERS],
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
        with rejections_as_problems():
            row, is_repeated = request_file(
                book,
                asked["kind"],
                asked["options"],
                partial=asked["partial"],
                api_key=key_of(request),
                asking=Asking(key, digest_of_body(request.data)) if key else Asking(),
            )
        answer = _answer(row, book)
        if is_repeated:
            answer.status_code = 200
        return answer


class BookFileView(APIView):
    """One file of a book."""

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
    """The bytes of a file of a book."""

    @extend_schema(
        operation_id="get_book_file_content",
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
            **problems(400, 401, 404, 409, 410, 416),
        },
    )
    def get(self, request: Request, book_id: uuid.UUID, file_id: uuid.UUID) -> HttpResponseBase:
        """Return the file, or a byte range of it."""
        check_query(request, ())
        book, row = _find(request, book_id, file_id)
        return content_answer(request, row, book)


class BookFilePlotView(APIView):
    """The picture of a file's report."""

    @extend_schema(
        operation_id="get_book_file_plot",
        parameters=CONDITIONAL_PARAMETERS,
        responses={
            (200, SVG): OpenApiTypes.STR,
            **UNCHANGED,
            **problems(400, 401, 404, 409),
        },
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
    try:
        return object_response(request._request, stored)
    except ObjectMissingError as error:
        raise ApiProblem(
            410, "audio_gone", "The file is no longer stored; make it again by a POST to `files`."
        ) from error


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
