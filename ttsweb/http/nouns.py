"""What views of all kinds of rows share: bodies and queries, polls, actions, stored files."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ttsweb.http.api import ApiProblem, NoFieldsSerializer, check_query
from ttsweb.http.asgi_ask import WAIT_HEADER
from ttsweb.http.etag import conditional
from ttsweb.http.query_filters import DescribedField
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS

Act = Callable[[Request, Any, Mapping[str, Any]], object]
RANGE = OpenApiParameter("Range", str, OpenApiParameter.HEADER)


def accepted_headers(*located: int) -> list[OpenApiParameter]:
    """Return the headers of a 202; `Location` is in answers with the other statuses as well."""
    return [
        OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[*located, 202]),
        OpenApiParameter("Retry-After", int, OpenApiParameter.HEADER, response=[202]),
    ]


def file_responses(media_type: str, *statuses: int) -> dict[Any, Any]:
    """Return the answers of an operation that sends a stored file."""
    binary = {(status, media_type): OpenApiTypes.BINARY for status in (200, 206)}
    return {**binary, **problems(*statuses)}


class WaitSerializer(serializers.Serializer[Any]):
    """How long a poll may wait for the end of the work."""

    wait = DescribedField(
        schema={"type": "number", "minimum": 0},
        required=False,
        help_text=(
            "How many seconds the answer waits for the end, at most 30 (default 30); 0 if left out."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Add that there is no wait where none was asked for."""
        return {"wait": 0.0} | attrs

    def validate_wait(self, value: str) -> float:
        """Return the seconds, cut to the most that is allowed."""
        try:
            seconds = float(value) if value.isascii() and "_" not in value else math.nan
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise serializers.ValidationError("Expected a number of seconds, 0 or more.")
        return min(seconds, settings.MAX_WAIT_SECONDS)


def read_body(request: Request, reader: type[serializers.BaseSerializer[Any]], **given: Any) -> Any:
    """Return the validated body of a request that takes no query."""
    check_query(request, ())
    serializer = reader(data=request.data, **given)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def read_query(request: Request, reader: type[serializers.Serializer[Any]], **given: Any) -> Any:
    """Return the validated query of a request that takes no other parameters."""
    serializer = reader(data=request.query_params.dict(), **given)
    check_query(request, serializer.fields)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def check_no_fields(request: Request) -> None:
    """Refuse a body and a query: some actions take neither."""
    read_body(request, NoFieldsSerializer)


@dataclass(frozen=True)
class Noun:
    """One kind of rows that is worked on.

    Args:
        route: name of the route of one row.
        find: returns a row that the user of a request may see, or raises the 404.
        is_open: says whether a row is worked on, so that asking again makes sense.
        scope: which a key needs for actions.
    """

    route: str
    serializer: type[serializers.BaseSerializer[Any]]
    find: Callable[[Request, uuid.UUID], Any]
    is_open: Callable[[Any], bool]
    scope: str = "jobs"

    def shown(self, request: Request, row_id: uuid.UUID) -> Response:
        """Return a row as it is now."""
        return Response(self.serializer(self.find(request, row_id)).data)

    def poll(self, request: Request, row_id: uuid.UUID, *, may_wait: bool = True) -> Response:
        """Return a row, or a 304; with `wait`, `JobWait` keeps the answer of an open one back."""
        seconds = read_query(request, WaitSerializer)["wait"] if may_wait else 0
        if not may_wait:
            check_query(request, ())
        row = self.find(request, row_id)
        answer = Response(self.serializer(row).data)
        if self.is_open(row):
            answer["Retry-After"] = str(POLL_SECONDS)
            if seconds > 0:
                answer[WAIT_HEADER] = str(seconds)
        return conditional(request, answer)

    def answer(self, request: Request, row_id: uuid.UUID, *, status: int | None = None) -> Response:
        """Return a row; without a status as work that goes on (202), or that has ended (200)."""
        row = self.find(request, row_id)
        is_open = status == 202 or self.is_open(row)
        answer = Response(self.serializer(row).data, status=status or (202 if is_open else 200))
        answer["Location"] = reverse(self.route, args=[row_id])
        if is_open:
            answer["Retry-After"] = str(POLL_SECONDS)
        return answer

    def action(
        self,
        operation_id: str,
        does: str,
        act: Act,
        *statuses: int,
        body: type[serializers.BaseSerializer[Any]] | None = None,
        is_accepted: bool = False,
    ) -> Any:
        """Return a view for the POST that does something with a row and answers with the row.

        Args:
            does: the description of the operation.
            act: takes the request, the row and the fields of the body.
            statuses: of errors beside 400, 401 and 404.
            is_accepted: the row is worked on afterwards, and the answer is a 202.
        """
        noun = self

        class ActionView(APIView):
            write_scopes = (noun.scope,)

            @extend_schema(
                operation_id=operation_id,
                description=does,
                request=body,
                parameters=accepted_headers(200) if is_accepted else [],
                responses={
                    202 if is_accepted else 200: noun.serializer,
                    **problems(400, 401, 404, *statuses),
                },
            )
            def post(self, request: Request, **ids: uuid.UUID) -> Response:
                check_query(request, ())
                if body is None:
                    check_no_fields(request)
                (row_id,) = ids.values()
                row = noun.find(request, row_id)
                act(request, row, {} if body is None else read_body(request, body))
                return (
                    noun.answer(request, row_id, status=202)
                    if is_accepted
                    else noun.shown(request, row_id)
                )

        return ActionView.as_view()


def send_stored(request: Request, stored: StoredObject, code: str, gone: str) -> HttpResponseBase:
    """Return a stored file, or a range of it.

    Raises:
        ApiProblem: 410 with this code and sentence, as the storage no longer has the file.
    """
    try:
        return object_response(request._request, stored)
    except ObjectMissingError as error:
        raise ApiProblem(410, code, gone) from error


def without_file(row: Any, noun: str, code: str) -> ApiProblem:
    """Return the 404 for a file of a row that has ended without it."""
    reason = f": {row.error_message}" if row.error_message else "."
    return ApiProblem(404, code, f"The {noun} is {row.status}{reason}")
