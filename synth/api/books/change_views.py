"""Serve what can be changed of a book's work over REST: pauses and priority."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.books.serializers import BookSerializer
from synth.api.books.views import book_answer, find_book, rejections_as_problems
from synth.bookshelf.book_pauses import set_pauses
from synth.bookshelf.book_priority import set_priority
from synth.models import PRIORITIES, ApiKey
from synth.options.request_fields import StrictNumberField
from synth.text.pauses import BOOK_PAUSE_NAMES, MAX_PAUSE_MS
from synth.transitions.changes import ChangeRefusedError
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.schema import problems


class BookPausesSerializer(StrictSerializer):
    """Lengths of pauses in ms.

    Null restores the default, and fields that are left out do not change.
    """

    def get_fields(self) -> dict[str, Any]:
        """Return a field for each pause of a book."""
        return {
            name: StrictNumberField(
                low=0, high=MAX_PAUSE_MS, whole=True, required=False, allow_null=True
            )
            for name in BOOK_PAUSE_NAMES
        }


class BookPrioritySerializer(StrictSerializer):
    """A priority."""

    priority = serializers.ChoiceField(choices=list(PRIORITIES))


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
        check_query(request, ())
        book = find_book(request, book_id)
        serializer = BookPausesSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        with rejections_as_problems():
            set_pauses(book, serializer.validated_data)
        return book_answer(find_book(request, book_id))


class BookPriorityView(APIView):
    """The priority of a book."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="prioritise_book",
        request=BookPrioritySerializer,
        responses={200: BookSerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, book_id: uuid.UUID) -> Response:
        """Change the priority of a book that has not ended."""
        check_query(request, ())
        book = find_book(request, book_id)
        serializer = BookPrioritySerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        try:
            set_priority(book, serializer.validated_data["priority"])
        except ChangeRefusedError as error:
            raise ApiProblem(409, error.code, str(error)) from error
        return Response(BookSerializer(find_book(request, book_id)).data)
