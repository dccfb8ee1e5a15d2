"""Serve lexicons and their entries over REST."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Count, QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.lexicons.serializers import (
    EntryChangeSerializer,
    EntryRowSerializer,
    LexiconChangeSerializer,
    LexiconCreateSerializer,
    LexiconFilterSerializer,
    LexiconSerializer,
)
from synth.lexicons import store
from synth.lexicons.store import find_visible_lexicons
from synth.models import ApiKey, Lexicon, LexiconEntry
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.nouns import read_body
from ttsweb.http.pagination import IndexCursorPagination
from ttsweb.http.query_filters import check_list_query, read_condition
from ttsweb.http.schema import problems
from voices.access import find_voice

_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201])


class LexiconsView(generics.ListAPIView[Lexicon]):
    """All lexicons that the user may use."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = LexiconSerializer

    def get_queryset(self) -> QuerySet[Lexicon]:
        """Return the lexicons that the query's filters let through."""
        if getattr(self, "swagger_fake_view", False):
            return Lexicon.objects.none()
        condition = read_condition(self.request, LexiconFilterSerializer)
        return _shown(find_visible_lexicons(self.request.user).filter(condition))

    def get_serializer_context(self) -> dict[str, Any]:
        """Return whose view of them it is."""
        return {**super().get_serializer_context(), "user": self.request.user}

    @extend_schema(
        operation_id="list_lexicons",
        parameters=[LexiconFilterSerializer],
        responses={200: LexiconSerializer(many=True), **problems(400, 401)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List lexicons, newest first."""
        check_list_query(request, LexiconFilterSerializer)
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_lexicon",
        request=LexiconCreateSerializer,
        parameters=[_LOCATION],
        responses={201: LexiconSerializer, **problems(400, 401, 404, 409, 415)},
    )
    def post(self, request: Request) -> Response:
        """Create a lexicon without entries."""
        asked = read_body(request, LexiconCreateSerializer)
        values = dict(asked)
        is_shared = values.pop("shared")
        if is_shared and not getattr(request.user, "is_superuser", False):
            raise ApiProblem(
                403,
                "lexicon_shared",
                "Only an administrator can create a lexicon for all users; leave `shared` out.",
                attr="shared",
            )
        lexicon = store.save_lexicon(
            Lexicon(owner_id=None if is_shared else request.user.pk), _with_voice(request, values)
        )
        answer = Response(_view_of(request, lexicon.pk), status=201)
        answer["Location"] = reverse("lexicon", args=[lexicon.pk])
        return answer


class LexiconView(APIView):
    """One lexicon."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_lexicon",
        parameters=CONDITIONAL_PARAMETERS,
        responses={200: LexiconSerializer, **UNCHANGED, **problems(400, 401, 404)},
    )
    def get(self, request: Request, lexicon_id: uuid.UUID) -> Response:
        """Return a lexicon; GET its `entries` for the entries."""
        check_query(request, ())
        return conditional(request, Response(_view_of(request, lexicon_id)))

    @extend_schema(
        operation_id="update_lexicon",
        request=LexiconChangeSerializer(partial=True),
        responses={200: LexiconSerializer, **problems(400, 401, 404, 409, 415)},
    )
    def patch(self, request: Request, lexicon_id: uuid.UUID) -> Response:
        """Change a lexicon; existing jobs are not changed."""
        check_query(request, ())
        lexicon = find_to_change(request, lexicon_id)
        serializer = LexiconChangeSerializer(data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        store.save_lexicon(lexicon, _with_voice(request, serializer.validated_data))
        return Response(_view_of(request, lexicon.pk))

    @extend_schema(operation_id="delete_lexicon", responses={204: None, **problems(400, 401, 404)})
    def delete(self, request: Request, lexicon_id: uuid.UUID) -> Response:
        """Delete a lexicon and its entries; existing jobs are not changed."""
        check_query(request, ())
        store.delete_lexicon(find_to_change(request, lexicon_id))
        return Response(status=204)


class EntriesView(generics.ListAPIView[LexiconEntry]):
    """The entries of a lexicon."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = EntryRowSerializer
    pagination_class = IndexCursorPagination

    def get_queryset(self) -> QuerySet[LexiconEntry]:
        """Return the lexicon's entries."""
        if getattr(self, "swagger_fake_view", False):
            return LexiconEntry.objects.none()
        lexicon = find_lexicon(self.request, self.kwargs["lexicon_id"])
        return LexiconEntry.objects.filter(lexicon=lexicon)

    @extend_schema(
        operation_id="list_lexicon_entries",
        responses={200: EntryRowSerializer(many=True), **problems(400, 401, 404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the entries in their order."""
        check_query(request, ("cursor", "limit"))
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_lexicon_entry",
        request=EntryChangeSerializer,
        parameters=[_LOCATION],
        responses={201: EntryRowSerializer, **problems(400, 401, 404, 409, 415)},
    )
    def post(self, request: Request, lexicon_id: uuid.UUID) -> Response:
        """Add an entry. A pattern that takes too long is refused with `pattern_too_slow`."""
        check_query(request, ())
        lexicon = find_to_change(request, lexicon_id)
        serializer = EntryChangeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        entry = store.add_entry(lexicon, serializer.validated_data)
        answer = Response(EntryRowSerializer(entry).data, status=201)
        answer["Location"] = reverse("lexicon-entry", args=[lexicon.pk, entry.pk])
        return answer


class EntryView(APIView):
    """One entry of a lexicon."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="update_lexicon_entry",
        request=EntryChangeSerializer(partial=True),
        responses={200: EntryRowSerializer, **problems(400, 401, 404, 415)},
    )
    def patch(self, request: Request, lexicon_id: uuid.UUID, entry_id: int) -> Response:
        """Change an entry."""
        check_query(request, ())
        entry = _find_entry(request, lexicon_id, entry_id)
        serializer = EntryChangeSerializer(data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        store.change_entry(entry, serializer.validated_data)
        return Response(EntryRowSerializer(entry).data)

    @extend_schema(
        operation_id="delete_lexicon_entry", responses={204: None, **problems(400, 401, 404)}
    )
    def delete(self, request: Request, lexicon_id: uuid.UUID, entry_id: int) -> Response:
        """Delete an entry."""
        check_query(request, ())
        store.delete_entry(_find_entry(request, lexicon_id, entry_id))
        return Response(status=204)


def find_lexicon(request: Request, lexicon_id: uuid.UUID) -> Lexicon:
    """Return a lexicon that this user may see, or raise the 404."""
    lexicon = find_visible_lexicons(request.user).filter(pk=lexicon_id).first()
    if lexicon is None:
        raise store.not_found()
    return lexicon


def find_to_change(request: Request, lexicon_id: uuid.UUID) -> Lexicon:
    """Return a lexicon that this user may change, or raise the 404 or 403."""
    lexicon = find_lexicon(request, lexicon_id)
    store.check_may_change(request.user, lexicon)
    return lexicon


def _find_entry(request: Request, lexicon_id: uuid.UUID, entry_id: int) -> LexiconEntry:
    lexicon = find_to_change(request, lexicon_id)
    entry = lexicon.entries.filter(pk=entry_id).first() if entry_id < 2**63 else None
    if entry is None:
        raise ApiProblem(404, "entry_not_found", "The lexicon has no entry with this id.")
    return entry


def _with_voice(request: Request, values: dict[str, Any]) -> dict[str, Any]:
    """Return values whose voice is found."""
    if values.get("voice") is None:
        return values
    return values | {"voice": find_voice(request.user, values["voice"])}  # type: ignore[arg-type]  # never anonymous


def _view_of(request: Request, lexicon_id: uuid.UUID) -> Any:
    lexicon = _shown(find_visible_lexicons(request.user)).filter(pk=lexicon_id).first()
    if lexicon is None:
        raise store.not_found()
    return LexiconSerializer(lexicon, context={"user": request.user}).data


def _shown(lexicons: QuerySet[Lexicon]) -> QuerySet[Lexicon]:
    """Add what the serializer reads beside the row itself."""
    return lexicons.select_related("voice").annotate(entries_total=Count("entries"))
