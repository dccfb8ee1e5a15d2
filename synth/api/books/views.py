"""Serve books over REST: upload, progress, start, pause, proof, and the file."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.files.uploadhandler import MemoryFileUploadHandler, TemporaryFileUploadHandler
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_books
from synth.accounts.authentication import key_of
from synth.api.books.filters import BookFilterSerializer
from synth.api.books.options import BookFormSerializer, StartSerializer
from synth.api.books.plan_answers import plan_answer
from synth.api.books.plan_serializers import PlanPatchSerializer, PlanSerializer
from synth.api.books.serializers import BookSerializer, ProofSerializer, with_progress
from synth.api.books.upload_limit import BookLimitHandler
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, digest_of_body, read_idempotency_key
from synth.book_batches.joining import read_upload
from synth.books.plan import Plan
from synth.bookshelf.changing import edit_plan, read_plan
from synth.bookshelf.metadata import BookPatchSerializer
from synth.bookshelf.proof import proof_of
from synth.bookshelf.start import start_book
from synth.bookshelf.uploads import delete_book, made_before, upload_book
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.retry import RetryRefusedError, retry
from synth.models import ApiKey, BookSource, RenderJob
from synth.transitions import UNFINISHED, cancel_job, pause_job, resume_job
from synth.transitions.book_facts import change_metadata
from ttsweb.http.api import ApiProblem, NoFieldsSerializer, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.query_filters import check_list_query, read_condition
from ttsweb.http.schema import problems

POLL_SECONDS = 2
_ACCEPTED_HEADERS = [
    OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[200, 202]),
    OpenApiParameter("Retry-After", int, OpenApiParameter.HEADER, response=[202]),
]


class BooksView(generics.ListAPIView[BookSource]):
    """All books of the user."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BookSerializer
    parser_classes = (MultiPartParser,)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Take files as large as a book may be; elsewhere they are clips, which are smaller."""
        request.upload_handlers = [
            BookLimitHandler(request),
            MemoryFileUploadHandler(request),
            TemporaryFileUploadHandler(request),
        ]
        return super().initialize_request(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[BookSource]:
        """Return the books that the query's filters let through, with their jobs."""
        if getattr(self, "swagger_fake_view", False):
            return BookSource.objects.none()
        condition = read_condition(self.request, BookFilterSerializer)
        return _shown(visible_books(self.request.user).filter(condition))

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return a page of books and how far they are."""
        return with_progress(super().paginate_queryset(queryset) or [])

    @extend_schema(
        operation_id="list_books",
        parameters=[BookFilterSerializer],
        responses={200: BookSerializer(many=True), **problems(400, 401)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List books, newest first."""
        check_list_query(request, BookFilterSerializer)
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_book",
        request={"multipart/form-data": BookFormSerializer},
        parameters=[IDEMPOTENCY_PARAMETER, *_ACCEPTED_HEADERS],
        responses={
            200: BookSerializer,
            202: BookSerializer,
            **problems(400, 401, 404, 409, 413, 415, 422),
        },
    )
    def post(self, request: Request) -> Response:
        """Upload a book, which a worker then reads and plans; send `start` to render it at once.

        The same Idempotency-Key and body return the book that was made first.
        """
        check_query(request, ())
        key = read_idempotency_key(request)
        with rejections_as_problems():
            digest = digest_of_body(request.data) if key else ""
            # Before the entry of a batch is looked at, which by then has its file.
            known = made_before(request.user, key, digest)  # type: ignore[arg-type]  # never anonymous
            if known is not None:
                return book_answer(find_book(request, known.pk), status=200)
            asked, on_saved = read_upload(request)
            book, is_new = upload_book(
                asked,
                owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
                api_key=key_of(request),
                idempotency_key=key,
                body_digest=digest,
                on_saved=on_saved,
            )
        return book_answer(find_book(request, book.pk), status=202 if is_new else 200)


class BookView(APIView):
    """One book."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_book",
        parameters=CONDITIONAL_PARAMETERS,
        responses={200: BookSerializer, **UNCHANGED, **problems(400, 401, 404)},
    )
    def get(self, request: Request, book_id: uuid.UUID) -> Response:
        """Return a book and its progress."""
        check_query(request, ())
        book = find_book(request, book_id)
        answer = Response(BookSerializer(book).data)
        if _is_at_work(book):
            answer["Retry-After"] = str(POLL_SECONDS)
        return conditional(request, answer)

    @extend_schema(
        operation_id="change_book",
        request=BookPatchSerializer,
        responses={200: BookSerializer, **problems(400, 401, 404)},
    )
    def patch(self, request: Request, book_id: uuid.UUID) -> Response:
        """Change a book's title, authors and other metadata.

        Files that are made after this have them.
        """
        check_query(request, ())
        book = find_book(request, book_id)
        serializer = BookPatchSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        change_metadata(book.pk, serializer.validated_data["metadata"])
        return Response(BookSerializer(find_book(request, book_id)).data)

    @extend_schema(operation_id="delete_book", responses={204: None, **problems(400, 401, 404)})
    def delete(self, request: Request, book_id: uuid.UUID) -> Response:
        """Delete a book in any state, with its job and all files."""
        check_query(request, ())
        delete_book(find_book(request, book_id))
        return Response(status=204)


class BookPlanView(APIView):
    """The plan of a book."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_book_plan",
        responses={200: PlanSerializer, **problems(400, 401, 404, 409, 410)},
    )
    def get(self, request: Request, book_id: uuid.UUID) -> Response:
        """Return what will be spoken of a book, and what is skipped and why."""
        check_query(request, ())
        book = find_book(request, book_id)
        with rejections_as_problems():
            return _plan_answer(book, read_plan(book))

    @extend_schema(
        operation_id="change_book_plan",
        request=PlanPatchSerializer,
        responses={200: PlanSerializer, **problems(400, 401, 404, 409, 410)},
    )
    def patch(self, request: Request, book_id: uuid.UUID) -> Response:
        """Change the plan of a book that was not started; all edits are applied or none."""
        check_query(request, ())
        serializer = PlanPatchSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        book = find_book(request, book_id)
        with rejections_as_problems():
            plan = edit_plan(book, **serializer.validated_data, user=request.user)  # type: ignore[arg-type]  # never anonymous
        return _plan_answer(find_book(request, book_id), plan)


