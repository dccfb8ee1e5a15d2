"""Serve books over REST: upload, progress, start, pause, proof, and the file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.core.files.uploadhandler import MemoryFileUploadHandler, TemporaryFileUploadHandler
from django.db.models import QuerySet
from django.http import HttpRequest
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_books
from synth.api.accounts.authentication import key_of
from synth.api.books.filters import BookFilterSerializer
from synth.api.books.metadata_fields import BookPatchSerializer
from synth.api.books.options import (
    BookFormSerializer,
    BookLimitHandler,
    BookPausesSerializer,
    BookPrioritySerializer,
    StartSerializer,
)
from synth.api.books.plan_serializers import PlanPatchSerializer, PlanSerializer, plan_answer
from synth.api.books.serializers import BookSerializer, ProofSerializer, with_progress
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, digest_of_body, read_idempotency_key
from synth.audiobooks.changes import edit_plan, read_plan, set_pauses, set_priority
from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.audiobooks.uploads import delete_book, upload_book
from synth.batches import actions as acting
from synth.batches.uploads import read_upload
from synth.books.plan import Plan
from synth.jobs.idempotency import find_made
from synth.jobs.retry import retry
from synth.models import ApiKey, BatchEntry, BookSource, RenderJob
from synth.transitions import UNFINISHED, cancel_job, pause_job, resume_job
from synth.transitions.books import change_metadata
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.nouns import Act, ListView, Noun, accepted_headers, list_rows, read_body
from ttsweb.http.schema import problems


class BooksView(ListView[BookSource]):
    """All books of the user."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BookSerializer
    filters = BookFilterSerializer
    parser_classes = (MultiPartParser,)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Take files as large as a book may be; elsewhere they are clips, which are smaller."""
        request.upload_handlers = [
            BookLimitHandler(request),
            MemoryFileUploadHandler(request),
            TemporaryFileUploadHandler(request),
        ]
        return super().initialize_request(request, *args, **kwargs)

    def rows(self) -> QuerySet[BookSource]:
        """Return the books with their jobs."""
        return _shown(visible_books(self.request.user))

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return a page of books and how far they are."""
        return with_progress(super().paginate_queryset(queryset) or [])

    get = list_rows(
        "list_books", "List books, newest first.", BookSerializer, filters=BookFilterSerializer
    )

    @extend_schema(
        operation_id="create_book",
        request={"multipart/form-data": BookFormSerializer},
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200)],
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
        digest = digest_of_body(request.data) if key else ""
        # Before the entry of a batch is looked at, which by then has its file.
        known = find_made(BookSource.objects.all(), owner=request.user, key=key, digest=digest)
        if known is not None:
            return BOOK.answer(request, known.pk, status=200)
        asked, on_saved = read_upload(request)
        book, is_new = upload_book(
            asked,
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            api_key=key_of(request),
            idempotency_key=key,
            body_digest=digest,
            on_saved=on_saved,
        )
        return BOOK.answer(request, book.pk, status=202 if is_new else 200)


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
        return _plan_answer(book, read_plan(book))

    @extend_schema(
        operation_id="change_book_plan",
        request=PlanPatchSerializer,
        responses={200: PlanSerializer, **problems(400, 401, 404, 409, 410)},
    )
    def patch(self, request: Request, book_id: uuid.UUID) -> Response:
        """Change the plan of a book that was not started; all edits are applied or none."""
        edits = read_body(request, PlanPatchSerializer)
        book = find_book(request, book_id)
        plan = edit_plan(book, **edits, user=request.user)  # type: ignore[arg-type]  # never anonymous
        return _plan_answer(find_book(request, book_id), plan)


class BookPausesView(APIView):
    """The pauses of a book."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="change_book_pauses",
        request=BookPausesSerializer,
        responses={200: BookSerializer, 202: BookSerializer, **problems(400, 401, 404, 409)},
    )
    def patch(self, request: Request, book_id: uuid.UUID) -> Response:
        """Change the pauses of a book.

        A finished book's file is made again, and nothing is rendered again.
        """
        book = find_book(request, book_id)
        set_pauses(book, read_body(request, BookPausesSerializer))
        return BOOK.answer(request, book_id)


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


def _shown(books: QuerySet[BookSource]) -> QuerySet[BookSource]:
    return books.select_related("job", "owner", "api_key").prefetch_related(
        "job__voices__version__voice"
    )


def _is_at_work(book: BookSource) -> bool:
    if book.job is None:
        return book.state == BookSource.State.IMPORTING
    return book.job.status in UNFINISHED


def _plan_answer(book: BookSource, plan: Plan) -> Response:
    return Response(PlanSerializer(plan_answer(book, plan)).data)


def _approve(request: Request, book: BookSource, _: Mapping[str, Any]) -> None:
    entry = BatchEntry.objects.select_related("batch").filter(book=book).first()
    if entry is None:
        raise ApiProblem(409, "book_not_in_batch", "The book does not belong to a batch of books.")
    acting.approve(entry.batch, [book.pk])


BOOK = Noun("book", BookSerializer, find_book, _is_at_work)


def _with_job(act: Callable[[RenderJob], object]) -> Act:
    """Return what does something with the job of a book."""
    return lambda request, book, _: act(started_job(book))


BOOK_ACTIONS = {
    "start": BOOK.action(
        "start_book",
        "Render a planned book as its plan says; takes that exist already are reused.",
        lambda request, book, asked: start_book(
            book, voice=asked.get("voice"), api_key=key_of(request)
        ),
        *(409, 410, 413, 429),
        body=StartSerializer,
        is_accepted=True,
    ),
    "pause": BOOK.action(
        "pause_book",
        "Pause a book; a book that has ended or is paused already is not changed.",
        _with_job(lambda job: pause_job(job.pk)),
        409,
    ),
    "resume": BOOK.action(
        "resume_book",
        "Resume a paused book; any other book is not changed.",
        _with_job(lambda job: resume_job(job.pk)),
        409,
    ),
    "cancel": BOOK.action(
        "cancel_book",
        "Cancel a book's job; rendered audio is kept for a retry.",
        _with_job(lambda job: cancel_job(job.pk)),
        409,
    ),
    "retry": BOOK.action(
        "retry_book",
        "Queue failed and cancelled segments again; finished segments are kept.",
        lambda request, book, _: retry(started_job(book), api_key=key_of(request)),
        *(409, 429),
        is_accepted=True,
    ),
    "priority": BOOK.action(
        "prioritise_book",
        "Change the priority of a book that has not ended.",
        lambda request, book, asked: set_priority(book, asked["priority"]),
        409,
        body=BookPrioritySerializer,
    ),
    "approve": BOOK.action(
        "approve_book",
        "Approve the sample of a book, so that the rest of the book is rendered.",
        _approve,
        409,
    ),
}


class BookView(APIView):
    """One book."""

    write_scopes = (ApiKey.Scope.JOBS,)

    get = BOOK.getter("get_book", "Return a book and its progress.", is_conditional=True)
    patch = BOOK.changer(
        "change_book",
        "Change a book's title, authors and other metadata.\n\nFiles that are made after this have "
        "them.",
        lambda request, book, asked: change_metadata(book.pk, asked["metadata"]),
        BookPatchSerializer,
        is_partial=False,
    )
    delete = BOOK.deleter(
        "delete_book", "Delete a book in any state, with its job and all files.", delete_book
    )
