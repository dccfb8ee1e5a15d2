"""Lists of books are filtered, and a plan's chapters are read block by block."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from rest_framework.test import APIClient

from synth.audiobooks.start import start_book
from synth.models import BookSource
from synth.transitions.files import pause_job
from tests.factories import make_user, make_voice
from tests.synth.books_api.shelf import store_book

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]


def client_of(user: Any) -> APIClient:
    """Return a client that is logged in."""
    client = APIClient()
    client.force_authenticate(user)
    return client


def listed(client: APIClient, query: str) -> set[str]:
    """Return the ids of the books that a list with this query has."""
    answer = client.get(f"/api/v1/books?{query}")
    assert answer.status_code == 200, answer.json()
    return {book["id"] for book in answer.json()["results"]}


def test_list_of_books_is_filtered_by_status_and_ids() -> None:
    user = make_user()
    make_voice("Ada", owner=user)
    planned, paused, queued, failed = (store_book(user) for _ in range(4))
    pause_job(start_book(paused).pk)
    start_book(queued)
    BookSource.objects.filter(pk=failed.pk).update(state="failed")
    client = client_of(user)

    assert listed(client, "status=planned") == {str(planned.pk)}
    assert listed(client, "status=paused") == {str(paused.pk)}
    assert listed(client, "status=queued,failed") == {str(queued.pk), str(failed.pk)}
    assert listed(client, f"ids={planned.pk},{queued.pk}&status=planned") == {str(planned.pk)}
    assert listed(client, f"batch={uuid.uuid4()}") == set()


@pytest.mark.parametrize("query", ["status=odd", "ids=1", "batch=x", "title=x", "ids="])
def test_filter_of_books_that_cannot_be_read_is_refused(query: str) -> None:
    answer = client_of(make_user()).get(f"/api/v1/books?{query}")

    assert answer.status_code == 400


def test_books_of_others_are_not_listed_by_their_ids() -> None:
    theirs = store_book(make_user())

    assert listed(client_of(make_user()), f"ids={theirs.pk}") == set()


def test_chapter_is_read_block_by_block() -> None:
    user = make_user()
    book = store_book(user, [("The Gate", "One.\nTwo.\n* * *\nThree.")])
    client = client_of(user)
    plan = client.get(f"/api/v1/books/{book.pk}/plan").json()
    chapter = next(one for one in plan["chapters"] if one["title"] == "The Gate")
    url = f"/api/v1/books/{book.pk}/plan/chapters/{chapter['id']}"

    whole = client.get(url).json()
    part = client.get(f"{url}?offset=1&limit=2").json()

    assert [block["text"] for block in whole["blocks"]] == [
        "The Gate", "One.", "Two.", "* * *", "Three."
    ]  # fmt: skip
    assert [block["reason"] for block in whole["blocks"]][3] == "unspeakable"
    assert whole["total"] == chapter["blocks"] == 5
    assert [block["index"] for block in part["blocks"]] == [1, 2]


@pytest.mark.parametrize(
    "query",
    ["offset=-1", "limit=0", "limit=501", "limit=1_0", "limit=x", "page=1", "limit=1&limit=2"],
)
def test_blocks_that_are_asked_for_wrongly_are_refused(query: str) -> None:
    user = make_user()
    book = store_book(user)

    answer = client_of(user).get(f"/api/v1/books/{book.pk}/plan/chapters/x?{query}")

    assert answer.status_code == 400


def test_unknown_chapter_and_others_book_are_not_found() -> None:
    user = make_user()
    book = store_book(user)
    url = f"/api/v1/books/{book.pk}/plan/chapters/c0"

    assert client_of(user).get(url).json()["code"] == "chapter_not_found"
    assert client_of(make_user()).get(url).json()["code"] == "book_not_found"
