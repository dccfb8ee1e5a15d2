"""Serve batches of texts and of books over REST."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_batches, visible_jobs, with_voices
from synth.api.authentication import key_of
from synth.api.batches.books import add_entries, digest_of, make_batch, upload_to_batch
from synth.api.batches.entries import entries_rejected
from synth.api.batches.requests import (
    ONLY_OF_LINES,
    SKIP,
    ApproveBooksSerializer,
    BatchCreateSerializer,
    BatchDefaultsSerializer,
    BatchFormSerializer,
    BatchOptionsSerializer,
    BookBatchCreateSerializer,
    BookBatchFormSerializer,
    EntriesCreateSerializer,
    EntriesFormSerializer,
    PrioritySerializer,
)
from synth.api.batches.serializers import (
    BatchItemSerializer,
    BatchSerializer,
    BookBatchEntrySerializer,
    BookBatchSerializer,
    ReportSerializer,
    find_batch,
)
from synth.api.batches.texts import (
    BatchJSONParser,
    BatchRejectedError,
    JsonLinesParser,
    JsonlParser,
    read_books,
    read_more_books,
    read_texts,
    submit_batch,
)
from synth.api.books.options import BookFilesMixin
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, read_idempotency_key, sender_of
from synth.api.jobs.serializers import STATUSES
from synth.batches import turns
from synth.models import ApiKey, Batch, BatchEntry, Export, RenderJob
from synth.transitions.batches import WITH_AUDIO
from synth.transitions.book_batches import (
    STATES,
    close_batch,
    pause_batch,
    reprioritise_batch,
    resume_batch,
    with_state,
)
from ttsweb.http.api import ApiProblem, BoundedJSONParser
from ttsweb.http.nouns import (
    ListView,
    Noun,
    accepted_headers,
    operation,
    send_stored,
    without_file,
)
from ttsweb.http.pagination import IndexCursorPagination, ItemCursorPagination
from ttsweb.http.query_filters import moment_filter, names_filter
from ttsweb.http.ranged import StoredObject
from ttsweb.refusals import POLL_SECONDS

_JOBS = (ApiKey.Scope.JOBS,)
_POLLED = (
    "Return a batch.\n\nWith `wait`, the answer comes when the batch has ended or the wait is over."
)


def _is_open(batch: Batch) -> bool:
    return batch.ended_at is None


_find_texts = partial(find_batch, kind=Batch.Kind.TEXTS)
_find_books = partial(find_batch, kind=Batch.Kind.BOOKS)
BATCH = Noun("batch", BatchSerializer, _find_texts, _is_open)
BOOK_BATCH = Noun("book-batch", BookBatchSerializer, _find_books, _is_open)


class BatchFilterSerializer(serializers.Serializer[Any]):
    """The filters of the list of batches, as a condition."""

    status = names_filter(RenderJob.Status.values, STATUSES)
    created_after = moment_filter("created_at__gt")
    created_before = moment_filter("created_at__lt")


class ItemFilterSerializer(serializers.Serializer[Any]):
    """The filters of a batch's items, as a condition."""

    status = names_filter(RenderJob.Status.values, STATUSES)
    custom_id = serializers.CharField(
        required=False, trim_whitespace=False, help_text="The `custom_id` of one item."
    )

    def validate_custom_id(self, value: str) -> Q:
        return Q(custom_id=value)


class EntryFilterSerializer(serializers.Serializer[Any]):
    """The filters of a batch's entries, as a condition."""

    state = names_filter(STATES, "One or more states, separated by commas.")


