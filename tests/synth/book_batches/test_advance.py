"""Batches go on by themselves: samples first, turns, pauses, limits of keys, and an end."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from synth.audiobooks.start import start_wanted_books
from synth.batches.turns import advance_batch, advance_batches, start_sample
from synth.jobs.removal import delete_job
from synth.models import Batch, BatchEntry, BookSource, RenderJob, Segment, Take, WebhookDelivery
from synth.transitions.files import pause_job
from synth.transitions.jobs import cancel_job, end_job
from tests.factories import make_endpoint
from tests.synth.book_batches.conftest import MakeBatch, books_of
from tests.synth.books_api.shelf import speak_all
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)
BATCHES = "/api/v1/book-batches"
Status = RenderJob.Status
SKIPPED = [{"index": 5, "line": 6, "attr": "file", "code": "file_invalid", "detail": "No."}]


def finish(job: RenderJob, status: Status = Status.SUCCEEDED) -> None:
    """End a job as its worker would, with a take for each segment."""
    segments = speak_all(job)
    Take.objects.update(size_bytes=100)
    RenderJob.objects.filter(pk=job.pk).update(
        segments_done=len(segments), takes_rendered=len(segments), started_at=F("created_at")
    )
    end_job(job.pk, status, audio_seconds=5.0 * len(segments))


def go_on(batch: Batch) -> None:
    """Do what sweeps would do until nothing more is to be done."""
    while advance_batch(batch.pk):
        pass


def samples(batch: Batch) -> list[RenderJob]:
    return [book.sample_job for book in books_of(batch) if book.sample_job is not None]


def jobs(batch: Batch) -> list[RenderJob]:
    return [book.job for book in books_of(batch) if book.job is not None]


def states(api: APIClient, batch: Batch) -> list[str]:
    rows = api.get(f"{BATCHES}/{batch.pk}/entries").json()["results"]
    return [row["state"] for row in rows]


def act(api: APIClient, batch: Batch, action: str, **body: Any) -> Any:
    return api.post(f"{BATCHES}/{batch.pk}/{action}", body, format="json")


def test_books_of_a_batch_start_by_turns_and_no_more_at_once_than_is_set(
    batch_of: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.batches.turns.BATCH_BOOKS_AT_WORK", 2)
    batch = batch_of(3)

    go_on(batch)
    at_first = [book.job is not None for book in books_of(batch)]
    finish(jobs(batch)[0])
    go_on(batch)

    assert at_first == [True, True, False]
    assert all(book.job is not None for book in books_of(batch))
    assert all(job.priority == RenderJob.Priority.BULK for job in jobs(batch))


def test_rest_of_the_books_follows_when_all_samples_have_ended(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(3, sample="first")

    go_on(batch)
    assert states(api, batch) == ["sampling"] * 3
    first, second, third = samples(batch)
    assert first.chapters.count() == 1
    finish(first)
    finish(second)
    go_on(batch)
    assert jobs(batch) == []
    end_job(third.pk, Status.FAILED, error_code="no_audio", error_message="None.")
    go_on(batch)

    assert states(api, batch) == ["queued"] * 3
    row = api.get(f"{BATCHES}/{batch.pk}/entries").json()["results"][2]
    assert (row["sample"]["status"], row["sample"]["error_code"]) == ("failed", "no_audio")
    assert set(first.segments.values_list("seed", "spoken_text")) <= set(
        jobs(batch)[0].segments.values_list("seed", "spoken_text")
    )


def test_rest_waits_for_the_approval_of_one_book_or_of_all(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(3, sample="hold")
    go_on(batch)
    early = act(api, batch, "approve", books=[str(books_of(batch)[0].pk)])
    for job in samples(batch):
        finish(job)
    go_on(batch)

    assert (early.status_code, early.json()["code"]) == (409, "sample_not_ready")
    assert states(api, batch) == ["sampled"] * 3
    assert api.get(f"{BATCHES}/{batch.pk}").json()["status"] == "to_approve"
    one = act(api, batch, "approve", books=[str(books_of(batch)[1].pk)])
    go_on(batch)
    assert one.status_code == 200
    assert states(api, batch) == ["sampled", "queued", "sampled"]
    assert api.post(f"/api/v1/books/{books_of(batch)[0].pk}/approve").status_code == 200
    go_on(batch)
    assert states(api, batch) == ["queued", "queued", "sampled"]
    act(api, batch, "approve")
    go_on(batch)
    assert states(api, batch) == ["queued"] * 3


def test_approving_what_does_not_wait_or_is_not_there_is_refused(
    api: APIClient, batch_of: MakeBatch
) -> None:
    none, held = batch_of(1), batch_of(1, sample="hold")

    assert act(api, none, "approve").json()["code"] == "book_batch_without_hold"
    other = act(api, held, "approve", books=[str(books_of(none)[0].pk)])
    assert (other.status_code, other.json()["code"]) == (404, "book_not_in_batch")
    assert act(api, held, "approve", books=["x"]).status_code == 400
    assert act(api, held, "approve", book=[]).json()["code"] == "unknown_field"


def test_sample_that_was_deleted_is_not_made_again_and_blocks_nothing(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(2, sample="first")
    go_on(batch)
    finish(samples(batch)[0])
    delete_job(samples(batch)[1])

    go_on(batch)

    assert states(api, batch) == ["queued", "queued"]
    assert len(samples(batch)) == 1


def test_samples_wait_for_files_that_an_open_batch_still_lacks(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(1, sample="first", is_closed=False)
    BatchEntry.objects.create(batch=batch, index=1, filename="late.epub")
    go_on(batch)
    finish(samples(batch)[0])

    go_on(batch)
    assert states(api, batch) == ["waiting", "missing"]
    act(api, batch, "close")
    go_on(batch)
    assert states(api, batch) == ["queued", "missing"]


def test_paused_batch_starts_nothing_and_a_book_that_was_paused_before_stays_so(
    api: APIClient, batch_of: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.batches.turns.BATCH_BOOKS_AT_WORK", 2)
    batch = batch_of(3)
    go_on(batch)
    mine, other = jobs(batch)
    pause_job(mine.pk)

    paused = act(api, batch, "pause")
    go_on(batch)
    start_wanted_books()
    assert paused.json()["status"] == "paused"
    assert states(api, batch) == ["paused", "paused", "waiting"]
    assert paused.json()["progress"]["eta_seconds"] is None
    resumed = act(api, batch, "resume")
    go_on(batch)

    assert resumed.json()["status"] == "running"
    assert states(api, batch) == ["paused", "queued", "queued"]
    other.refresh_from_db()
    assert other.paused_at is None


def test_book_that_began_in_the_moment_of_the_pause_is_paused_as_well(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(1)
    act(api, batch, "pause")
    Batch.objects.filter(pk=batch.pk).update(paused_at=batch.created_at)
    Batch.objects.filter(pk=batch.pk).update(paused_at=None)
    go_on(batch)
    Batch.objects.filter(pk=batch.pk).update(paused_at=batch.created_at)

    go_on(batch)

    assert states(api, batch) == ["paused"]
    act(api, batch, "resume")
    assert states(api, batch) == ["queued"]


def test_batch_ends_once_with_a_summary_and_tells_everybody_once(
    api: APIClient, operator: User, batch_of: MakeBatch
) -> None:
    make_endpoint(operator, url="https://example.org/all", events=["book_batch.ended"])
    batch = batch_of(3, sample="first", webhook_url="https://example.org/batch")
    go_on(batch)
    for job in samples(batch):
        finish(job)
    go_on(batch)
    one, two, three = jobs(batch)
    finish(one)
    finish(two, Status.PARTIAL)
    assert not advance_batch(batch.pk)
    cancel_job(three.pk)

    go_on(batch)
    advance_batches()

    answer = api.get(f"{BATCHES}/{batch.pk}").json()
    assert (answer["status"], answer["progress"]["share"]) == ("ended", 1.0)
    totals = answer["summary"]
    assert {k: v for k, v in totals["states"].items() if v} == {
        "succeeded": 1,
        "partial": 1,
        "cancelled": 1,
    }
    report = api.get(f"{BATCHES}/{batch.pk}/report").json()
    assert [row["status"] for row in report["books"]] == ["succeeded", "partial", "cancelled"]
    assert report["books"][0]["audio_seconds"] == 5.0 * one.segments_total
    assert (
        report["books"][0]["bytes"]["takes"]
        == 100 * Segment.objects.filter(job__in=[one, samples(batch)[0]]).count()
    )
    sent = WebhookDelivery.objects.filter(event="book_batch.ended")
    assert sorted(sent.values_list("url", flat=True)) == [
        "https://example.org/all",
        "https://example.org/batch",
    ]
    data = json.loads(sent.first().body)["data"]  # type: ignore[union-attr]  # two of them
    assert (data["id"], len(data["not_whole"])) == (str(batch.pk), 2)


def test_approval_that_makes_a_book_whole_makes_the_summary_of_its_batch_true(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(2)
    Batch.objects.filter(pk=batch.pk).update(report={"skipped": SKIPPED})
    go_on(batch)
    one, two = jobs(batch)
    finish(one)
    finish(two)
    short = two.segments.order_by("pk")[0]
    Take.objects.filter(segments=short).update(audio_seconds=0.01)
    RenderJob.objects.filter(pk=two.pk).update(status="partial", error_code="book_segments_short")
    go_on(batch)
    before = api.get(f"{BATCHES}/{batch.pk}").json()
    RenderJob.objects.filter(pk=one.pk).update(takes_rendered=99)  # another book is not read again

    approved = api.post(f"/api/v1/review/{short.pk}/approve", {"take": str(short.take_id)})

    assert approved.status_code == 200, approved.json()
    answer = api.get(f"{BATCHES}/{batch.pk}").json()
    assert (before["summary"]["states"]["partial"], before["status"]) == (1, "ended")
    assert (answer["summary"]["states"]["succeeded"], answer["status"]) == (2, "ended")
    assert answer["summary"]["states"]["partial"] == 0
    assert answer["updated_at"] > before["updated_at"]
    report = api.get(f"{BATCHES}/{batch.pk}/report").json()
    assert [row["status"] for row in report["books"]] == ["succeeded", "succeeded"]
    assert report["books"][1]["error_code"] == ""
    assert report["books"][0]["takes_rendered"] == one.segments_total
    assert answer["skipped"] == report["skipped"] == SKIPPED
    assert not advance_batch(batch.pk)


def test_book_that_is_tried_again_by_itself_changes_the_summary_of_an_ended_batch(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(2)
    go_on(batch)
    one, two = jobs(batch)
    finish(one)
    finish(two, Status.PARTIAL)
    go_on(batch)
    RenderJob.objects.filter(pk=two.pk).update(status="running")
    advance_batches()
    meanwhile = api.get(f"{BATCHES}/{batch.pk}").json()["summary"]["states"]

    end_job(two.pk, Status.SUCCEEDED)
    count = advance_batches()  # as the sweep does where the message was lost

    assert meanwhile["partial"] == 1
    assert api.get(f"{BATCHES}/{batch.pk}").json()["summary"]["states"]["succeeded"] == 2
    assert (count, advance_batches()) == (1, 0)
    assert WebhookDelivery.objects.count() == 0


def test_entries_that_were_skipped_are_told_after_the_end_and_after_a_retry(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(1)
    Batch.objects.filter(pk=batch.pk).update(report={"skipped": SKIPPED})
    go_on(batch)
    finish(jobs(batch)[0], Status.PARTIAL)
    Segment.objects.filter(job=jobs(batch)[0]).update(status="failed", take=None)
    go_on(batch)
    ended = api.get(f"{BATCHES}/{batch.pk}/report").json()

    again = act(api, batch, "retry").json()

    assert ended["skipped"] == SKIPPED
    assert (again["skipped"], again["summary"]) == (SKIPPED, None)


def test_batch_that_is_not_closed_does_not_end(api: APIClient, batch_of: MakeBatch) -> None:
    batch = batch_of(1, is_closed=False)
    go_on(batch)
    finish(jobs(batch)[0])
    go_on(batch)
    assert api.get(f"{BATCHES}/{batch.pk}").json()["status"] == "open"

    act(api, batch, "close")
    go_on(batch)

    assert api.get(f"{BATCHES}/{batch.pk}").json()["status"] == "ended"


def test_book_that_cannot_start_fails_alone_and_a_retry_takes_it_again(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(2)
    BookSource.objects.filter(pk=books_of(batch)[0].pk).update(
        options={"voice": "Nobody", "format": "wav", "priority": "bulk", "seed": 0}
    )
    go_on(batch)
    assert states(api, batch) == ["failed", "queued"]
    finish(jobs(batch)[0])
    go_on(batch)
    assert api.get(f"{BATCHES}/{batch.pk}").json()["status"] == "ended"
    BookSource.objects.filter(pk=books_of(batch)[0].pk).update(
        options={"voice": "Ada", "format": "wav", "priority": "bulk", "seed": 0}
    )

    again = act(api, batch, "retry")
    go_on(batch)

    assert again.status_code == 202
    assert states(api, batch) == ["queued", "succeeded"]
    finish(jobs(batch)[0])
    go_on(batch)
    nothing = act(api, batch, "retry")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "nothing_to_retry")


def test_cancelled_batch_stops_all_and_a_retry_goes_on_with_all(
    api: APIClient, batch_of: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.batches.turns.BATCH_BOOKS_AT_WORK", 1)
    batch = batch_of(2)
    go_on(batch)

    answer = act(api, batch, "cancel").json()
    go_on(batch)

    assert answer["status"] == "cancelling"
    assert states(api, batch) == ["cancelled", "cancelled"]
    assert api.get(f"{BATCHES}/{batch.pk}").json()["status"] == "cancelled"
    act(api, batch, "retry")
    go_on(batch)
    finish(jobs(batch)[0])
    go_on(batch)
    assert states(api, batch) == ["succeeded", "queued"]


def test_book_that_does_not_fit_its_key_waits_and_says_why(
    api: APIClient, operator: User, batch_of: MakeBatch
) -> None:
    key, _ = create_key(operator, "small")
    batch = batch_of(2)
    BookSource.objects.filter(pk__in=batch.entries.values("book")).update(api_key=key)
    key.max_queued_chars = 300
    key.save()

    go_on(batch)

    assert states(api, batch) == ["queued", "waiting"]
    row = api.get(f"{BATCHES}/{batch.pk}/entries").json()["results"][1]
    assert "300 queued characters" in row["waits_for"]
    assert row["error_code"] == ""
    finish(jobs(batch)[0])
    go_on(batch)
    row = api.get(f"{BATCHES}/{batch.pk}/entries").json()["results"][1]
    assert (row["state"], row["waits_for"]) == ("queued", "")


def test_book_waits_for_a_voice_that_is_being_encoded(api: APIClient, batch_of: MakeBatch) -> None:
    batch = batch_of(1)
    voice = Voice.objects.get(name="Ada")
    encoded_at = voice.versions.get().encoded_at
    voice.versions.update(status="pending", encoded_at=None)
    go_on(batch)
    assert states(api, batch) == ["waiting"]

    voice.versions.update(status="ready", encoded_at=encoded_at)
    go_on(batch)

    assert states(api, batch) == ["queued"]


def test_priority_reaches_jobs_books_that_wait_and_later_uploads(
    api: APIClient, batch_of: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.batches.turns.BATCH_BOOKS_AT_WORK", 1)
    batch = batch_of(2)
    go_on(batch)

    answer = act(api, batch, "priority", priority="interactive").json()
    wrong = act(api, batch, "priority", priority="now")

    assert answer["priority"] == "interactive"
    assert jobs(batch)[0].priority == RenderJob.Priority.INTERACTIVE
    assert books_of(batch)[1].options["priority"] == "interactive"
    assert wrong.status_code == 400


def test_deleted_job_of_a_book_does_not_start_it_again(api: APIClient, batch_of: MakeBatch) -> None:
    batch = batch_of(2)
    go_on(batch)
    finish(jobs(batch)[1])
    delete_job(jobs(batch)[0])

    go_on(batch)

    assert states(api, batch) == ["deleted", "succeeded"]
    assert RenderJob.objects.count() == 1


def test_two_workers_at_once_start_a_book_once(batch_of: MakeBatch) -> None:
    batch = batch_of(1, sample="first")
    stale = BatchEntry.objects.select_related("book").get(batch=batch)
    go_on(batch)
    assert stale.book is not None

    assert start_sample(stale.book) is None
    assert RenderJob.objects.count() == 1
    assert Segment.objects.count() == samples(batch)[0].segments_total


def test_sample_is_heard_and_says_when_it_is_not_there(api: APIClient, batch_of: MakeBatch) -> None:
    batch = batch_of(1, sample="hold")
    path = f"/api/v1/books/{books_of(batch)[0].pk}/sample"

    none = api.get(path)
    go_on(batch)
    early = api.get(path)

    assert (none.status_code, none.json()["code"]) == (404, "book_without_sample")
    assert (early.status_code, early.json()["code"]) == (409, "sample_not_ready")


def test_batch_of_two_hundred_books_is_gone_on_with_by_a_bounded_number_of_queries(
    api: APIClient, operator: User, batch_of: MakeBatch, django_assert_max_num_queries: Any
) -> None:
    batch = batch_of(1)
    book = books_of(batch)[0]
    copies = []
    for number in range(199):
        copy = BookSource.objects.get(pk=book.pk)
        copy.pk, copy.filename = uuid.uuid4(), f"x{number}"
        copies.append(copy)
    BookSource.objects.bulk_create(copies)
    BatchEntry.objects.bulk_create(
        BatchEntry(batch=batch, index=n, filename=copy.filename, book=copy)
        for n, copy in enumerate(copies, 1)
    )
    BookSource.objects.update(state="importing")

    with django_assert_max_num_queries(15):
        advance_batch(batch.pk)
    with django_assert_max_num_queries(20):
        answer = api.get(f"{BATCHES}/{batch.pk}").json()
    with django_assert_max_num_queries(25):
        api.get(f"{BATCHES}/{batch.pk}/entries?limit=200")

    assert answer["counts"]["importing"] == 200
