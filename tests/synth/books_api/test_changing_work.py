"""Pauses and priority of a book, before its start and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.audiobooks.start import start_book
from synth.models import BookSource, RenderJob
from synth.text.pauses import DEFAULT_PAUSES
from tests.synth.books_api.shelf import end, path_of, speak_all, store_book

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]


def set_pauses(api: APIClient, book: BookSource, **pauses: Any) -> Any:
    return api.patch(path_of(book, "/pauses"), pauses, format="json")


def finished(owner: User) -> tuple[BookSource, RenderJob]:
    """Return a book whose job has its file."""
    book = store_book(owner)
    job = start_book(book)
    speak_all(job)
    assert end(job).status == "succeeded", job.error_message
    return BookSource.objects.get(pk=book.pk), job


def pauses_of(job: RenderJob) -> list[list[int]]:
    return [
        list(one.segments.order_by("index").values_list("pause_after_ms", flat=True))
        for one in job.chapters.all()
    ]


def test_pauses_of_a_finished_book_are_changed_and_only_its_file_is_made_again(
    api: APIClient, operator: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    book, job = finished(operator)
    before = pauses_of(job)
    sent = len(sent_tasks("assemble"))

    answer = set_pauses(api, book, heading=50, chapter=4000, sentence=301)

    assert answer.status_code == 202, answer.json()
    job.refresh_from_db()
    assert (job.status, job.pauses) == (
        "running",
        {"heading": 50, "chapter": 4000, "sentence": 301},
    )
    assert set(job.segments.values_list("status", flat=True)) == {"done"}
    usual = DEFAULT_PAUSES
    new = {usual.heading: 50, usual.chapter: 4000, usual.sentence: 301}
    assert pauses_of(job) == [[new.get(one, one) for one in chapter] for chapter in before]
    assert pauses_of(job)[-1][-1] == 0
    assert list(job.exports.values_list("status", flat=True)) == ["queued"]
    assert len(sent_tasks("assemble")) == sent + 1


def test_null_is_the_usual_length_and_what_is_left_out_stays(
    api: APIClient, operator: User
) -> None:
    book = store_book(operator)

    set_pauses(api, book, chapter=100, scene=200)
    answer = set_pauses(api, book, scene=None)

    assert answer.status_code == 200
    assert BookSource.objects.get().options["pauses"] == {"chapter": 100}
    job = start_book(BookSource.objects.get())
    assert pauses_of(job)[0][-1] == 100
    assert job.pauses == {"chapter": 100}


def test_pauses_change_with_what_is_rendered_and_the_state_of_the_book_kept(
    api: APIClient, operator: User
) -> None:
    book = store_book(operator)
    job = start_book(book)

    answer = set_pauses(api, book, paragraph=0, heading=10)

    assert answer.status_code == 202
    assert {one[0] for one in pauses_of(job)} == {10}
    assert set(job.segments.values_list("status", flat=True)) == {"queued"}
    RenderJob.objects.filter(pk=job.pk).update(status="cancelled", cancel_requested=True)
    for time in ("first", "second"):  # the same again changes nothing
        answer = set_pauses(api, book, heading=20)
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled"), time
        assert {one[0] for one in pauses_of(job)} == {20}, time


def test_book_of_which_the_kinds_of_pauses_are_unknown_is_refused_other_pauses(
    api: APIClient, operator: User
) -> None:
    book, job = finished(operator)
    RenderJob.objects.filter(pk=job.pk).update(pauses={"chapter": 10})
    same = set_pauses(api, book, chapter=10)
    for chapter in book.started["chapters"]:
        chapter.pop("pauses")
    book.save()

    answer = set_pauses(api, book, heading=10)

    assert (same.status_code, same.json()["status"]) == (200, "succeeded")
    assert (answer.status_code, answer.json()["code"]) == (409, "pauses_unknown")
    job.refresh_from_db()
    assert job.status == "succeeded"


def test_pauses_that_are_none_are_refused(api: APIClient, operator: User) -> None:
    book = store_book(operator)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"pause": 3}, "unknown_field"),
        ({"chapter": -1}, "out_of_range"),
        ({"chapter": 10_001}, "out_of_range"),
        *(({"chapter": value}, "invalid") for value in (1.0, True, "5")),
    ]
    for body, code in wrong:
        answer = set_pauses(api, book, **body)
        assert answer.status_code == 400, body
        found = [answer.json()["code"], *(one["code"] for one in answer.json()["errors"])]
        assert code in found, body
    of_job = {"text": "Hello there.", "voice": "Ada", "pauses": {"chapter": 5}}
    answer = api.post("/api/v1/jobs", of_job, format="json")  # which has no chapters
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["attr"] == "pauses.chapter"


def test_priority_is_that_of_the_job_to_come_or_of_the_job(api: APIClient, operator: User) -> None:
    planned, started = store_book(operator), store_book(operator)
    job = start_book(started)

    for book in (planned, started):
        answer = api.post(path_of(book, "/priority"), {"priority": "interactive"}, format="json")
        assert answer.status_code == 200, answer.json()

    job.refresh_from_db()
    assert job.priority == RenderJob.Priority.INTERACTIVE
    planned.refresh_from_db()
    assert start_book(planned).priority == RenderJob.Priority.INTERACTIVE


def test_priority_of_an_ended_book_and_of_no_class_is_refused(
    api: APIClient, operator: User
) -> None:
    book, _ = finished(operator)

    ended = api.post(path_of(book, "/priority"), {"priority": "bulk"}, format="json")
    unknown = api.post(path_of(book, "/priority"), {"priority": "high"}, format="json")
    missing = api.post(path_of(book, "/priority"), {}, format="json")

    assert (ended.status_code, ended.json()["code"]) == (409, "job_ended")
    assert [unknown.status_code, missing.status_code] == [400, 400]
