"""Serve batches of books over REST."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.files.uploadhandler import MemoryFileUploadHandler, TemporaryFileUploadHandler
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_batches
from synth.api.accounts.authentication import key_of
from synth.api.batches.finding import find_batch
from synth.api.book_batches.reading import Asked, read_more_entries, read_new_batch
from synth.api.book_batches.requests import (
    ApproveBooksSerializer,
    BookBatchCreateSerializer,
    BookBatchFormSerializer,
    EntriesCreateSerializer,
    EntriesFormSerializer,
    PrioritySerializer,
)
from synth.api.book_batches.serializers import (
    BookBatchEntrySerializer,
    BookBatchSerializer,
    ReportSerializer,
    with_entry_figures,
)
from synth.api.books.options import BookLimitHandler
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, read_idempotency_key
from synth.batches import actions as acting
from synth.batches.books import add_entries, digest_of, make_batch
from synth.batches.figures import with_figures
from synth.batches.states import STATES, with_state
from synth.batches.uploads import find_entry, upload_to_entry
from synth.jobs.rejections import SubmitRejectedError
from synth.models import ApiKey, Batch, BatchEntry
from synth.transitions.book_batches import close_batch
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED
from ttsweb.http.nouns import Noun, WaitSerializer, accepted_headers
from ttsweb.http.pagination import IndexCursorPagination
from ttsweb.http.parsers import BoundedJSONParser
from ttsweb.http.query_filters import (
    PAGE_PARAMETERS,
    DescribedField,
    check_list_query,
    read_choices,
    read_condition,
    some_of,
)
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS


class EntryFilterSerializer(serializers.Serializer[Any]):
    """The filters of a batch's entries, as a condition."""

    state = DescribedField(
        schema=some_of(STATES), required=False, help_text="One or more states, separated by commas."
    )

    def validate_state(self, value: str) -> Q:
        """Return the condition for states."""
        return Q(state__in=read_choices(value, list(STATES)))


class _FilesMixin:
    """Take files as large as a book may be."""

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Return the request with the handlers that count a book's bytes."""
        request.upload_handlers = [
            BookLimitHandler(request),
            MemoryFileUploadHandler(request),
            TemporaryFileUploadHandler(request),
        ]
        found: Request = super().initialize_request(request, *args, **kwargs)  # type: ignore[misc]  # APIView's
        return found


