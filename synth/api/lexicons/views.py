"""Serve lexicons and their entries over REST."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db.models import Count, QuerySet
from rest_framework.request import Request
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
from ttsweb.http.api import ApiProblem
from ttsweb.http.nouns import ListView, Noun, list_rows
from ttsweb.http.pagination import IndexCursorPagination
from voices.access import find_voice


def find_lexicon(request: Request, lexicon_id: uuid.UUID) -> Lexicon:
    """Return a lexicon that this user may see, or raise the 404."""
    lexicon = _shown(find_visible_lexicons(request.user)).filter(pk=lexicon_id).first()
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


def _with_voice(request: Request, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values whose voice is found."""
    if values.get("voice") is None:
        return values
    return {**values, "voice": find_voice(request.user, values["voice"])}  # type: ignore[arg-type]  # never anonymous


def _shown(lexicons: QuerySet[Lexicon]) -> QuerySet[Lexicon]:
    """Add what the serializer reads beside the row itself."""
    return lexicons.select_related("voice").annotate(entries_total=Count("entries"))


def _make(request: Request, asked: Mapping[str, Any]) -> Lexicon:
    values = dict(asked)
    is_shared = values.pop("shared")
    if is_shared and not getattr(request.user, "is_superuser", False):
        raise ApiProblem(
            403,
            "lexicon_shared",
            "Only an administrator can create a lexicon for all users; leave `shared` out.",
            attr="shared",
        )
    owner_id = None if is_shared else request.user.pk
    made = store.save_lexicon(Lexicon(owner_id=owner_id), _with_voice(request, values))
    return find_lexicon(request, made.pk)


LEXICON = Noun("lexicon", LexiconSerializer, find_lexicon)
ENTRY = Noun("lexicon-entry", EntryRowSerializer, _find_entry)


class LexiconsView(ListView[Lexicon]):
    """All lexicons that the user may use."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = LexiconSerializer
    filters = LexiconFilterSerializer

    def rows(self) -> QuerySet[Lexicon]:
        """Return the lexicons."""
        return _shown(find_visible_lexicons(self.request.user))

    def get_serializer_context(self) -> dict[str, Any]:
        """Return whose view of them it is."""
        return {**super().get_serializer_context(), "user": self.request.user}

    get = list_rows(
        "list_lexicons",
        "List lexicons, newest first.",
        LexiconSerializer,
        filters=LexiconFilterSerializer,
    )
    post = LEXICON.maker(
        "create_lexicon",
        "Create a lexicon without entries.",
        _make,
        LexiconCreateSerializer,
        *(404, 409),
    )


class LexiconView(APIView):
    """One lexicon."""

    write_scopes = (ApiKey.Scope.JOBS,)

    get = LEXICON.getter(
        "get_lexicon", "Return a lexicon; GET its `entries` for the entries.", is_conditional=True
    )
    patch = LEXICON.changer(
        "update_lexicon",
        "Change a lexicon; existing jobs are not changed.",
        lambda request, lexicon, asked: store.save_lexicon(lexicon, _with_voice(request, asked)),
        LexiconChangeSerializer,
        409,
        find=find_to_change,
    )
    delete = LEXICON.deleter(
        "delete_lexicon",
        "Delete a lexicon and its entries; existing jobs are not changed.",
        store.delete_lexicon,
        find=find_to_change,
    )


class EntriesView(ListView[LexiconEntry]):
    """The entries of a lexicon."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = EntryRowSerializer
    pagination_class = IndexCursorPagination

    def rows(self) -> QuerySet[LexiconEntry]:
        """Return the lexicon's entries."""
        lexicon = find_lexicon(self.request, self.kwargs["lexicon_id"])
        return LexiconEntry.objects.filter(lexicon=lexicon)

    get = list_rows(
        "list_lexicon_entries", "List the entries in their order.", EntryRowSerializer, 404
    )
    post = ENTRY.maker(
        "create_lexicon_entry",
        "Add an entry. A pattern that takes too long is refused with `pattern_too_slow`.",
        lambda request, asked, lexicon: store.add_entry(lexicon, asked),
        EntryChangeSerializer,
        *(404, 409),
        within=find_to_change,
    )


class EntryView(APIView):
    """One entry of a lexicon."""

    write_scopes = (ApiKey.Scope.JOBS,)

    patch = ENTRY.changer(
        "update_lexicon_entry",
        "Change an entry.",
        lambda request, entry, asked: store.change_entry(entry, asked),
        EntryChangeSerializer,
    )
    delete = ENTRY.deleter("delete_lexicon_entry", "Delete an entry.", store.delete_entry)
