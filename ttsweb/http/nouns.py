"""What views of all kinds of rows share: lists, bodies, polls, actions, changes, stored files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, TypeVar

from django.conf import settings
from django.db.models import Model, Q, QuerySet
from django.http import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ttsweb.http.api import ApiProblem, NoFieldsSerializer, check_query
from ttsweb.http.asgi_ask import WAIT_HEADER
from ttsweb.http.fields import DescribedField, problems
from ttsweb.http.headers import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.query_filters import PAGE_PARAMETERS, check_not_repeated, read_condition
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response
from ttsweb.refusals import POLL_SECONDS

Row = TypeVar("Row", bound=Model)
Act = Callable[[Request, Any, Mapping[str, Any]], object]
Filters = type[serializers.Serializer[Any]]
Serializer = type[serializers.BaseSerializer[Any]]
RANGE = OpenApiParameter("Range", str, OpenApiParameter.HEADER)


def accepted_headers(*located: int) -> list[OpenApiParameter]:
    """Return the headers of a 202; `Location` is in answers with the other statuses as well."""
    return [
        OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[*located, 202]),
        OpenApiParameter("Retry-After", int, OpenApiParameter.HEADER, response=[202]),
    ]


def get_row(rows: QuerySet[Row], code: str, sentence: str, **ids: Any) -> Row:
    """Return the row with these ids, or raise the 404 with this code and sentence."""
    row = rows.filter(**ids).first()
    if row is None:
        raise ApiProblem(404, code, sentence)
    return row


def file_responses(media_type: str, *statuses: int) -> dict[Any, Any]:
    binary = {(status, media_type): OpenApiTypes.BINARY for status in (200, 206)}
    elsewhere = OpenApiResponse(
        description="Where the storage serves finished files: get `Location`, without the key."
    )
    return {**binary, 302: elsewhere, **problems(*statuses)}


def operation(
    operation_id: str,
    answers: Any,
    *statuses: int,
    query: type[serializers.Serializer[Any]] | Sequence[str] | None = (),
    is_conditional: bool = False,
    parameters: Sequence[Any] = (),
    **described: Any,
) -> Callable[[Any], Any]:
    """Describe a method of a view by its docstring, and refuse what its query may not have.

    Args:
        answers: the serializer of a 200, the media type of a stored file, or answers by status.
        statuses: of errors beside 400 and 401.
        query: the names that the query may have, or what reads it for the method's `query`; None
            leaves it to the method.
        is_conditional: the answer gets an ETag, and whoever has it a 304.
        described: as `extend_schema` takes it.
    """
    reader = query if isinstance(query, type) else None
    more = [*parameters, *([] if reader is None else [reader])]
    if isinstance(answers, str):
        more.append(RANGE)
        answers = file_responses(answers)
    elif not isinstance(answers, dict):
        answers = {200: answers}
    if is_conditional:
        more += CONDITIONAL_PARAMETERS
        answers = {**answers, **UNCHANGED}

    def decorate(method: Callable[..., Any]) -> Any:
        @extend_schema(
            operation_id=operation_id,
            parameters=more,
            responses={**answers, **problems(400, 401, *statuses)},
            **described,
        )
        @wraps(method)
        def handle(view: APIView, request: Request, **ids: Any) -> Any:
            if reader is not None:
                ids["query"] = read_query(request, reader, context={"is_form": True})
            elif query is not None:
                check_query(request, query)  # type: ignore[arg-type]  # names, as it is no reader
            answer = method(view, request, **ids)
            return conditional(request, answer) if is_conditional else answer

        return handle

    return decorate


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
        return NO_WAIT | attrs

    def validate_wait(self, value: str) -> float:
        try:
            seconds = float(value) if value.isascii() and "_" not in value else math.nan
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise serializers.ValidationError("Expected a number of seconds, 0 or more.")
        return min(seconds, settings.MAX_WAIT_SECONDS)


NO_WAIT = {"wait": 0.0}


def read_body(request: Request, reader: Serializer, **given: Any) -> Any:
    check_query(request, ())
    serializer = reader(data=request.data, **given)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def read_query(request: Request, reader: type[serializers.Serializer[Any]], **given: Any) -> Any:
    serializer = reader(data=request.query_params.dict(), **given)
    check_query(request, serializer.fields)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def check_no_fields(request: Request) -> None:
    """Refuse a body and a query: some actions take neither."""
    read_body(request, NoFieldsSerializer)


class ListView(generics.ListAPIView[Row]):
    """The rows that a user may see, a page at a time; its GET follows from what it declares.

    Attributes:
        lists: the id of the operation, its description, and statuses beside 400 and 401.
        filters: read the query's filters as conditions on the rows.
        is_conditional: with an ETag, and a 304 to whoever has it.
    """

    lists: ClassVar[tuple[Any, ...]] = ()
    filters: ClassVar[Filters | None] = None
    is_conditional: ClassVar[bool] = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if not cls.lists:
            return
        operation_id, does, *statuses = cls.lists
        shown: Any = cls.serializer_class
        filters = cls.filters

        @operation(
            operation_id,
            shown(many=True),
            *statuses,
            query=(*PAGE_PARAMETERS, *(filters().fields if filters is not None else ())),
            is_conditional=cls.is_conditional,
            parameters=[] if filters is None else [filters],
            description=does,
        )
        def get(view: ListView[Any], request: Request, **ids: Any) -> Response:
            check_not_repeated(request)
            return view.list(request, **ids)

        cls.get = get  # type: ignore[method-assign]  # DRF's own lists without checks

    def rows(self) -> QuerySet[Row]:
        raise NotImplementedError

    def get_queryset(self) -> QuerySet[Row]:
        if getattr(self, "swagger_fake_view", False):
            model: type[Row] = self.serializer_class.Meta.model  # type: ignore[union-attr]
            return model._default_manager.none()
        if self.filters is None:
            return self.rows()
        return self.rows_that(read_condition(self.request, self.filters))

    def rows_that(self, condition: Q) -> QuerySet[Row]:
        return self.rows().filter(condition)


@dataclass(frozen=True)
class Noun:
    """One kind of rows.

    Args:
        route: name of the route of one row.
        find: returns the row of the ids in an address, as far as the user of a request may see
            it, or raises the 404.
        is_open: says whether a row is worked on, so that asking again makes sense.
        scope: which a key needs for actions.
    """

    route: str
    serializer: Serializer
    find: Callable[..., Any]
    is_open: Callable[[Any], bool] = lambda row: False
    scope: str = "jobs"

    def describe(self, request: Request, row: Any, serializer: Serializer | None = None) -> Any:
        context = {"request": request, "user": request.user}
        return (serializer or self.serializer)(row, context=context).data

    def shown(self, request: Request, *ids: Any) -> Response:
        return Response(self.describe(request, self.find(request, *ids)))

    def getter(
        self,
        operation_id: str,
        does: str,
        *statuses: int,
        is_conditional: bool = False,
        may_wait: bool = False,
    ) -> Any:
        """Return the GET of one row.

        Args:
            statuses: of errors beside 400, 401 and 404, here and in the methods below.
            is_conditional: as `poll` without waiting: with an ETag, and a 304 to whoever has it.
            may_wait: as `poll`.
        """

        is_conditional |= may_wait
        more: dict[str, Any] = {"query": WaitSerializer if may_wait else (), "description": does}

        @operation(
            operation_id, self.serializer, 404, *statuses, is_conditional=is_conditional, **more
        )
        def get(
            view: APIView, request: Request, query: Mapping[str, float] = NO_WAIT, **ids: Any
        ) -> Response:
            if is_conditional:
                return self.poll(request, *ids.values(), seconds=query["wait"])
            return self.shown(request, *ids.values())

        return get

    def maker(
        self,
        operation_id: str,
        does: str,
        make: Callable[..., Any],
        body: Serializer,
        *statuses: int,
        within: Callable[..., Any] | None = None,
        shown_by: Serializer | None = None,
    ) -> Any:
        """Return the POST that makes a row: a 201 with its address.

        Args:
            make: takes the request, the fields, and what `within` finds; returns the row.
            statuses: of errors beside 400, 401 and 415.
            within: finds what the row is made in, by the ids in the address.
            shown_by: shows a new row, where that is more than is shown later.
        """
        serializer = shown_by or self.serializer
        located = [OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201])]
        more: dict[str, Any] = {"parameters": located, "request": body, "description": does}

        @operation(operation_id, {201: serializer}, 415, *statuses, **more)
        def post(view: APIView, request: Request, **ids: Any) -> Response:
            parents = [] if within is None else [within(request, *ids.values())]
            row = make(request, read_body(request, body), *parents)
            answer = Response(self.describe(request, row, serializer), status=201)
            answer["Location"] = reverse(self.route, args=[*ids.values(), row.pk])
            return answer

        return post

    def changer(
        self,
        operation_id: str,
        does: str,
        change: Act,
        body: Serializer,
        *statuses: int,
        find: Callable[..., Any] | None = None,
        is_partial: bool = True,
    ) -> Any:
        """Return the PATCH that changes a row, and answers with the row as it is then.

        Args:
            find: finds a row to be changed, where not all that are seen may be.
            is_partial: fields that are needed to make a row are not needed to change it.
        """

        asked = body(partial=True) if is_partial else body

        @operation(
            operation_id, self.serializer, 404, 415, *statuses, request=asked, description=does
        )
        def patch(view: APIView, request: Request, **ids: Any) -> Response:
            row = (find or self.find)(request, *ids.values())
            change(request, row, read_body(request, body, partial=is_partial))
            return self.shown(request, *ids.values())

        return patch

    def deleter(
        self,
        operation_id: str,
        does: str,
        delete: Callable[[Any], object],
        *statuses: int,
        find: Callable[..., Any] | None = None,
    ) -> Any:
        @operation(operation_id, {204: None}, 404, *statuses, description=does)
        def handle(view: APIView, request: Request, **ids: Any) -> Response:
            delete((find or self.find)(request, *ids.values()))
            return Response(status=204)

        return handle

    def poll(self, request: Request, *ids: Any, seconds: float) -> Response:
        """Return a row; where seconds are given, `JobWait` keeps the answer of an open one back."""
        row = self.find(request, *ids)
        answer = Response(self.describe(request, row))
        if self.is_open(row):
            answer["Retry-After"] = str(POLL_SECONDS)
            if seconds > 0:
                answer[WAIT_HEADER] = str(seconds)
        return answer

    def answer(self, request: Request, *ids: Any, status: int | None = None) -> Response:
        """Return a row; without a status as work that goes on (202), or that has ended (200)."""
        row = self.find(request, *ids)
        is_open = status == 202 or self.is_open(row)
        answer = Response(self.describe(request, row), status=status or (202 if is_open else 200))
        answer["Location"] = reverse(self.route, args=ids)
        if is_open:
            answer["Retry-After"] = str(POLL_SECONDS)
        return answer

    def action(
        self,
        operation_id: str,
        does: str,
        act: Act,
        *statuses: int,
        body: Serializer | None = None,
        is_accepted: bool = False,
    ) -> Any:
        """Return a view for the POST that does something with a row and answers with the row.

        Args:
            does: the description of the operation.
            act: takes the request, the row and the fields of the body.
            statuses: of errors beside 400, 401 and 404.
            is_accepted: the row is worked on afterwards, and the answer is a 202.
        """
        noun, answers = self, {202 if is_accepted else 200: self.serializer}
        headers = accepted_headers(200) if is_accepted else []
        more: dict[str, Any] = {"parameters": headers, "request": body, "description": does}

        class ActionView(APIView):
            write_scopes = (noun.scope,)

            @operation(operation_id, answers, 404, *statuses, **more)
            def post(self, request: Request, **ids: Any) -> Response:
                if body is None:
                    check_no_fields(request)
                row = noun.find(request, *ids.values())
                act(request, row, {} if body is None else read_body(request, body))
                if is_accepted:
                    return noun.answer(request, *ids.values(), status=202)
                return noun.shown(request, *ids.values())

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
