"""Compiled lexicons are kept between requests, and never out of date."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from synth.lexicons.book import MAX_LAYERS, read_layer
from synth.models import Lexicon
from tests.factories import make_lexicon

pytestmark = pytest.mark.django_db(transaction=True)


def test_entries_are_read_once_until_they_change(
    operator: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    lexicon = make_lexicon(operator, ("a", "b"))
    first = read_layer(lexicon, "en")

    with django_assert_num_queries(0):
        assert read_layer(lexicon, "en") is first
    with django_assert_num_queries(1):
        assert read_layer(lexicon, "de") is not first


def test_cache_keeps_no_more_than_its_bound(
    operator: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    old, *others = [make_lexicon(operator, ("a", "b")) for _ in range(MAX_LAYERS + 1)]

    for lexicon in (old, *others):
        read_layer(lexicon, "en")

    with django_assert_num_queries(1):
        read_layer(old, "en")


def test_every_change_over_the_api_is_heard_in_the_next_request(
    api: APIClient, operator: User
) -> None:
    lexicon = make_lexicon(operator, ("data", "one"), name="House")
    entries, entry = f"/api/v1/lexicons/{lexicon.pk}/entries", lexicon.entries.get()
    path = f"{entries}/{entry.pk}"

    def said() -> list[str]:
        body = {"text": "All of the data is here.", "name": "House"}
        answer = api.post("/api/v1/lexicons/preview", body).json()
        return [change["said"] for row in answer["segments"] for change in row["changes"]]

    assert said() == ["one"]
    api.patch(path, {"say": "two"})
    assert said() == ["two"]
    api.patch(path, {"enabled": False})
    assert said() == []
    api.post(entries, {"find": "data", "say": "three"})
    assert said() == ["three"]
    api.patch(f"/api/v1/lexicons/{lexicon.pk}", {"language": "fr"})
    assert said() == []
    api.patch(f"/api/v1/lexicons/{lexicon.pk}", {"language": ""})
    content = "find,say\ndata,four\n"
    imported = api.generic(
        "POST", f"/api/v1/lexicons/{lexicon.pk}/import?mode=replace", content,
        content_type="text/csv",
    )  # fmt: skip
    assert imported.status_code == 200
    assert said() == ["four"]
    assert Lexicon.objects.get().entries.count() == 1
