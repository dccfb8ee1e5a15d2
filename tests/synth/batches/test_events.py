"""Events of batches of texts and of books over REST: what is new so far, to whom, from where on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.api.jobs.event_streams import SEEN_HEADER
from synth.api.jobs.events import ENDED, ENTRY_STATES
from synth.models import Batch, BatchEntry, BookSource, RenderJob
from synth.transitions.batches import cancel_batch, settle_batch
from synth.transitions.book_batches import MISSING, STATES
from synth.transitions.jobs import cancel_job, end_job
from tests.answers import refusal_of
from tests.factories import make_batch, make_job, make_user
from tests.synth.batches.conftest import Listener, events_of, short
from tests.synth.book_batches.conftest import MakeBatch, books_of, go_on
from tests.synth.book_batches.conftest import batch_of as batch_of
from tests.synth.served import Served, in_project, serving
from ttsweb.client import Client

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def listen(api: APIClient) -> Listener:
    return Listener(api, "batches")


@pytest.fixture
def listen_to_books(api: APIClient) -> Listener:
    return Listener(api, "book-batches")


def test_unfinished_batch_is_told_so_far_and_left_open(listen: Listener, operator: User) -> None:
    batch = make_batch(operator, items=3)
    item = batch.items.get(item_index=1)
    cancel_job(item.pk)

    events = listen(batch)

    assert listen.answer["Content-Type"] == "text/event-stream"
    assert [name for _, name, _ in events] == ["state", "item", "progress"]
    assert events[0][2]["status"] == "queued" and events[0][2]["final"] is False
    assert events[1][2] == {
        "index": 1, "custom_id": "item-00002", "job": str(item.pk), "status": "cancelled",
        "error_code": "", "audio_seconds": 0.0,
    }  # fmt: skip
    assert events[2][2]["items_total"] == 3
    assert events[2][2]["counts"]["cancelled"] == 1
    assert listen.answer[SEEN_HEADER] == events[-1][0] == "queued!0.0.0.1!!!!0:1"


def test_client_that_comes_again_is_told_what_it_missed_and_no_more(
    listen: Listener, operator: User
) -> None:
    batch = make_batch(operator, items=3)
    last = listen(batch)[-1][0]
    assert listen(batch, last) == []
    cancel_job(batch.items.get(item_index=2).pk)
    missed = listen(batch, last)
    assert short(missed) == [("item", 2, "cancelled"), ("progress", None, None)]
    cancel_batch(batch.pk)
    rest = listen(batch, missed[-1][0])
    assert short(rest) == [
        ("item", 0, "cancelled"),
        ("item", 1, "cancelled"),
        ("progress", None, None),
        ("state", None, "cancelled"),
    ]
    assert rest[-1][2]["final"] is True
    listen(batch, rest[-1][0])
    assert (listen.answer.status_code, listen.answer.content) == (204, b"")


def test_item_that_is_tried_again_is_told_as_queued(listen: Listener, operator: User) -> None:
    batch = make_batch(operator, RenderJob.Status.FAILED, items=2)
    last = listen(batch)[-1][0]
    Batch.objects.filter(pk=batch.pk).update(status="running", ended_at=None)
    batch.items.filter(item_index=0).update(status="queued")
    settle_batch(batch.pk)
    events = listen(batch, last)
    assert short(events)[:2] == [("state", None, "running"), ("item", 0, "queued")]
    assert events[1][2]["custom_id"] == "item-00001"


def test_item_that_became_whole_is_told_though_it_had_ended_before(
    listen: Listener, operator: User
) -> None:
    batch = make_batch(operator, items=2)
    batch.items.filter(item_index=0).update(status="partial")
    last = listen(batch)[-1][0]
    batch.items.filter(item_index=0).update(status="succeeded")
    assert ("item", 0, "succeeded") in short(listen(batch, last))


def test_whole_batch_says_where_its_zip_is(listen: Listener, operator: User) -> None:
    batch = make_batch(operator, RenderJob.Status.SUCCEEDED)
    events = listen(batch)
    assert events[-1][2]["results_url"] == f"/api/v1/batches/{batch.pk}/results"
    assert events[-2][2]["progress"] == 1.0


def test_events_of_a_large_batch_cost_as_many_queries_as_those_of_a_small_one(
    listen: Listener, operator: User, django_assert_max_num_queries: Any
) -> None:
    batch = make_batch(operator, RenderJob.Status.CANCELLED, items=30)
    with django_assert_max_num_queries(8):
        assert len(listen(batch)) == 32


@pytest.mark.parametrize(
    "event_id",
    [
        "x", "queued!!!!", "queued!0.0.0!!!", "queued!!!!!0:0-3", "queued!a!!!!", "!!!!!x",
        "!!!!!7:1",
    ],
)  # fmt: skip
def test_id_that_no_event_of_a_batch_had_is_refused(
    event_id: str, listen: Listener, operator: User
) -> None:
    listen(make_batch(operator, items=3), event_id)
    assert refusal_of(listen.answer) == (400, "bad_event_id")


def test_job_is_no_batch_and_others_batches_are_not_there(
    listen: Listener, operator: User, client_of: Callable[[User], APIClient]
) -> None:
    batch = make_batch(operator)
    listen(make_job(owner=operator))
    assert refusal_of(listen.answer) == (404, "batch_not_found")
    foreign = Listener(client_of(make_user()), "batches")
    foreign(batch)
    assert refusal_of(foreign.answer) == (404, "batch_not_found")
    listen(batch, query="?wait=3")
    assert refusal_of(listen.answer)[1] == "unknown_field"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """The project on a real server, in a process of its own."""
    with serving(tmp_path) as served:
        yield served


@pytest.mark.thorough
def test_real_server_tells_items_as_they_end_and_closes_after_the_last(
    server: Served, tmp_path: Path
) -> None:
    batch = in_project(
        tmp_path,
        "from django.contrib.auth.models import User\n"
        "from tests.factories import make_batch\n"
        "print(make_batch(User.objects.get(username='operator')).pk)",
    )
    lines: list[str] = []
    with server.client.stream("GET", f"/batches/{batch}/events") as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if line.startswith("event: progress") and len(events_of("\n".join(lines))) < 2:
                server.client.post(f"/batches/{batch}/cancel").raise_for_status()

    events = events_of("\n".join(lines))
    assert SEEN_HEADER not in answer.headers
    assert [data["status"] for _, name, data in events if name == "item"] == ["cancelled"] * 2
    assert (events[-1][1], events[-1][2]["final"]) == ("state", True)
    assert len(events[-1][0].split("!")) == 2 + len(ENDED)


def test_every_state_of_an_entry_but_the_first_has_a_place_in_the_ids() -> None:
    assert set(ENTRY_STATES) == set(STATES) - {MISSING}


def test_batch_of_books_is_told_so_far_and_left_open(
    listen_to_books: Listener, batch_of: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.batches.turns.BATCH_BOOKS_AT_WORK", 1)
    batch = batch_of(2, is_closed=False)
    BatchEntry.objects.create(batch=batch, index=2, filename="late.epub")
    go_on(batch)
    first, second = books_of(batch)

    events = listen_to_books(batch)

    assert listen_to_books.answer["Content-Type"] == "text/event-stream"
    assert short(events) == [
        ("state", None, "running"),
        ("book", 0, "queued"),
        ("book", 1, "waiting"),
        ("progress", None, None),
    ]
    assert first.job is not None
    assert events[0][2] == {"status": "running", "final": False, "report_url": None}
    assert events[1][2] == {
        "index": 0, "file": "0.epub", "book": str(first.pk), "job": str(first.job.pk),
        "status": "queued", "error_code": "", "audio_seconds": 0.0,
    }  # fmt: skip
    assert (events[2][2]["book"], events[2][2]["job"]) == (str(second.pk), None)
    total = first.job.segments_total
    assert events[3][2] | {"counts": {}} == {
        "progress": 0.0, "books_total": 3, "books_ended": 0, "counts": {},
        "segments_total": total, "segments_done": 0, "segments_failed": 0,
    }  # fmt: skip
    assert events[3][2]["counts"]["missing"] == 1
    seen = f"running!0.{total}.0.0!!0:1!!!0:0!!!!!!!"
    assert listen_to_books.answer[SEEN_HEADER] == events[-1][0] == seen


def test_client_that_comes_again_is_told_what_it_missed_of_books(
    listen_to_books: Listener, batch_of: MakeBatch
) -> None:
    batch = batch_of(2)
    go_on(batch)
    one, two = (book.job for book in books_of(batch))
    assert one is not None and two is not None
    last = listen_to_books(batch)[-1][0]
    assert listen_to_books(batch, last) == []

    RenderJob.objects.filter(pk=one.pk).update(status="running", segments_done=1)
    missed = listen_to_books(batch, last)
    end_job(one.pk, RenderJob.Status.SUCCEEDED, audio_seconds=5.0)
    end_job(two.pk, RenderJob.Status.FAILED, error_code="no_audio", error_message="None.")
    go_on(batch)
    rest = listen_to_books(batch, missed[-1][0])

    assert short(missed) == [("book", 0, "running"), ("progress", None, None)]
    assert short(rest) == [
        ("book", 0, "succeeded"),
        ("book", 1, "failed"),
        ("progress", None, None),
        ("state", None, "ended"),
    ]
    assert (rest[0][2]["audio_seconds"], rest[1][2]["error_code"]) == (5.0, "no_audio")
    assert (rest[2][2]["progress"], rest[2][2]["books_ended"]) == (1.0, 2)
    assert rest[3][2]["final"] is True
    assert listen_to_books.client.get(rest[3][2]["report_url"]).status_code == 200
    listen_to_books(batch, rest[-1][0])
    assert (listen_to_books.answer.status_code, listen_to_books.answer.content) == (204, b"")


def test_entry_whose_book_was_deleted_is_missing_again(
    listen_to_books: Listener, batch_of: MakeBatch
) -> None:
    batch = batch_of(2, is_closed=False, sample="hold")
    Batch.objects.filter(pk=batch.pk).update(paused_at=batch.created_at)
    last = listen_to_books(batch)[-1][0]
    books_of(batch)[1].delete()
    events = listen_to_books(batch, last)
    assert ("book", 1, "missing") in short(events)
    assert listen_to_books(batch, events[-1][0]) == []


def test_state_with_an_underscore_is_read_from_an_id(
    listen_to_books: Listener, batch_of: MakeBatch
) -> None:
    batch = batch_of(1, sample="hold")
    books = BookSource.objects.filter(pk__in=batch.entries.values("book"))
    books.update(started={"sample": {"title": "A"}})
    events = listen_to_books(batch)
    assert events[0][2]["status"] == "to_approve"
    assert ("book", 0, "sampled") in short(events)
    assert listen_to_books(batch, events[-1][0]) == []


@pytest.mark.parametrize(
    "event_id", ["x", "running!!!!", "running!0.0!!!!!", "!!0:0-9!!!!!!!!!!!", "!!1:0!!!!!!!!!!!"]
)
def test_id_that_no_event_of_a_batch_of_books_had_is_refused(
    event_id: str, listen_to_books: Listener, batch_of: MakeBatch
) -> None:
    listen_to_books(batch_of(2), event_id)
    assert refusal_of(listen_to_books.answer) == (400, "bad_event_id")


def test_events_of_two_hundred_books_cost_a_bounded_number_of_queries(
    listen_to_books: Listener, operator: User, django_assert_max_num_queries: Any
) -> None:
    batch = Batch.objects.create(kind="books", owner=operator, defaults={"voice": "Ada"})
    BookSource.objects.bulk_create(
        BookSource(owner=operator, filename=f"{n}.epub", size_bytes=1, sha256="0" * 64)
        for n in range(200)
    )
    BatchEntry.objects.bulk_create(
        BatchEntry(batch=batch, index=n, filename=book.filename, book=book)
        for n, book in enumerate(BookSource.objects.order_by("pk"))
    )

    with django_assert_max_num_queries(10):
        events = listen_to_books(batch)
    assert [name for _, name, _ in events] == ["state", *["book"] * 200, "progress"]


@pytest.mark.thorough
def test_client_follows_a_batch_on_a_real_server_until_it_has_ended(
    server: Served, tmp_path: Path
) -> None:
    batch = in_project(
        tmp_path,
        "from django.contrib.auth.models import User\n"
        "from synth.models import BatchEntry\n"
        "from tests.factories import make_book, make_book_batch\n"
        "owner = User.objects.get(username='operator')\n"
        "batch = make_book_batch(owner, closed_at=None, ended_at=None, report={})\n"
        "BatchEntry.objects.create(\n"
        "    batch=batch, index=0, filename='a.txt', book=make_book(owner))\n"
        "print(batch.pk)",
    )
    url = str(server.client.base_url).removesuffix("/").removesuffix("/api/v1")
    key = server.client.headers["Authorization"].removeprefix("Bearer ")
    found: list[dict[str, Any]] = []

    with Client(url, key) as tts:
        for event in tts.book_batches.events(batch):
            found.append(dict(event))
            if event["event"] == "progress" and len(found) < 5:
                tts.book_batches.cancel(batch)
                in_project(
                    tmp_path,
                    f"from synth.batches.turns import advance_batch\nadvance_batch('{batch}')",
                )
        again = list(tts.book_batches.events(batch, last_event_id=found[2]["id"]))
        over = list(tts.book_batches.events(batch, last_event_id=found[-1]["id"]))

    names = [(one["event"], one["data"].get("status")) for one in found]
    assert names[:3] == [("state", "running"), ("book", "waiting"), ("progress", None)]
    assert ("book", "cancelled") in names
    assert names[-1] == ("state", "cancelled") and found[-1]["data"]["final"] is True
    assert again[-1]["data"] == found[-1]["data"]
    assert over == []