class BookBatchesView(_FilesMixin, generics.ListAPIView[Batch]):
    """All batches of books of the user."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BookBatchSerializer
    parser_classes = (BoundedJSONParser, MultiPartParser)

    def get_queryset(self) -> QuerySet[Batch]:
        """Return the batches."""
        if getattr(self, "swagger_fake_view", False):
            return Batch.objects.none()
        batches = visible_batches(self.request.user, Batch.Kind.BOOKS)
        return batches.select_related("owner", "api_key")

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return a page of batches with their figures."""
        return with_figures(super().paginate_queryset(queryset) or [])

    @extend_schema(
        operation_id="list_book_batches",
        responses={200: BookBatchSerializer(many=True), **problems(400, 401)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List batches of books, newest first."""
        check_query(request, PAGE_PARAMETERS)
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_book_batch",
        request={
            "application/json": BookBatchCreateSerializer,
            "multipart/form-data": BookBatchFormSerializer,
        },
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200, 201)],
        responses={
            202: BookBatchSerializer,
            200: BookBatchSerializer,
            **problems(400, 401, 404, 409, 413, 415, 422),
        },
    )
    def post(self, request: Request) -> Response:
        """Create a batch of books from a manifest; send files with it, or each by `POST /books`.

        The same Idempotency-Key and body return the batch that was made first, and add the
        files that it lacks.
        """
        check_query(request, ())
        key = read_idempotency_key(request)
        asked = read_new_batch(request)
        batch, is_new = make_batch(
            asked.attrs,
            asked.entries,
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            api_key=key_of(request),
            idempotency_key=key,
            body_digest=digest_of(asked.attrs, asked.entries, asked.file_names) if key else "",
            files=asked.file_names,
        )
        is_new |= _take_files(request, batch, asked)
        if asked.attrs["closed"]:
            close_batch(batch.pk)
        return BOOK_BATCH.answer(request, batch.pk, status=202 if is_new else 200)


class BookBatchView(APIView):
    """One batch of books."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_book_batch",
        parameters=[WaitSerializer, *CONDITIONAL_PARAMETERS],
        responses={200: BookBatchSerializer, **UNCHANGED, **problems(400, 401, 404)},
    )
    def get(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Return a batch.

        With `wait`, the answer comes when the batch has ended or the wait is over.
        """
        return BOOK_BATCH.poll(request, batch_id)

    @extend_schema(
        operation_id="delete_book_batch", responses={204: None, **problems(400, 401, 404)}
    )
    def delete(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Delete a batch in any state, with its books, their jobs and all files."""
        check_query(request, ())
        acting.delete(_find(request, batch_id))
        return Response(status=204)


class BookBatchEntriesView(generics.ListAPIView[BatchEntry]):
    """The entries of a batch of books."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BookBatchEntrySerializer
    pagination_class = IndexCursorPagination
    parser_classes = (BoundedJSONParser, MultiPartParser)

    def get_queryset(self) -> QuerySet[BatchEntry]:
        """Return the entries that the query's filters let through."""
        if getattr(self, "swagger_fake_view", False):
            return BatchEntry.objects.none()
        batch = _find(self.request, self.kwargs["batch_id"])
        condition = read_condition(self.request, EntryFilterSerializer)
        entries = with_state(BatchEntry.objects.filter(batch=batch)).filter(condition)
        return entries.select_related("book__job", "book__sample_job")

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return a page of entries and how far they are."""
        return with_entry_figures(super().paginate_queryset(queryset) or [])

    @extend_schema(
        operation_id="list_book_batch_entries",
        parameters=[EntryFilterSerializer],
        responses={200: BookBatchEntrySerializer(many=True), **problems(400, 401, 404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the entries in their order, each with its sample and the progress of its book."""
        check_list_query(request, EntryFilterSerializer)
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="add_book_batch_entries",
        request={
            "application/json": EntriesCreateSerializer,
            "multipart/form-data": EntriesFormSerializer,
        },
        responses={200: BookBatchSerializer, **problems(400, 401, 404, 409, 413, 415)},
    )
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Add entries to an open batch. With `reject`, all are added or none."""
        check_query(request, ())
        batch = _find(request, batch_id)
        asked = read_more_entries(request)
        add_entries(
            batch,
            asked.entries,
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            on_error=asked.attrs["on_error"],
        )
        return BOOK_BATCH.shown(request, batch_id)


class BookBatchReportView(APIView):
    """The summary of a batch of books."""

    @extend_schema(
        operation_id="get_book_batch_report",
        responses={200: ReportSerializer, **problems(400, 401, 404, 409)},
    )
    def get(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Return the report of a batch that has ended, book by book."""
        check_query(request, ())
        batch = _find(request, batch_id)
        if batch.ended_at is None:
            raise ApiProblem(
                409,
                "book_batch_not_ended",
                "The batch has not ended yet; GET its `entries` for the progress of each book.",
                retry_after=POLL_SECONDS,
            )
        return Response(ReportSerializer(batch.report).data)


def _find(request: Request, batch_id: uuid.UUID) -> Batch:
    """Return a batch that this user may see, with its figures, or raise the 404."""
    return with_figures([find_batch(request, batch_id, Batch.Kind.BOOKS)])[0]


def _take_files(request: Request, batch: Batch, asked: Asked) -> bool:
    """Upload the files that came with a batch but those that are there; say if there were some."""
    took_some = False
    for file in asked.files:
        try:
            entry = find_entry(batch, file.name or "")
        except SubmitRejectedError as error:
            if error.code == "entry_has_file":
                continue  # a request that was broken off is sent again
            raise error.at("files") from error
        upload_to_entry(
            entry,
            file,
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            api_key=key_of(request),
        )
        took_some = True
    return took_some


BOOK_BATCH = Noun("book-batch", BookBatchSerializer, _find, lambda batch: batch.ended_at is None)
BOOK_BATCH_ACTIONS = {
    "close": BOOK_BATCH.action(
        "close_book_batch",
        "Close a batch, so that it takes no more entries and files.\n\n"
        "It ends when all its books have ended.",
        lambda request, batch, _: close_batch(batch.pk),
    ),
    "pause": BOOK_BATCH.action(
        "pause_book_batch",
        "Pause a batch; a batch that has ended or is paused already is not changed.",
        lambda request, batch, _: acting.pause(batch),
    ),
    "resume": BOOK_BATCH.action(
        "resume_book_batch",
        "Resume a paused batch; books that were paused on their own stay paused.",
        lambda request, batch, _: acting.resume(batch),
    ),
    "cancel": BOOK_BATCH.action(
        "cancel_book_batch",
        "Cancel the unfinished books of a batch; rendered audio is kept for a retry.",
        lambda request, batch, _: acting.cancel(batch),
    ),
    "retry": BOOK_BATCH.action(
        "retry_book_batch",
        "Queue failed and cancelled books again; a batch that had ended runs again.",
        lambda request, batch, _: acting.retry(batch, api_key=key_of(request)),
        *(409, 429),
        is_accepted=True,
    ),
    "approve": BOOK_BATCH.action(
        "approve_book_batch",
        "Approve samples, so that the rest of their books is rendered.",
        lambda request, batch, asked: acting.approve(batch, asked.get("books")),
        409,
        body=ApproveBooksSerializer,
    ),
    "priority": BOOK_BATCH.action(
        "prioritise_book_batch",
        "Change the priority of a batch and of its unfinished books.",
        lambda request, batch, asked: acting.reprioritise(batch, asked["priority"]),
        body=PrioritySerializer,
    ),
}