class BatchesView(ListView[Batch]):
    write_scopes = _JOBS
    lists = ("list_batches", "List batches, newest first.")
    serializer_class = BatchSerializer
    filters = BatchFilterSerializer
    parser_classes = (
        BatchJSONParser,
        MultiPartParser,
        JsonLinesParser,
        JsonlParser,
    )

    def rows(self) -> QuerySet[Batch]:
        return visible_batches(self.request.user, Batch.Kind.TEXTS)

    @operation(
        "create_batch",
        {200: BatchSerializer, 202: BatchSerializer},
        *(404, 413, 415, 422, 503),
        query=None,
        request={
            "application/json": BatchCreateSerializer,
            "multipart/form-data": BatchFormSerializer,
            "application/x-ndjson": OpenApiTypes.BINARY,
            "application/jsonl": OpenApiTypes.BINARY,
        },
        parameters=[
            BatchOptionsSerializer,
            OpenApiParameter(
                "defaults",
                BatchDefaultsSerializer,
                description=f"{ONLY_OF_LINES} An object in JSON.",
            ),
            IDEMPOTENCY_PARAMETER,
            *accepted_headers(200),
        ],
    )
    def post(self, request: Request) -> Response:
        """Queue many texts at once, as JSON or as JSONL with one item on each line.

        The same Idempotency-Key and body return the batch that was made first.
        """
        key = read_idempotency_key(request)
        try:
            asked = read_texts(request)
            batch, is_new = submit_batch(
                asked.entries,
                asked.text_options,
                sender_of(request, key),
                skip_bad=asked.attrs["on_error"] == SKIP,
            )
        except BatchRejectedError as error:
            raise entries_rejected(Batch.Kind.TEXTS, error.bad, error.num_items) from error
        return BATCH.answer(request, batch.pk, status=None if is_new else 200)


class BatchView(APIView):
    write_scopes = _JOBS

    get = BATCH.getter("get_batch", _POLLED, may_wait=True)
    delete = BATCH.deleter(
        "delete_batch", "Delete a batch in any state, with its items and all files.", turns.delete
    )


class BatchItemsView(ListView[RenderJob]):
    lists = (
        "list_batch_items",
        "List the items in their order. Each item is a job; `/jobs/{id}` returns its details.",
        404,
    )
    serializer_class = BatchItemSerializer
    pagination_class = ItemCursorPagination
    filters = ItemFilterSerializer
    is_conditional = True

    def rows(self) -> QuerySet[RenderJob]:
        batch = _find_texts(self.request, self.kwargs["batch_id"])
        items = visible_jobs(self.request.user).filter(batch=batch)
        items = items.annotate(text_start=Left("text", 200))
        return with_voices(items).defer("text")


class BatchResultsView(APIView):
    @operation("get_batch_results", "application/zip", 404, 409, 410, 416)
    def get(self, request: Request, batch_id: uuid.UUID) -> HttpResponseBase:
        """Return one zip with each item's audio file and a manifest, or a byte range of it."""
        batch = _find_texts(request, batch_id)
        export = Export.objects.filter(batch=batch, status=Export.Status.DONE).first()
        if batch.status not in WITH_AUDIO or export is None:
            if batch.ended_at is None:
                sentence = (
                    "The batch is not finished yet. Ask again after `Retry-After` seconds, or add "
                    "?wait= to GET /api/v1/batches/{id}."
                )
                raise ApiProblem(409, "batch_not_finished", sentence, retry_after=POLL_SECONDS)
            raise without_file(batch, "batch", "batch_without_results")
        stored = StoredObject(
            key=export.key,
            content_type="application/zip",
            filename=f"batch-{str(batch.pk)[:8]}.zip",
            etag=export.sha256,
            download=True,
            is_finished=True,
        )
        gone = "The zip is no longer stored; retry the batch to make it again."
        return send_stored(request, stored, "results_gone", gone)


class BookBatchesView(BookFilesMixin, ListView[Batch]):
    write_scopes = _JOBS
    lists = ("list_book_batches", "List batches of books, newest first.")
    serializer_class = BookBatchSerializer
    parser_classes = (BoundedJSONParser, MultiPartParser)

    def rows(self) -> QuerySet[Batch]:
        batches = visible_batches(self.request.user, Batch.Kind.BOOKS)
        return batches.select_related("owner", "api_key")

    @operation(
        "create_book_batch",
        {202: BookBatchSerializer, 200: BookBatchSerializer},
        *(404, 409, 413, 415, 422),
        request={
            "application/json": BookBatchCreateSerializer,
            "multipart/form-data": BookBatchFormSerializer,
        },
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200, 201)],
    )
    def post(self, request: Request) -> Response:
        """Create a batch of books from a manifest; send files with it, or each by `POST /books`.

        The same Idempotency-Key and body return the batch that was made first, and add the
        files that it lacks.
        """
        key = read_idempotency_key(request)
        asked = read_books(request)
        names = asked.file_names
        sender = sender_of(request, key, lambda _: digest_of(asked.attrs, asked.entries, names))
        batch, is_new = make_batch(asked.attrs, asked.entries, sender, files=names)
        is_new |= upload_to_batch(batch, asked.files, api_key=sender.api_key)
        if asked.attrs["closed"]:
            close_batch(batch.pk)
        return BOOK_BATCH.answer(request, batch.pk, status=202 if is_new else 200)


