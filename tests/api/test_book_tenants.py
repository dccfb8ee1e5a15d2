"""Books, asked for by another user, and without a key."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from rest_framework.test import APIClient

from synth.audiobooks.plans import load_plan
from synth.models import BookSource, RenderJob
from tests.api.test_other_tenant import BOOKS, Route
from tests.factories import make_ended_job, make_job, make_user, make_voice
from tests.synth.books_api.shelf import store_book

pytestmark = pytest.mark.django_db(transaction=True)
BELOW = sorted(route for route in BOOKS if route[0] != "books")
KEY = "a-key-that-both-use"
BODIES: dict[str, dict[str, Any]] = {
    "book-plan": {"edits": []},
    "book-pauses": {"heading": 10},
    "book-priority": {"priority": "bulk"},
}


@pytest.fixture
def first(job_services: None) -> User:
    """A user with books in several states."""
    user = make_user("first")
    voice = make_voice("Ada", owner=user)
    store_book(user)
    store_book(user, job=make_job(owner=user, voice=voice))
    store_book(user, job=make_ended_job(user, voice=voice))
    failed = make_job(owner=user, voice=voice, status="failed", segments_failed=1)
    store_book(user, job=failed)
    return user


def ask(client: APIClient, method: str, name: str, path: str) -> Any:
    """Ask a route, with a body that it takes where it takes one."""
    body = BODIES.get(name) if method in ("PATCH", "POST") else None
    if body is None:
        return client.generic(method, path)
    return client.generic(method, path, json.dumps(body), content_type="application/json")


def path_of(name: str, book: BookSource) -> str:
    """Return the path of a route for a book; of a chapter it is the first one's."""
    below = [load_plan(book).chapters[0].id] if name == "book-chapter" else []
    return reverse(name, args=[book.pk, *below])


def rows() -> list[dict[str, Any]]:
    tables: list[Any] = [BookSource.objects, RenderJob.objects]
    return [dict(row) for table in tables for row in table.order_by("pk").values()]


@pytest.mark.parametrize("route", BELOW)
def test_book_of_another_user_does_not_exist(
    route: Route, first: User, client_of: Callable[[User], APIClient]
) -> None:
    name, method = route
    second, before = client_of(make_user("second")), rows()

    for book in BookSource.objects.filter(owner=first):
        path = path_of(name, book)
        answer = ask(second, method, name, path)

        assert (answer.status_code, answer.json()["code"]) == (404, "book_not_found")
    assert rows() == before


@pytest.mark.parametrize("route", BELOW)
def test_what_another_user_is_refused_the_owner_of_a_book_gets(
    route: Route, first: User, client_of: Callable[[User], APIClient]
) -> None:
    name, method = route
    client = client_of(first)

    codes = []
    for book in BookSource.objects.filter(owner=first):
        path = path_of(name, book)
        answer = ask(client, method, name, path)
        codes.append(answer.status_code)

    assert min(codes) < 300, codes


def test_list_holds_nothing_of_another_user(
    first: User, client_of: Callable[[User], APIClient]
) -> None:
    assert client_of(make_user("second")).get("/api/v1/books").json()["results"] == []
    assert len(client_of(first).get("/api/v1/books").json()["results"]) == 4


def test_same_idempotency_key_of_another_user_makes_a_book_of_his_own(
    first: User, client_of: Callable[[User], APIClient]
) -> None:
    answers = [
        client_of(user).post(
            "/api/v1/books",
            {"file": SimpleUploadedFile("a.txt", b"Some words.")},
            format="multipart",
            headers={"Idempotency-Key": KEY},
        )
        for user in (first, make_user("second"))
    ]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] != answers[1].json()["id"]


@pytest.mark.parametrize("route", sorted(BOOKS))
def test_no_book_is_there_without_a_key(route: Route, first: User) -> None:
    name, method = route
    book = BookSource.objects.filter(owner=first).first()
    assert book is not None
    path = reverse(name) if name == "books" else path_of(name, book)

    answer = APIClient().generic(method, path)

    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
