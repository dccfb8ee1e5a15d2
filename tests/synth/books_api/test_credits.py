"""Credits: templates that are checked, filled in from the book, and spoken as chapters."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.models import BookSource, RenderJob
from tests.synth.books_api.shelf import path_of, refusal_of, speak_all
from tests.synth.books_api.test_casting import CAST, change, store

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("voices")]
OPENING = "{title}, by {authors}, published in {year}. Read by {narrators}."


def test_credits_are_the_first_and_last_chapter_and_stand_for_no_text_of_the_book(
    api: APIClient, operator: User
) -> None:
    book = store(operator, casting=CAST)
    plan = change(api, book, opening_credits=OPENING, closing_credits="The end of {title}.").json()

    job = start_book(BookSource.objects.get())

    opening = "A Gate, by A. Porter and B. Porter, published in 1899. Read by Ada, Bob and Cy."
    assert plan["credits"] == {"opening_credits": opening, "closing_credits": "The end of A Gate."}
    titles = [chapter.title for chapter in job.chapters.all()]
    assert titles == ["Opening credits", "The Gate", "Closing credits"]
    first = job.chapters.all()[0].segments.order_by("index")
    assert " ".join(first.values_list("text", flat=True)) == opening
    assert job.segments.order_by("-pk").first().pause_after_ms == 0  # type: ignore[union-attr]
    speak_all(job)
    proof = proof_of(BookSource.objects.get())
    assert [one["source_chars"] > 0 for one in proof["chapters"]] == [False, True, False]
    assert (proof["is_balanced"], proof["is_complete"]) == (True, True)


def test_metadata_that_people_gave_is_that_of_the_credits_where_there_are_any(
    operator: User,
) -> None:
    metadata = {"title": "The Other Gate", "narrators": ["Nan"]}
    production = {"opening_credits": "{title}, read by {narrators}."}
    job = start_book(store(operator, production=production, metadata=metadata))
    plain = start_book(store(operator))

    first = job.segments.order_by("pk")[0]
    assert first.text == "The Other Gate, read by Nan."
    assert [chapter.title for chapter in plain.chapters.all()] == ["The Gate"]


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ("By {author}.", "placeholder_unknown"),
        ("A {title", "placeholder_unknown"),
        ("{}", "placeholder_unknown"),
        ("{title.__class__}", "placeholder_unknown"),
        ("...", "text_unspeakable"),
        ("<|speaker:1|>{title}", "text_has_tags"),
        ("x" * 2001, "max_length"),
        (["{title}"], "invalid"),
        ("a\0b", "null_characters_not_allowed"),
    ],
    ids=["unknown", "alone", "empty", "attribute", "silent", "tag", "long", "list", "nul"],
)
def test_template_that_cannot_be_spoken_is_refused(
    api: APIClient, operator: User, template: Any, code: str
) -> None:
    answer = change(api, store(operator), closing_credits=template)

    assert answer.status_code == 400
    assert [one["code"] for one in answer.json()["errors"]] == [code], answer.json()
    assert answer.json()["errors"][0]["attr"] == "closing_credits"


def test_placeholder_that_the_book_cannot_fill_is_told_and_stops_the_start(
    api: APIClient, operator: User
) -> None:
    book = store(operator)
    plan = change(api, book, opening_credits="From {publisher}.").json()

    answer = api.post(path_of(book, "/start"))
    error = refusal_of(store(operator, production={"closing_credits": "{subtitle}"}))

    assert any("{publisher}" in warning for warning in plan["warnings"])
    assert plan["credits"] == {}
    assert (answer.status_code, answer.json()["code"]) == (409, "credits_incomplete")
    assert (error.code, error.attr) == ("credits_incomplete", "closing_credits")
    assert not RenderJob.objects.exists()


def test_credits_are_taken_back(api: APIClient, operator: User) -> None:
    for nothing in ("", None):
        book = store(operator, production={"opening_credits": OPENING, "preset": "standard"})
        shown = change(api, book, opening_credits=nothing).json()
        assert shown["opening_credits"] == "", repr(nothing)
        production = BookSource.objects.get(pk=book.pk).production
        assert production == {"preset": "standard"}, repr(nothing)


def test_preset_of_the_shop_that_asks_for_credits_tells_their_lack(
    api: APIClient, operator: User
) -> None:
    production = {"preset": "acx", "opening_credits": "{title}."}

    plan = api.get(path_of(store(operator, production=production), "/plan")).json()

    body = [warning for warning in plan["warnings"] if "acx" in warning]
    assert len(body) == 1
    assert "closing credits" in body[0]
