"""Serve batches over REST."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_batches, visible_jobs
from synth.accounts.authentication import key_of
from synth.api.batches.filters import BatchFilterSerializer, ItemFilterSerializer
from synth.api.batches.parsers import BatchJSONParser, JsonLinesParser, JsonlParser
from synth.api.batches.reading import digest_of_batch, read_batch, rejected
from synth.api.batches.requests import (
    ONLY_OF_LINES,
    BatchCreateSerializer,
    BatchDefaultsSerializer,
    BatchFormSerializer,
    BatchOptionsSerializer,
)
from synth.api.batches.serializers import BatchItemSerializer, BatchSerializer, with_figures
from synth.api.jobs.filters import WaitSerializer
from synth.api.jobs.requests import IDEMPOTENCY_PARAMETER, read_idempotency_key
from synth.api.jobs.wait import WAIT_HEADER
from synth.batches.planning import BatchRejectedError
from synth.batches.retry import retry
from synth.batches.submit import submit_batch
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.removal import delete_job
from synth.jobs.retry import RetryRefusedError
from synth.models import ApiKey, Export, RenderJob
from synth.transitions import UNFINISHED, cancel_batch
from synth.transitions.batches import WITH_AUDIO, ZIP
from ttsweb.http.api import ApiProblem, NoFieldsSerializer, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.pagination import ItemCursorPagination
from ttsweb.http.query_filters import check_list_query, read_condition
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response
from ttsweb.http.schema import problems

POLL_SECONDS = 2
_ACCEPTED_HEADERS = [
    OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[200, 202]),
    OpenApiParameter("Retry-After", int, OpenApiParameter.HEADER, response=[202]),
]


class BatchesView(generics.ListAPIView[RenderJob]):
    """All batches of the user."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = BatchSerializer
    parser_classes = (BatchJSONParser, MultiPartParser, JsonLinesParser, JsonlParser)

    def get_queryset(self) -> QuerySet[RenderJob]:
        """Return the batches that the query's filters let through."""
        if getattr(self, "swagger_fake_view", False):
            return RenderJob.objects.none()
        condition = read_condition(self.request, BatchFilterSerializer)
        return visible_batches(self.request.user).filter(condition)

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
            *_ACCEPTED_HEADERS,
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
        except SubmitRejectedError as error:
            raise ApiProblem(
                error.status, error.code, str(error), attr=error.attr, retry_after=error.retry_after
            ) from error
        made = _find(request, batch.pk)
        return _answer(made, status=202 if is_new and made.status in UNFINISHED else 200)


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
        check_query(request, ("wait",))
        query = WaitSerializer(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        batch = _find(request, batch_id)
        answer = Response(BatchSerializer(batch).data)
        if batch.status in UNFINISHED:
            answer["Retry-After"] = str(POLL_SECONDS)
            if query.validated_data["wait"] > 0:
                answer[WAIT_HEADER] = str(query.validated_data["wait"])
        return conditional(request, answer)

    @extend_schema(operation_id="delete_batch", responses={204: None, **problems(400, 401, 404)})
    def delete(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Delete a batch in any state, with its items and all files."""
        check_query(request, ())
        delete_job(_find(request, batch_id))
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
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses={
            (200, "application/zip"): OpenApiTypes.BINARY,
            (206, "application/zip"): OpenApiTypes.BINARY,
            **problems(400, 401, 404, 409, 410, 416),
        },
    )
    def get(self, request: Request, batch_id: uuid.UUID) -> HttpResponseBase:
        """Return one zip with each item's audio file and a manifest, or a byte range of it."""
        check_query(request, ())
        batch = _find(request, batch_id)
        export = batch.exports.filter(format=ZIP, status=Export.Status.DONE).first()
        if batch.status not in WITH_AUDIO or export is None:
            raise _why_no_results(batch)
        stored = StoredObject(
            key=export.key,
            content_type="application/zip",
            filename=f"batch-{str(batch.pk)[:8]}.zip",
            etag=export.sha256,
            download=True,
        )
        try:
            return object_response(request._request, stored)
        except ObjectMissingError as error:
            raise ApiProblem(
                410,
                "results_gone",
                "The zip is no longer stored; retry the batch to make it again.",
            ) from error


class BatchCancelView(APIView):
    """The cancelling of a batch."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="cancel_batch",
        request=None,
        responses={200: BatchSerializer, **problems(400, 401, 404)},
    )
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Cancel a batch and all its unfinished items; a batch that has ended is not changed."""
        _check_no_fields(request)
        cancel_batch(_find(request, batch_id).pk)
        return Response(BatchSerializer(_find(request, batch_id)).data)


class BatchRetryView(APIView):
    """The retrying of a batch."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="retry_batch",
        request=None,
        parameters=_ACCEPTED_HEADERS,
        responses={202: BatchSerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, batch_id: uuid.UUID) -> Response:
        """Queue incomplete items again; finished items are kept."""
        _check_no_fields(request)
        try:
            retry(_find(request, batch_id), api_key=key_of(request))
        except RetryRefusedError as error:
            raise ApiProblem(409, error.code, str(error)) from error
        return _answer(_find(request, batch_id), status=202)


def _check_no_fields(request: Request) -> None:
    check_query(request, ())
    NoFieldsSerializer(data=request.data).is_valid(raise_exception=True)


def _find(request: Request, batch_id: uuid.UUID) -> RenderJob:
    """Return a batch that this user may see, with its figures, or raise the 404."""
    batch = visible_batches(request.user).filter(pk=batch_id).first()
    if batch is None:
        raise ApiProblem(404, "batch_not_found", "No batch that you may see has this id.")
    return with_figures([batch])[0]


def _answer(batch: RenderJob, *, status: int | None = None) -> Response:
    """Return a batch; without a status as work that goes on (202), or as one that ended (200)."""
    is_open = status == 202 or batch.status in UNFINISHED
    answer = Response(BatchSerializer(batch).data, status=status or (202 if is_open else 200))
    answer["Location"] = reverse("batch", args=[batch.pk])
    if is_open:
        answer["Retry-After"] = str(POLL_SECONDS)
    return answer


def _why_no_results(batch: RenderJob) -> ApiProblem:
    if batch.status in UNFINISHED:
        return ApiProblem(
            409,
            "batch_not_finished",
            "The batch is not finished yet. Ask again after `Retry-After` seconds, or add "
            "?wait= to GET /api/v1/batches/{id}.",
            retry_after=POLL_SECONDS,
        )
    reason = f": {batch.error_message}" if batch.error_message else "."
    return ApiProblem(404, "batch_without_results", f"The batch is {batch.status}{reason}")
