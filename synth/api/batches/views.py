"""Serve batches over REST."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_batches, visible_jobs
from synth.api.accounts.authentication import key_of
from synth.api.batches.finding import find_batch
from synth.api.batches.reading import (
    BatchJSONParser,
    JsonLinesParser,
    JsonlParser,
    digest_of_batch,
    read_batch,
    rejected,
)
from synth.api.batches.requests import (
    ONLY_OF_LINES,
    BatchCreateSerializer,
    BatchDefaultsSerializer,
    BatchFormSerializer,
    BatchOptionsSerializer,
)
from synth.api.batches.serializers import BatchItemSerializer, BatchSerializer, with_figures
from synth.api.jobs.filters import STATUSES
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, read_idempotency_key
from synth.batches import actions
from synth.batches.texts import BatchRejectedError, submit_batch
from synth.models import ApiKey, Batch, Export, RenderJob
from synth.transitions.batches import WITH_AUDIO
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.nouns import (
    RANGE,
    Noun,
    WaitSerializer,
    accepted_headers,
    file_responses,
    send_stored,
    without_file,
)
from ttsweb.http.pagination import ItemCursorPagination
from ttsweb.http.query_filters import check_list_query, moment_filter, names_filter, read_condition
from ttsweb.http.ranged import StoredObject
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS


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
        """Return the condition for a name."""
        return Q(custom_id=value)


class BatchesView(generics.ListAPIView[Batch]):
    """All batches of the user."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BatchSerializer
    parser_classes = (BatchJSONParser, MultiPartParser, JsonLinesParser, JsonlParser)

    def get_queryset(self) -> QuerySet[Batch]:
        """Return the batches that the query's filters let through."""
        if getattr(self, "swagger_fake_view", False):
            return Batch.objects.none()
        condition = read_condition(self.request, BatchFilterSerializer)
        return visible_batches(self.request.user, Batch.Kind.TEXTS).filter(condition)

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return a page of batches with their figures."""
        return with_figures(super().paginate_queryset(queryset) or [])

    @extend_schema(
        operation_id="list_batches",
        parameters=[BatchFilterSerializer],
        responses={200: BatchSerializer(many=True), **problems(400, 401)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List batches, newest first."""
        check_list_query(request, BatchFilterSerializer)
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_batch",
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
        responses={
            200: BatchSerializer,
            202: BatchSerializer,
            **problems(400, 401, 404, 413, 415, 422, 503),
        },
    )
    def post(self, request: Request) -> Response:
        """Queue many texts at once, as JSON or as JSONL with one item on each line.

        The same Idempotency-Key and body return the batch that was made first.
        """
        key = read_idempotency_key(request)
        try:
            order = read_batch(request)
            batch, is_new = submit_batch(
                order.entries,
                order.options,
                owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
                skip_bad=order.skip_bad,
                api_key=key_of(request),
                idempotency_key=key,
                body_digest=digest_of_batch(request) if key else "",
            )
        except BatchRejectedError as error:
            raise rejected(error) from error
        return BATCH.answer(request, batch.pk, status=None if is_new else 200)


class BatchView(APIView):
    """One batch."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_batch",
        parameters=[WaitSerializer, *CONDITIONAL_PARAMETERS],
        responses={200: BatchSerializer, **UNCHANGED, **problems(400, 401, 404)},
    )
    def get(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Return a batch.

        With `wait`, the answer comes when the batch has ended or the wait is over.
        """
        return BATCH.poll(request, batch_id)

    @extend_schema(operation_id="delete_batch", responses={204: None, **problems(400, 401, 404)})
    def delete(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Delete a batch in any state, with its items and all files."""
        check_query(request, ())
        actions.delete(_find(request, batch_id))
        return Response(status=204)


class BatchItemsView(generics.ListAPIView[RenderJob]):
    """The items of a batch."""

    serializer_class = BatchItemSerializer
    pagination_class = ItemCursorPagination

    def get_queryset(self) -> QuerySet[RenderJob]:
        """Return the items that the query's filters let through."""
        if getattr(self, "swagger_fake_view", False):
            return RenderJob.objects.none()
        batch = _find(self.request, self.kwargs["batch_id"])
        condition = read_condition(self.request, ItemFilterSerializer)
        items = visible_jobs(self.request.user).filter(condition, batch=batch)
        items = items.annotate(text_start=Left("text", 200))
        return items.prefetch_related("voices__version__voice").defer("text")

    @extend_schema(
        operation_id="list_batch_items",
        parameters=[ItemFilterSerializer, *CONDITIONAL_PARAMETERS],
        responses={200: BatchItemSerializer(many=True), **UNCHANGED, **problems(400, 401, 404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the items in their order. Each item is a job; `/jobs/{id}` returns its details."""
        check_list_query(request, ItemFilterSerializer)
        return conditional(request, super().get(request, *args, **kwargs))


class BatchResultsView(APIView):
    """The zip of a batch."""

    @extend_schema(
        operation_id="get_batch_results",
        parameters=[RANGE],
        responses=file_responses("application/zip", 400, 401, 404, 409, 410, 416),
    )
    def get(self, request: Request, batch_id: uuid.UUID) -> HttpResponseBase:
        """Return one zip with each item's audio file and a manifest, or a byte range of it."""
        check_query(request, ())
        batch = _find(request, batch_id)
        export = Export.objects.filter(batch=batch, status=Export.Status.DONE).first()
        if batch.status not in WITH_AUDIO or export is None:
            if batch.ended_at is None:
                raise ApiProblem(
                    409,
                    "batch_not_finished",
                    "The batch is not finished yet. Ask again after `Retry-After` seconds, or add "
                    "?wait= to GET /api/v1/batches/{id}.",
                    retry_after=POLL_SECONDS,
                )
            raise without_file(batch, "batch", "batch_without_results")
        stored = StoredObject(
            key=export.key,
            content_type="application/zip",
            filename=f"batch-{str(batch.pk)[:8]}.zip",
            etag=export.sha256,
            download=True,
        )
        gone = "The zip is no longer stored; retry the batch to make it again."
        return send_stored(request, stored, "results_gone", gone)


def _find(request: Request, batch_id: uuid.UUID) -> Batch:
    """Return a batch that this user may see, with its figures, or raise the 404."""
    return with_figures([find_batch(request, batch_id, Batch.Kind.TEXTS)])[0]


BATCH = Noun("batch", BatchSerializer, _find, lambda batch: batch.ended_at is None)
BATCH_ACTIONS = {
    "cancel": BATCH.action(
        "cancel_batch",
        "Cancel a batch and all its unfinished items; a batch that has ended is not changed.",
        lambda request, batch, _: actions.cancel(batch),
    ),
    "retry": BATCH.action(
        "retry_batch",
        "Queue incomplete items again; finished items are kept.",
        lambda request, batch, _: actions.retry(batch, api_key=key_of(request)),
        409,
        is_accepted=True,
    ),
}
