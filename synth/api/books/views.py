"""Serve books over REST: upload, progress, start, pause, proof, and the file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_books
from synth.api.authentication import key_of
from synth.api.batches.books import read_upload
from synth.api.books import options
from synth.api.books.fields import BookPatchSerializer, MetadataSerializer
from synth.api.books.serializers import (
    BookFilterSerializer,
    BookSerializer,
    ProofSerializer,
)
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, read_idempotency_key, sender_of
from synth.audiobooks.changes import delete_book, set_pauses, set_priority, upload_book
from synth.audiobooks.plans import METADATA_FIELDS, metadata_of_file
from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import book_gone, start_book
from synth.batches import turns as acting
from synth.books.book import StoredBookError
from synth.jobs.retry import retry
from synth.jobs.submit import find_made
from synth.models import ApiKey, BatchEntry, BookSource, RenderJob
from synth.transitions.files import change_metadata, pause_job, resume_job
from synth.transitions.jobs import UNFINISHED, cancel_job
from ttsweb.http.api import ApiProblem
from ttsweb.http.nouns import Act, ListView, Noun, accepted_headers, get_row, operation, read_body


class BooksView(options.BookFilesMixin, ListView[BookSource]):
    write_scopes = (ApiKey.Scope.JOBS,)
    lists = ("list_books", "List books, newest first.")
    serializer_class = BookSerializer
    filters = BookFilterSerializer
    parser_classes = (MultiPartParser,)

    def rows(self) -> QuerySet[BookSource]:
        return _shown(visible_books(self.request.user))

    @operation(
        "create_book",
        {200: BookSerializer, 202: BookSerializer},
        *(404, 409, 413, 415, 422),
        request={"multipart/form-data": options.BookFormSerializer},
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200)],
    )
    def post(self, request: Request) -> Response:
        """Upload a book, which a worker then reads and plans; send `start` to render it at once.

        The same Idempotency-Key and body return the book that was made first.
        """
        sender = sender_of(request, read_idempotency_key(request))
        # Before the entry of a batch is looked at, which by then has its file.
        known = find_made(BookSource.objects.all(), sender)
        if known is not None:
            return BOOK.answer(request, known.pk, status=200)
        asked, on_saved = read_upload(request)
        book, is_new = upload_book(asked, sender, on_saved=on_saved)
        return BOOK.answer(request, book.pk, status=202 if is_new else 200)


class BookPausesView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation(
        "change_book_pauses",
        {200: BookSerializer, 202: BookSerializer},
        *(404, 409),
        request=options.BookPausesSerializer,
    )
    def patch(self, request: Request, book_id: uuid.UUID) -> Response:
        """Change the pauses of a book.

        A finished book's file is made again, and nothing is rendered again.
        """
        book = find_book(request, book_id)
        set_pauses(book, read_body(request, options.BookPausesSerializer))
        return BOOK.answer(request, book_id)


class BookMetadataSerializer(serializers.Serializer[Any]):
    """The metadata of a book."""

    file = MetadataSerializer(help_text="From the book's file.")
    set = MetadataSerializer(help_text="Set by users; these values replace those of the file.")
    shown = MetadataSerializer(help_text="The values that tags and file names use.")


class BookMetadataView(APIView):
    @operation("get_book_metadata", BookMetadataSerializer, 404, 410)
    def get(self, request: Request, book_id: uuid.UUID) -> Response:
        """Return a book's metadata: from its file, set by users, and the values in use."""
        book = find_book(request, book_id)
        try:
            of_file = metadata_of_file(book)
        except (FileNotFoundError, StoredBookError) as error:
            raise book_gone() from error
        said = {name: book.metadata[name] for name in METADATA_FIELDS if name in book.metadata}
        return Response({"file": of_file, "set": said, "shown": {**of_file, **said}})


class BookProofView(APIView):
    @operation("get_book_proof", ProofSerializer, 404, 409)
    def get(self, request: Request, book_id: uuid.UUID) -> Response:
        """Return how many characters of each chapter were spoken, skipped or failed."""
        book = find_book(request, book_id)
        started_job(book)
        return Response(proof_of(book))


def find_book(request: Request, book_id: uuid.UUID) -> BookSource:
    books = _shown(visible_books(request.user))
    return get_row(books, "book_not_found", "No book that you may see has this id.", pk=book_id)


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
        body=options.StartSerializer,
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
        body=options.BookPrioritySerializer,
    ),
    "approve": BOOK.action(
        "approve_book",
        "Approve the sample of a book, so that the rest of the book is rendered.",
        _approve,
        409,
    ),
}


class BookView(APIView):
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