class BookStartView(APIView):
    """The start of a book."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="start_book",
        request=StartSerializer,
        parameters=_ACCEPTED_HEADERS,
        responses={202: BookSerializer, **problems(400, 401, 404, 409, 410, 413, 429)},
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Render a planned book as its plan says; takes that exist already are reused."""
        check_query(request, ())
        serializer = StartSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        book = find_book(request, book_id)
        with rejections_as_problems():
            start_book(book, voice=serializer.validated_data.get("voice"), api_key=key_of(request))
        return book_answer(find_book(request, book_id))


class _BookActionView(APIView):
    """What can be done with a book's job, without a word more."""

    write_scopes = (ApiKey.Scope.JOBS,)

    def job_of(self, request: Request, book_id: uuid.UUID) -> RenderJob:
        """Return the job of a book.

        Raises:
            ApiProblem: 404 book_not_found, 409 book_not_started.
        """
        check_query(request, ())
        NoFieldsSerializer(data=request.data).is_valid(raise_exception=True)
        return started_job(find_book(request, book_id))


class BookPauseView(_BookActionView):
    """The pausing of a book."""

    @extend_schema(
        operation_id="pause_book",
        request=None,
        responses={200: BookSerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Pause a book; a book that has ended or is paused already is not changed."""
        pause_job(self.job_of(request, book_id).pk)
        return Response(BookSerializer(find_book(request, book_id)).data)


class BookResumeView(_BookActionView):
    """The resuming of a book."""

    @extend_schema(
        operation_id="resume_book",
        request=None,
        responses={200: BookSerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Resume a paused book; any other book is not changed."""
        resume_job(self.job_of(request, book_id).pk)
        return Response(BookSerializer(find_book(request, book_id)).data)


class BookCancelView(_BookActionView):
    """The cancelling of a book."""

    @extend_schema(
        operation_id="cancel_book",
        request=None,
        responses={200: BookSerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Cancel a book's job; rendered audio is kept for a retry."""
        cancel_job(self.job_of(request, book_id).pk)
        return Response(BookSerializer(find_book(request, book_id)).data)


class BookRetryView(_BookActionView):
    """The retrying of a book."""

    @extend_schema(
        operation_id="retry_book",
        request=None,
        parameters=_ACCEPTED_HEADERS,
        responses={202: BookSerializer, **problems(400, 401, 404, 409, 429)},
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Queue failed and cancelled segments again; finished segments are kept."""
        job = self.job_of(request, book_id)
        try:
            retry(job, api_key=key_of(request))
        except RetryRefusedError as error:
            raise ApiProblem(409, error.code, str(error)) from error
        return book_answer(find_book(request, book_id))


class BookProofView(APIView):
    """The proof that a book is whole."""

    @extend_schema(
        operation_id="get_book_proof",
        responses={200: ProofSerializer, **problems(400, 401, 404, 409)},
    )
    def get(self, request: Request, book_id: uuid.UUID) -> Response:
        """Return how many characters of each chapter were spoken, skipped or failed."""
        check_query(request, ())
        book = find_book(request, book_id)
        started_job(book)
        return Response(proof_of(book))


def find_book(request: Request, book_id: uuid.UUID) -> BookSource:
    """Return a book that this user may see, and how far it is, or raise the 404."""
    book = _shown(visible_books(request.user)).filter(pk=book_id).first()
    if book is None:
        raise ApiProblem(404, "book_not_found", "No book that you may see has this id.")
    return with_progress([book])[0]


def started_job(book: BookSource) -> RenderJob:
    """Return the job of a book.

    Raises:
        ApiProblem: 409 book_not_started.
    """
    if book.job is None:
        raise ApiProblem(409, "book_not_started", "The book was not started yet; start it first.")
    return book.job


@contextmanager
def rejections_as_problems() -> Iterator[None]:
    """Answer what is not taken with its status, code and sentence."""
    try:
        yield
    except SubmitRejectedError as error:
        raise ApiProblem(
            error.status, error.code, str(error), attr=error.attr, retry_after=error.retry_after
        ) from error


def _shown(books: QuerySet[BookSource]) -> QuerySet[BookSource]:
    return books.select_related("job", "owner", "api_key").prefetch_related(
        "job__voices__version__voice"
    )


def _is_at_work(book: BookSource) -> bool:
    if book.job is None:
        return book.state == BookSource.State.IMPORTING
    return book.job.status in UNFINISHED


def book_answer(book: BookSource, *, status: int | None = None) -> Response:
    """Return a book; without a status as work that goes on (202), or else (200)."""
    is_open = status == 202 or _is_at_work(book)
    answer = Response(BookSerializer(book).data, status=status or (202 if is_open else 200))
    answer["Location"] = reverse("book", args=[book.pk])
    if is_open:
        answer["Retry-After"] = str(POLL_SECONDS)
    return answer


def _plan_answer(book: BookSource, plan: Plan) -> Response:
    return Response(PlanSerializer(plan_answer(book, plan)).data)