class BookBatchView(APIView):
    write_scopes = _JOBS

    get = BOOK_BATCH.getter("get_book_batch", _POLLED, may_wait=True)
    delete = BOOK_BATCH.deleter(
        "delete_book_batch",
        "Delete a batch in any state, with its books, their jobs and all files.",
        turns.delete,
    )


class BookBatchEntriesView(ListView[BatchEntry]):
    write_scopes = _JOBS
    lists = (
        "list_book_batch_entries",
        "List the entries in their order, each with its sample and the progress of its book.",
        404,
    )
    serializer_class = BookBatchEntrySerializer
    pagination_class = IndexCursorPagination
    parser_classes = (BoundedJSONParser, MultiPartParser)
    filters = EntryFilterSerializer

    def rows(self) -> QuerySet[BatchEntry]:
        batch = _find_books(self.request, self.kwargs["batch_id"])
        entries = with_state(BatchEntry.objects.filter(batch=batch))
        return entries.select_related("book__job", "book__sample_job")

    @operation(
        "add_book_batch_entries",
        BookBatchSerializer,
        *(404, 409, 413, 415),
        request={
            "application/json": EntriesCreateSerializer,
            "multipart/form-data": EntriesFormSerializer,
        },
    )
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Add entries to an open batch. With `reject`, all are added or none."""
        batch = _find_books(request, batch_id)
        asked = read_more_books(request)
        add_entries(
            batch,
            asked.entries,
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            on_error=asked.attrs["on_error"],
        )
        return BOOK_BATCH.shown(request, batch_id)


class BookBatchReportView(APIView):
    @operation("get_book_batch_report", ReportSerializer, 404, 409)
    def get(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Return the report of a batch that has ended, book by book."""
        batch = _find_books(request, batch_id)
        if batch.ended_at is None:
            sentence = (
                "The batch has not ended yet; GET its `entries` for the progress of each book."
            )
            raise ApiProblem(409, "book_batch_not_ended", sentence, retry_after=POLL_SECONDS)
        return Response(ReportSerializer(batch.report).data)


BATCH_ACTIONS = {
    "cancel": BATCH.action(
        "cancel_batch",
        "Cancel a batch and all its unfinished items; a batch that has ended is not changed.",
        lambda request, batch, _: turns.cancel(batch),
    ),
    "retry": BATCH.action(
        "retry_batch",
        "Queue incomplete items again; finished items are kept.",
        lambda request, batch, _: turns.retry(batch, api_key=key_of(request)),
        409,
        is_accepted=True,
    ),
}
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
        lambda request, batch, _: pause_batch(batch.pk),
    ),
    "resume": BOOK_BATCH.action(
        "resume_book_batch",
        "Resume a paused batch; books that were paused on their own stay paused.",
        lambda request, batch, _: resume_batch(batch.pk),
    ),
    "cancel": BOOK_BATCH.action(
        "cancel_book_batch",
        "Cancel the unfinished books of a batch; rendered audio is kept for a retry.",
        lambda request, batch, _: turns.cancel(batch),
    ),
    "retry": BOOK_BATCH.action(
        "retry_book_batch",
        "Queue failed and cancelled books again; a batch that had ended runs again.",
        lambda request, batch, _: turns.retry(batch, api_key=key_of(request)),
        *(409, 429),
        is_accepted=True,
    ),
    "approve": BOOK_BATCH.action(
        "approve_book_batch",
        "Approve samples, so that the rest of their books is rendered.",
        lambda request, batch, asked: turns.approve(batch, asked.get("books")),
        409,
        body=ApproveBooksSerializer,
    ),
    "priority": BOOK_BATCH.action(
        "prioritise_book_batch",
        "Change the priority of a batch and of its unfinished books.",
        lambda request, batch, asked: reprioritise_batch(batch.pk, asked["priority"]),
        body=PrioritySerializer,
    ),
}
