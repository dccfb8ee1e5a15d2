"""Batches go on by themselves: samples first, turns, pauses, limits of keys, and an end."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.audiobooks.start import start_wanted_books
from synth.batches.turns import advance_batch, advance_batches, start_sample
from synth.jobs.removal import delete_job
from synth.models import Batch, BatchEntry, BookSource, RenderJob, Segment, Take, WebhookDelivery
from synth.transitions.files import pause_job
from synth.transitions.jobs import cancel_job, end_job
from tests.factories import make_endpoint, stored
from tests.synth.book_batches.conftest import MakeBatch, books_of, go_on
from tests.synth.books_api.shelf import speak_all
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)
Status = RenderJob.Status
SKIPPED = [{"index": 5, "line": 6, "attr": "file", "code": "file_invalid", "detail": "No."}]


@dataclass(frozen=True)
class Run:
    """A batch that goes on as sweeps would have it, and what the API tells of it."""

    api: APIClient
    batch: Batch

    def get(self, path: str = "") -> Any:
        return self.api.get(f"/api/v1/book-batches/{self.batch.pk}{path}").json()

    def act(self, action: str, **body: Any) -> Any:
        path = f"/api/v1/book-batches/{self.batch.pk}/{action}"
        return self.api.post(path, body, format="json")

    def entries(self) -> list[dict[str, Any]]:
        """Return the rows of its books."""
        rows: list[dict[str, Any]] = self.get("/entries")["results"]
        return rows

    def states(self, *, goes_on: bool = True) -> list[str]:
        """Return the states of its books, once nothing more is to be done."""
        if goes_on:
            go_on(self.batch)
        return [row["state"] for row in self.entries()]

    def samples(self) -> list[RenderJob]:
        return [one.sample_job for one in books_of(self.batch) if one.sample_job is not None]

    def jobs(self) -> list[RenderJob]:
        return [one.job for one in books_of(self.batch) if one.job is not None]

    def finish(
        self, *jobs: RenderJob, status: Status = Status.SUCCEEDED, goes_on: bool = True
    ) -> None:
        """End jobs as their workers would, with a take for each segment; then go on."""
        for job in jobs:
            segments = speak_all(job)
            Take.objects.update(size_bytes=100)
            number = len(segments)
            RenderJob.objects.filter(pk=job.pk).update(
                segments_done=number, takes_rendered=number, started_at=F("created_at")
            )
            end_job(job.pk, status, audio_seconds=5.0 * number)
        if goes_on:
            go_on(self.batch)


@pytest.fixture
def make(
    api: APIClient, batch_of: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    """A function that makes a batch of so many books, of which some at most are at work."""

    def begin(books: int, *, at_work: int = 16, goes_on: bool = True, **fields: Any) -> Run:
        monkeypatch.setattr("synth.batches.turns.BATCH_BOOKS_AT_WORK", at_work)
        run = Run(api, batch_of(books, **fields))
        if goes_on:
            go_on(run.batch)
        return run

    return begin


Make = Callable[..., Run]


def test_books_of_a_batch_start_by_turns_and_no_more_at_once_than_is_set(make: Make) -> None:
    run = make(3, at_work=2)

    at_first = [book.job is not None for book in books_of(run.batch)]
    run.finish(run.jobs()[0])

    assert at_first == [True, True, False]
    assert [job.priority for job in run.jobs()] == [RenderJob.Priority.BULK] * 3


def test_rest_of_the_books_follows_when_all_samples_have_ended(make: Make) -> None:
    run = make(3, sample="first")

    assert run.states() == ["sampling"] * 3
    first, second, third = run.samples()
    assert first.chapters.count() == 1
    run.finish(first, second)
    assert run.jobs() == []
    end_job(third.pk, Status.FAILED, error_code="no_audio", error_message="None.")

    assert run.states() == ["queued"] * 3
    sample = run.entries()[2]["sample"]
    assert (sample["status"], sample["error_code"]) == ("failed", "no_audio")
    assert set(first.segments.values_list("seed", "spoken_text")) <= set(
        run.jobs()[0].segments.values_list("seed", "spoken_text")
    )


def test_rest_waits_for_the_approval_of_one_book_or_of_all(make: Make) -> None:
    run = make(3, sample="hold")
    first, second, _ = books_of(run.batch)
    early = run.act("approve", books=[str(first.pk)])
    run.finish(*run.samples())

    assert (early.status_code, early.json()["code"]) == (409, "sample_not_ready")
    assert run.states() == ["sampled"] * 3
    assert run.get()["status"] == "to_approve"
    assert run.act("approve", books=[str(second.pk)]).status_code == 200
    assert run.states() == ["sampled", "queued", "sampled"]
    assert run.api.post(f"/api/v1/books/{first.pk}/approve").status_code == 200
    assert run.states() == ["queued", "queued", "sampled"]
    run.act("approve")
    assert run.states() == ["queued"] * 3


def test_approving_what_does_not_wait_or_is_not_there_is_refused(make: Make) -> None:
    none, held = make(1, goes_on=False), make(1, sample="hold", goes_on=False)
    assert none.act("approve").json()["code"] == "book_batch_without_hold"
    other = held.act("approve", books=[str(books_of(none.batch)[0].pk)])
    assert (other.status_code, other.json()["code"]) == (404, "book_not_in_batch")
    assert held.act("approve", books=["x"]).status_code == 400
    assert held.act("approve", book=[]).json()["code"] == "unknown_field"


def test_sample_that_was_deleted_is_not_made_again_and_blocks_nothing(make: Make) -> None:
    run = make(2, sample="first")
    first, second = run.samples()
    run.finish(first)
    delete_job(second)
    assert run.states() == ["queued", "queued"]
    assert len(run.samples()) == 1


def test_samples_wait_for_files_that_an_open_batch_still_lacks(make: Make) -> None:
    run = make(1, sample="first", is_closed=False, goes_on=False)
    BatchEntry.objects.create(batch=run.batch, index=1, filename="late.epub")
    go_on(run.batch)
    run.finish(run.samples()[0])

    assert run.states() == ["waiting", "missing"]
    run.act("close")
    assert run.states() == ["queued", "missing"]


def test_paused_batch_starts_nothing_and_a_book_that_was_paused_before_stays_so(
    make: Make,
) -> None:
    run = make(3, at_work=2)
    mine, other = run.jobs()
    pause_job(mine.pk)

    paused = run.act("pause").json()
    go_on(run.batch)
    start_wanted_books()
    assert (paused["status"], paused["progress"]["eta_seconds"]) == ("paused", None)
    assert run.states(goes_on=False) == ["paused", "paused", "waiting"]

    assert run.act("resume").json()["status"] == "running"
    assert run.states() == ["paused", "queued", "queued"]
    assert stored(other, "paused_at") == (None,)


def test_book_that_began_in_the_moment_of_the_pause_is_paused_as_well(make: Make) -> None:
    run = make(1)
    Batch.objects.filter(pk=run.batch.pk).update(paused_at=run.batch.created_at)
    assert run.states() == ["paused"]
    run.act("resume")
    assert run.states(goes_on=False) == ["queued"]


def test_batch_ends_once_with_a_summary_and_tells_everybody_once(
    operator: User, make: Make
) -> None:
    make_endpoint(operator, url="https://example.org/all", events=["book_batch.ended"])
    run = make(3, sample="first", webhook_url="https://example.org/batch")
    run.finish(*run.samples())
    one, two, three = run.jobs()
    run.finish(one)
    run.finish(two, status=Status.PARTIAL)
    assert not advance_batch(run.batch.pk)
    cancel_job(three.pk)

    go_on(run.batch)
    advance_batches()

    answer = run.get()
    assert (answer["status"], answer["progress"]["share"]) == ("ended", 1.0)
    states = {name: number for name, number in answer["summary"]["states"].items() if number}
    assert states == {"succeeded": 1, "partial": 1, "cancelled": 1}
    books = run.get("/report")["books"]
    assert [row["status"] for row in books] == ["succeeded", "partial", "cancelled"]
    assert books[0]["audio_seconds"] == 5.0 * one.segments_total
    takes = Segment.objects.filter(job__in=[one, run.samples()[0]]).count()
    assert books[0]["bytes"]["takes"] == 100 * takes
    sent = WebhookDelivery.objects.filter(event="book_batch.ended").order_by("url")
    assert [one.url for one in sent] == ["https://example.org/all", "https://example.org/batch"]
    data = json.loads(sent[0].body)["data"]
    assert (data["id"], len(data["not_whole"])) == (str(run.batch.pk), 2)


def test_approval_that_makes_a_book_whole_makes_the_summary_of_its_batch_true(make: Make) -> None:
    run = make(2)
    Batch.objects.filter(pk=run.batch.pk).update(report={"skipped": SKIPPED})
    one, two = run.jobs()
    run.finish(one, two, goes_on=False)
    short = two.segments.order_by("pk")[0]
    Take.objects.filter(segments=short).update(audio_seconds=0.01)
    RenderJob.objects.filter(pk=two.pk).update(status="partial", error_code="book_segments_short")
    go_on(run.batch)
    before = run.get()
    RenderJob.objects.filter(pk=one.pk).update(takes_rendered=99)  # another book is not read again

    path = f"/api/v1/review/{short.pk}/approve"
    approved = run.api.post(path, {"take": str(stored(short, "take_id")[0])})

    assert approved.status_code == 200, approved.json()
    answer, books = run.get(), run.get("/report")["books"]
    assert (before["summary"]["states"]["partial"], before["status"]) == (1, "ended")
    assert (answer["summary"]["states"]["succeeded"], answer["status"]) == (2, "ended")
    assert answer["summary"]["states"]["partial"] == 0
    assert answer["updated_at"] > before["updated_at"]
    assert [(row["status"], row["error_code"]) for row in books] == [("succeeded", "")] * 2
    assert books[0]["takes_rendered"] == one.segments_total
    assert answer["skipped"] == run.get("/report")["skipped"] == SKIPPED
    assert not advance_batch(run.batch.pk)


def test_book_that_is_tried_again_by_itself_changes_the_summary_of_an_ended_batch(
    make: Make,
) -> None:
    run = make(2)
    one, two = run.jobs()
    run.finish(one)
    run.finish(two, status=Status.PARTIAL)
    RenderJob.objects.filter(pk=two.pk).update(status="running")
    advance_batches()
    meanwhile = run.get()["summary"]["states"]

    end_job(two.pk, Status.SUCCEEDED)
    count = advance_batches()  # as the sweep does where the message was lost

    assert meanwhile["partial"] == 1
    assert run.get()["summary"]["states"]["succeeded"] == 2
    assert (count, advance_batches()) == (1, 0)
    assert WebhookDelivery.objects.count() == 0


def test_entries_that_were_skipped_are_told_after_the_end_and_after_a_retry(make: Make) -> None:
    run = make(1)
    Batch.objects.filter(pk=run.batch.pk).update(report={"skipped": SKIPPED})
    run.finish(run.jobs()[0], status=Status.PARTIAL)
    Segment.objects.filter(job=run.jobs()[0]).update(status="failed", take=None)
    assert run.get("/report")["skipped"] == SKIPPED
    again = run.act("retry").json()
    assert (again["skipped"], again["summary"]) == (SKIPPED, None)


def test_batch_that_is_not_closed_does_not_end(make: Make) -> None:
    run = make(1, is_closed=False)
    run.finish(run.jobs()[0])
    assert run.get()["status"] == "open"

    run.act("close")
    go_on(run.batch)
    assert run.get()["status"] == "ended"


def test_book_that_cannot_start_fails_alone_and_a_retry_takes_it_again(make: Make) -> None:
    run = make(2, goes_on=False)
    broken = BookSource.objects.filter(pk=books_of(run.batch)[0].pk)
    options = {"format": "wav", "priority": "bulk", "seed": 0}
    broken.update(options={"voice": "Nobody", **options})
    assert run.states() == ["failed", "queued"]
    run.finish(run.jobs()[0])
    assert run.get()["status"] == "ended"
    broken.update(options={"voice": "Ada", **options})

    again = run.act("retry")

    assert again.status_code == 202
    assert run.states() == ["queued", "succeeded"]
    run.finish(run.jobs()[0])
    nothing = run.act("retry")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "nothing_to_retry")


def test_cancelled_batch_stops_all_and_a_retry_goes_on_with_all(make: Make) -> None:
    run = make(2, at_work=1)

    assert run.act("cancel").json()["status"] == "cancelling"
    assert run.states() == ["cancelled", "cancelled"]
    assert run.get()["status"] == "cancelled"
    run.act("retry")
    go_on(run.batch)
    run.finish(run.jobs()[0])
    assert run.states() == ["succeeded", "queued"]


def test_book_that_does_not_fit_its_key_waits_and_says_why(operator: User, make: Make) -> None:
    key, _ = create_key(operator, "small")
    run = make(2, goes_on=False)
    BookSource.objects.filter(pk__in=run.batch.entries.values("book")).update(api_key=key)
    key.max_queued_chars = 300
    key.save()
    assert run.states() == ["queued", "waiting"]
    row = run.entries()[1]
    assert "300 queued characters" in row["waits_for"]
    assert row["error_code"] == ""
    run.finish(run.jobs()[0])
    row = run.entries()[1]
    assert (row["state"], row["waits_for"]) == ("queued", "")


def test_book_waits_for_a_voice_that_is_being_encoded(make: Make) -> None:
    run = make(1, goes_on=False)
    versions = Voice.objects.get(name="Ada").versions
    encoded_at = versions.get().encoded_at
    versions.update(status="pending", encoded_at=None)
    assert run.states() == ["waiting"]

    versions.update(status="ready", encoded_at=encoded_at)
    assert run.states() == ["queued"]


def test_priority_reaches_jobs_books_that_wait_and_later_uploads(make: Make) -> None:
    run = make(2, at_work=1)

    answer = run.act("priority", priority="interactive").json()

    assert run.act("priority", priority="now").status_code == 400
    assert answer["priority"] == "interactive"
    assert run.jobs()[0].priority == RenderJob.Priority.INTERACTIVE
    assert books_of(run.batch)[1].options["priority"] == "interactive"


def test_deleted_job_of_a_book_does_not_start_it_again(make: Make) -> None:
    run = make(2)
    first, second = run.jobs()
    run.finish(second)
    delete_job(first)
    assert run.states() == ["deleted", "succeeded"]
    assert RenderJob.objects.count() == 1


def test_two_workers_at_once_start_a_book_once(make: Make) -> None:
    run = make(1, sample="first", goes_on=False)
    stale = BatchEntry.objects.select_related("book").get(batch=run.batch)
    go_on(run.batch)
    assert stale.book is not None

    assert start_sample(stale.book) is None
    assert RenderJob.objects.count() == 1
    assert Segment.objects.count() == run.samples()[0].segments_total


def test_sample_is_heard_and_says_when_it_is_not_there(make: Make) -> None:
    run = make(1, sample="hold", goes_on=False)
    path = f"/api/v1/books/{books_of(run.batch)[0].pk}/sample"

    none = run.api.get(path)
    go_on(run.batch)
    early = run.api.get(path)

    assert (none.status_code, none.json()["code"]) == (404, "book_without_sample")
    assert (early.status_code, early.json()["code"]) == (409, "sample_not_ready")


def test_batch_of_two_hundred_books_is_gone_on_with_by_a_bounded_number_of_queries(
    make: Make, django_assert_max_num_queries: Any
) -> None:
    run = make(1, goes_on=False)
    copies = [copy(books_of(run.batch)[0]) for _ in range(199)]
    for number, one in enumerate(copies):
        one.pk, one.filename = uuid.uuid4(), f"x{number}"
    BookSource.objects.bulk_create(copies)
    BatchEntry.objects.bulk_create(
        BatchEntry(batch=run.batch, index=n, filename=one.filename, book=one)
        for n, one in enumerate(copies, 1)
    )
    BookSource.objects.update(state="importing")

    with django_assert_max_num_queries(15):
        advance_batch(run.batch.pk)
    with django_assert_max_num_queries(20):
        answer = run.get()
    with django_assert_max_num_queries(25):
        run.get("/entries?limit=200")

    assert answer["counts"]["importing"] == 200
