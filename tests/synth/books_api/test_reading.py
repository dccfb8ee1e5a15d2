"""Lists of books are filtered, and a plan's chapters are read block by block."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.audiobooks.start import start_book
from synth.models import BookSource
from synth.transitions.files import pause_job
from tests.synth.books_api.shelf import path_of, store_book

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]


def listed(client: APIClient, query: str) -> set[str]:
    """Return the ids of the books that a list with this query has."""
    answer = client.get(f"/api/v1/books?{query}")
    assert answer.status_code == 200, answer.json()
    return {book["id"] for book in answer.json()["results"]}


def test_list_of_books_is_filtered_by_status_and_ids(api: APIClient, operator: User) -> None:
    planned, paused, queued, failed = (store_book(operator) for _ in range(4))
    pause_job(start_book(paused).pk)
    start_book(queued)
    BookSource.objects.filter(pk=failed.pk).update(state="failed")

    for query, books in (
        ("status=planned", [planned]),
        ("status=paused", [paused]),
        ("status=queued,failed", [queued, failed]),
        (f"ids={planned.pk},{queued.pk}&status=planned", [planned]),
        (f"batch={uuid.uuid4()}", []),
    ):
        assert listed(api, query) == {str(book.pk) for book in books}, query
    for query in ("status=odd", "ids=1", "batch=x", "title=x", "ids="):
        assert api.get(f"/api/v1/books?{query}").status_code == 400, query


def test_chapter_is_read_block_by_block(api: APIClient, operator: User) -> None:
    book = store_book(operator, [("The Gate", "One.\nTwo.\n* * *\nThree.")])
    plan = api.get(path_of(book, "/plan")).json()
    chapter = next(one for one in plan["chapters"] if one["title"] == "The Gate")
    url = path_of(book, f"/plan/chapters/{chapter['id']}")

    whole = api.get(url).json()
    part = api.get(f"{url}?offset=1&limit=2").json()

    texts = ["The Gate", "One.", "Two.", "* * *", "Three."]
    assert [block["text"] for block in whole["blocks"]] == texts
    assert [block["reason"] for block in whole["blocks"]][3] == "unspeakable"
    assert whole["total"] == chapter["blocks"] == 5
    assert [block["index"] for block in part["blocks"]] == [1, 2]
    wrong = ("offset=-1", "limit=0", "limit=501", "limit=1_0", "limit=x", "page=1")
    for query in (*wrong, "limit=1&limit=2"):
        assert api.get(f"{url}?{query}").status_code == 400, query
    gone = api.get(path_of(book, "/plan/chapters/c0"))
    assert (gone.status_code, gone.json()["code"]) == (404, "chapter_not_found")
