"""Events of a batch of books over REST: what is new so far, and from where on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.api.jobs.event_streams import SEEN_HEADER
from synth.batches.states import MISSING, STATES
from synth.jobs.events import ENTRY_STATES
from synth.models import Batch, BatchEntry, BookSource, RenderJob
from synth.transitions.jobs import end_job
from tests.synth.batches.test_events import events_of
from tests.synth.book_batches.conftest import MakeBatch, books_of, go_on
from tests.synth.served import Served, in_project, serving
from ttsweb.client import Client

pytestmark = pytest.mark.django_db(transaction=True)


def listen(client: APIClient, batch: Batch, last_id: str | None = None) -> Any:
    """Ask for the events of a batch."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    return client.get(f"/api/v1/book-batches/{batch.pk}/events", headers=headers)


def body(client: APIClient, batch: Batch, last_id: str | None = None) -> Any:
    """Return the events that a client is told."""
    return events_of(listen(client, batch, last_id).content.decode())


def test_every_state_of_an_entry_but_the_first_has_a_place_in_the_ids() -> None:
    assert set(ENTRY_STATES) == set(STATES) - {MISSING}


def test_batch_is_told_so_far_and_left_open(
    api: APIClient, batch_of: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.batches.turns.BATCH_BOOKS_AT_WORK", 1)
    batch = batch_of(2, is_closed=False)
    BatchEntry.objects.create(batch=batch, index=2, filename="late.epub")
    go_on(batch)
    first, second = books_of(batch)

    answer = listen(api, batch)
    events = events_of(answer.content.decode())

    assert answer["Content-Type"] == "text/event-stream"
    assert [(name, data.get("index"), data.get("status")) for _, name, data in events] == [
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
    assert answer[SEEN_HEADER] == events[-1][0] == f"running!0.{total}.0.0!!0:1!!!0:0!!!!!!!"


def test_client_that_comes_again_is_told_what_it_missed_and_no_more(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(2)
    go_on(batch)
    one, two = (book.job for book in books_of(batch))
    assert one is not None and two is not None
    last = body(api, batch)[-1][0]
    assert body(api, batch, last) == []

    RenderJob.objects.filter(pk=one.pk).update(status="running", segments_done=1)
    missed = body(api, batch, last)
    end_job(one.pk, RenderJob.Status.SUCCEEDED, audio_seconds=5.0)
    end_job(two.pk, RenderJob.Status.FAILED, error_code="no_audio", error_message="None.")
    go_on(batch)
    rest = body(api, batch, missed[-1][0])

    assert [(n, d.get("index"), d.get("status")) for _, n, d in missed] == [
        ("book", 0, "running"),
        ("progress", None, None),
    ]
    assert [(n, d.get("index"), d.get("status")) for _, n, d in rest] == [
        ("book", 0, "succeeded"),
        ("book", 1, "failed"),
        ("progress", None, None),
        ("state", None, "ended"),
    ]
    assert (rest[0][2]["audio_seconds"], rest[1][2]["error_code"]) == (5.0, "no_audio")
    assert (rest[2][2]["progress"], rest[2][2]["books_ended"]) == (1.0, 2)
    assert rest[3][2]["final"] is True
    assert api.get(rest[3][2]["report_url"]).status_code == 200
    over = listen(api, batch, rest[-1][0])
    assert (over.status_code, over.content) == (204, b"")


def test_entry_whose_book_was_deleted_is_missing_again(api: APIClient, batch_of: MakeBatch) -> None:
    batch = batch_of(2, is_closed=False, sample="hold")
    Batch.objects.filter(pk=batch.pk).update(paused_at=batch.created_at)
    last = body(api, batch)[-1][0]
    books_of(batch)[1].delete()
    events = body(api, batch, last)
    assert ("book", 1, "missing") in [(n, d.get("index"), d.get("status")) for _, n, d in events]
    assert body(api, batch, events[-1][0]) == []


def test_state_with_an_underscore_is_read_from_an_id(api: APIClient, batch_of: MakeBatch) -> None:
    batch = batch_of(1, sample="hold")
    books = BookSource.objects.filter(pk__in=batch.entries.values("book"))
    books.update(started={"sample": {"title": "A"}})
    events = body(api, batch)
    assert events[0][2]["status"] == "to_approve"
    assert ("book", "sampled") in [(name, data.get("status")) for _, name, data in events]
    assert body(api, batch, events[-1][0]) == []


@pytest.mark.parametrize(
    "event_id", ["x", "running!!!!", "running!0.0!!!!!", "!!0:0-9!!!!!!!!!!!", "!!1:0!!!!!!!!!!!"]
)
def test_id_that_no_event_of_such_a_batch_had_is_refused(
    event_id: str, api: APIClient, batch_of: MakeBatch
) -> None:
    answer = listen(api, batch_of(2), event_id)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_event_id")


def test_events_of_two_hundred_books_cost_a_bounded_number_of_queries(
    api: APIClient, operator: User, ada: None, django_assert_max_num_queries: Any
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
        events = body(api, batch)
    assert [name for _, name, _ in events] == ["state", *["book"] * 200, "progress"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """The project on a real server, in a process of its own."""
    with serving(tmp_path) as served:
        yield served


@pytest.mark.thorough
def test_client_follows_a_batch_on_a_real_server_until_it_has_ended(
    server: Served, tmp_path: Path
) -> None:
    batch = in_project(
        tmp_path,
        "from django.contrib.auth.models import User\n"
        "from synth.models import Batch, BatchEntry\n"
        "from tests.factories import make_book\n"
        "owner = User.objects.get(username='operator')\n"
        "batch = Batch.objects.create(kind='books', owner=owner, defaults={'voice': 'Ada'})\n"
        "book = make_book(owner)\n"
        "BatchEntry.objects.create(batch=batch, index=0, filename='a.txt', book=book)\n"
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
    assert json.dumps(again[-1]["data"]) == json.dumps(found[-1]["data"])
    assert over == []
