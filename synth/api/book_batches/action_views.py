"""Serve what can be done with batches of books, and the samples of their books."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.authentication import key_of
from synth.api.book_batches.requests import ApproveBooksSerializer, PrioritySerializer
from synth.api.book_batches.serializers import BookBatchSerializer
from synth.api.book_batches.views import ACCEPTED_HEADERS, POLL_SECONDS, answer, find_batch
from synth.api.books.serializers import BookSerializer
from synth.api.books.views import find_book, rejections_as_problems
from synth.api.jobs.serializers import has_audio
from synth.book_batches import acting
from synth.formats import FORMATS
from synth.jobs.retry import RetryRefusedError
from synth.models import ApiKey, BookBatchEntry, Export, RenderJob
from synth.transitions import UNFINISHED
from synth.transitions.book_batches import close_batch
from ttsweb.http.api import ApiProblem, NoFieldsSerializer, check_query
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response
from ttsweb.http.schema import problems

_ANSWERS: dict[Any, Any] = {200: BookBatchSerializer, **problems(400, 401, 404)}


class _ActionView(APIView):
    """What can be done with a batch."""

    write_scopes = (ApiKey.Scope.JOBS,)

    def told(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Return the batch as it is now."""
        return Response(BookBatchSerializer(find_batch(request, batch_id)).data)


class BookBatchCloseView(_ActionView):
    """The closing of a batch."""

    @extend_schema(operation_id="close_book_batch", request=None, responses=_ANSWERS)
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Close a batch, so that it takes no more entries and files.

        It ends when all its books have ended.
        """
        _check_no_fields(request)
        close_batch(find_batch(request, batch_id).pk)
        return self.told(request, batch_id)


class BookBatchPauseView(_ActionView):
    """The pausing of a batch."""

    @extend_schema(operation_id="pause_book_batch", request=None, responses=_ANSWERS)
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Pause a batch; a batch that has ended or is paused already is not changed."""
        _check_no_fields(request)
        acting.pause(find_batch(request, batch_id))
        return self.told(request, batch_id)


class BookBatchResumeView(_ActionView):
    """The resuming of a batch."""

    @extend_schema(operation_id="resume_book_batch", request=None, responses=_ANSWERS)
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Resume a paused batch; books that were paused on their own stay paused."""
        _check_no_fields(request)
        acting.resume(find_batch(request, batch_id))
        return self.told(request, batch_id)


class BookBatchCancelView(_ActionView):
    """The cancelling of a batch."""

    @extend_schema(operation_id="cancel_book_batch", request=None, responses=_ANSWERS)
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Cancel the unfinished books of a batch; rendered audio is kept for a retry."""
        _check_no_fields(request)
        acting.cancel(find_batch(request, batch_id))
        return self.told(request, batch_id)


class BookBatchRetryView(_ActionView):
    """The retrying of a batch."""

    @extend_schema(
        operation_id="retry_book_batch",
        request=None,
        parameters=ACCEPTED_HEADERS,
        responses={202: BookBatchSerializer, **problems(400, 401, 404, 409, 429)},
    )
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Queue failed and cancelled books again; a batch that had ended runs again."""
        _check_no_fields(request)
        try:
            acting.retry_batch(find_batch(request, batch_id), api_key=key_of(request))
        except RetryRefusedError as error:
            raise ApiProblem(409, error.code, str(error)) from error
        return answer(find_batch(request, batch_id))


class BookBatchApproveView(_ActionView):
    """The approval of samples."""

    @extend_schema(
        operation_id="approve_book_batch",
        request=ApproveBooksSerializer,
        responses={200: BookBatchSerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Approve samples, so that the rest of their books is rendered."""
        check_query(request, ())
        batch = find_batch(request, batch_id)
        serializer = ApproveBooksSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        with rejections_as_problems():
            acting.approve(batch, serializer.validated_data.get("books"))
        return self.told(request, batch_id)


class BookBatchPriorityView(_ActionView):
    """The priority of a batch."""

    @extend_schema(
        operation_id="prioritise_book_batch",
        request=PrioritySerializer,
        responses=_ANSWERS,
    )
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Change the priority of a batch and of its unfinished books."""
        check_query(request, ())
        batch = find_batch(request, batch_id)
        serializer = PrioritySerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        acting.reprioritise(batch, serializer.validated_data["priority"])
        return self.told(request, batch_id)


class BookApproveView(APIView):
    """The approval of one book's sample."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="approve_book",
        request=None,
        responses={200: BookSerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Approve the sample of a book, so that the rest of the book is rendered."""
        _check_no_fields(request)
        book = find_book(request, book_id)
        entry = BookBatchEntry.objects.select_related("batch").filter(book=book).first()
        if entry is None:
            raise ApiProblem(
                409, "book_not_in_batch", "The book does not belong to a batch of books."
            )
        with rejections_as_problems():
            acting.approve(entry.batch, [book.pk])
        return Response(BookSerializer(find_book(request, book_id)).data)


class BookSampleView(APIView):
    """The sample of a book."""

    @extend_schema(
        operation_id="get_book_sample",
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses={
            (200, "audio/*"): OpenApiTypes.BINARY,
            (206, "audio/*"): OpenApiTypes.BINARY,
            **problems(400, 401, 404, 409, 410, 416),
        },
    )
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the audio of the book's sample, its first rendered chapter, or a byte range."""
        check_query(request, ())
        book = find_book(request, book_id)
        job = book.sample_job
        if job is None:
            raise ApiProblem(404, "book_without_sample", "This book has no sample.")
        export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
        if not has_audio(job) or export is None:
            raise _why_no_sample(job)
        stored = StoredObject(
            key=export.key,
            content_type=FORMATS[export.format].content_type,
            filename=f"sample-{str(book.pk)[:8]}.{FORMATS[export.format].extension}",
            etag=export.sha256,
        )
        try:
            return object_response(request._request, stored)
        except ObjectMissingError as error:
            raise ApiProblem(
                410,
                "audio_gone",
                "The sample is no longer stored; its chapter is rendered again with the book.",
            ) from error


def _why_no_sample(job: RenderJob) -> ApiProblem:
    if job.status in UNFINISHED:
        return ApiProblem(
            409,
            "sample_not_ready",
            "The sample is not finished yet; ask again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
        )
    reason = f": {job.error_message}" if job.error_message else "."
    return ApiProblem(404, "book_without_sample", f"The sample is {job.status}{reason}")


def _check_no_fields(request: Request) -> None:
    check_query(request, ())
    NoFieldsSerializer(data=request.data).is_valid(raise_exception=True)
