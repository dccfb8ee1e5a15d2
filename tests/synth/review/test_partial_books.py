"""A book that is partial for short takes alone succeeds once a person has approved the last one."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth import review as short_segments
from synth.audiobooks.start import start_book
from synth.models import BookSource, RenderJob, Segment, WebhookDelivery
from synth.transitions.segment_edits import end_as_whole
from tests.factories import make_endpoint, make_export, make_voice
from tests.synth.books_api.shelf import speak_all, store_book

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def book(operator: User) -> BookSource:
    """A book all of whose segments are spoken, two of them far too fast."""
    make_voice("Ada", owner=operator)
    book = store_book(operator)
    job = start_book(book)
    segments = speak_all(job, seconds=60.0)
    for segment in segments[:2]:
        segment.refresh_from_db()
        assert segment.take is not None
        segment.take.audio_seconds = 0.01
        segment.take.save()
    make_export(job)
    RenderJob.objects.filter(pk=job.pk).update(
        status="partial", error_code="book_segments_short", segments_done=len(segments)
    )
    book.refresh_from_db()
    return book


def short(book: BookSource) -> list[Segment]:
    return list(Segment.objects.filter(job=book.job_id, take__audio_seconds__lt=1).order_by("pk"))


def approve(api: APIClient, segment: Segment) -> None:
    answer = api.post(f"/api/v1/review/{segment.pk}/approve", {"take": str(segment.take_id)})
    assert answer.status_code == 200, answer.content


def test_book_succeeds_with_the_last_approval_and_keeps_its_file(
    api: APIClient, operator: User, book: BookSource
) -> None:
    make_endpoint(operator, events=["job.succeeded"])
    one, two = short(book)
    job = RenderJob.objects.get(book=book)
    export = job.exports.get()
    assert [item["reason"] for item in api.get("/api/v1/review").json()["results"]] == ["short"] * 2

    approve(api, one)
    job.refresh_from_db()
    assert (job.status, job.error_code) == ("partial", "book_segments_short")
    assert str(two.pk) in job.error_message
    left = api.get("/api/v1/review").json()
    assert (left["left"], [item["id"] for item in left["results"]]) == (1, [two.pk])
    approve(api, two)

    job.refresh_from_db()
    assert (job.status, job.error_code, job.error_message) == ("succeeded", "", "")
    assert job.exports.get() == export
    assert api.get(f"/api/v1/books/{book.pk}/proof").json()["is_complete"]
    shown = [
        json.loads(body)["type"] for body in WebhookDelivery.objects.values_list("body", flat=True)
    ]
    assert shown == ["job.succeeded"]
    assert not end_as_whole(job.pk)


def test_more_short_segments_than_are_named_are_listed_as_well(
    api: APIClient, book: BookSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_segments, "MOST_IDS", 1)
    listed = api.get("/api/v1/review").json()
    assert [item["id"] for item in listed["results"]] == [one.pk for one in short(book)]


def test_choosing_the_take_that_is_kept_does_the_same(api: APIClient, book: BookSource) -> None:
    for segment in short(book):
        choose = f"/api/v1/jobs/{book.job_id}/segments/{segment.pk}/choose"
        assert api.post(choose, {"take": str(segment.take_id)}).status_code == 200
    assert RenderJob.objects.get(book=book).status == "succeeded"


def test_book_with_a_failed_segment_stays_partial(api: APIClient, book: BookSource) -> None:
    RenderJob.objects.filter(book=book).update(error_code="segments_failed")
    for segment in short(book):
        approve(api, segment)
    assert RenderJob.objects.get(book=book).status == "partial"
