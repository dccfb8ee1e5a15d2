"""Events of a batch over REST: what is new so far, to whom, and from where on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.api.jobs.event_streams import SEEN_HEADER
from synth.jobs.events import ENDED
from synth.models import Batch, RenderJob
from synth.transitions.batches import cancel_batch, settle_batch
from synth.transitions.jobs import cancel_job
from tests.factories import make_batch, make_job, make_user
from tests.synth.served import Served, in_project, serving

pytestmark = pytest.mark.django_db(transaction=True)


def listen(client: APIClient, batch: Batch | RenderJob, last_id: str | None = None) -> Any:
    """Ask for the events of a batch."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    return client.get(f"/api/v1/batches/{batch.pk}/events", headers=headers)


def events_of(text: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return id, name and data of each event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


def body(client: APIClient, batch: Batch, last_id: str | None = None) -> Any:
    """Return the events that a client is told."""
    return events_of(listen(client, batch, last_id).content.decode())


def test_unfinished_batch_is_told_so_far_and_left_open(api: APIClient, operator: User) -> None:
    batch = make_batch(operator, items=3)
    item = batch.items.get(item_index=1)
    cancel_job(item.pk)

    answer = listen(api, batch)
    events = events_of(answer.content.decode())

    assert answer["Content-Type"] == "text/event-stream"
    assert [name for _, name, _ in events] == ["state", "item", "progress"]
    assert events[0][2]["status"] == "queued" and events[0][2]["final"] is False
    assert events[1][2] == {
        "index": 1, "custom_id": "item-00002", "job": str(item.pk), "status": "cancelled",
        "error_code": "", "audio_seconds": 0.0,
    }  # fmt: skip
    assert events[2][2]["items_total"] == 3
    assert events[2][2]["counts"]["cancelled"] == 1
    assert answer[SEEN_HEADER] == events[-1][0] == "queued!0.0.0.1!!!!0:1"


def test_client_that_comes_again_is_told_what_it_missed_and_no_more(
    api: APIClient, operator: User
) -> None:
    batch = make_batch(operator, items=3)
    last = body(api, batch)[-1][0]
    assert body(api, batch, last) == []
    cancel_job(batch.items.get(item_index=2).pk)
    missed = body(api, batch, last)
    assert [(name, data.get("index")) for _, name, data in missed] == [
        ("item", 2), ("progress", None),
    ]  # fmt: skip
    cancel_batch(batch.pk)
    rest = body(api, batch, missed[-1][0])
    assert [(name, data.get("index")) for _, name, data in rest] == [
        ("item", 0), ("item", 1), ("progress", None), ("state", None),
    ]  # fmt: skip
    assert rest[-1][2]["final"] is True
    over = listen(api, batch, rest[-1][0])
    assert (over.status_code, over.content) == (204, b"")


def test_item_that_is_tried_again_is_told_as_queued(api: APIClient, operator: User) -> None:
    batch = make_batch(operator, RenderJob.Status.FAILED, items=2)
    last = body(api, batch)[-1][0]
    Batch.objects.filter(pk=batch.pk).update(status="running", ended_at=None)
    batch.items.filter(item_index=0).update(status="queued")
    settle_batch(batch.pk)
    events = body(api, batch, last)
    assert [(n, d.get("index"), d.get("status")) for _, n, d in events][:2] == [
        ("state", None, "running"),
        ("item", 0, "queued"),
    ]
    assert events[1][2]["custom_id"] == "item-00001"


def test_item_that_became_whole_is_told_though_it_had_ended_before(
    api: APIClient, operator: User
) -> None:
    batch = make_batch(operator, items=2)
    batch.items.filter(item_index=0).update(status="partial")
    last = body(api, batch)[-1][0]
    batch.items.filter(item_index=0).update(status="succeeded")
    events = body(api, batch, last)
    assert ("item", "succeeded") in [(name, data.get("status")) for _, name, data in events]


def test_whole_batch_says_where_its_zip_is(api: APIClient, operator: User) -> None:
    batch = make_batch(operator, RenderJob.Status.SUCCEEDED)
    events = body(api, batch)
    assert events[-1][2]["results_url"] == f"/api/v1/batches/{batch.pk}/results"
    assert events[-2][2]["progress"] == 1.0


def test_events_of_a_large_batch_cost_as_many_queries_as_those_of_a_small_one(
    api: APIClient, operator: User, django_assert_max_num_queries: Any
) -> None:
    batch = make_batch(operator, RenderJob.Status.CANCELLED, items=30)
    with django_assert_max_num_queries(8):
        events = body(api, batch)
    assert len(events) == 32


@pytest.mark.parametrize(
    "event_id",
    [
        "x",
        "queued!!!!",
        "queued!0.0.0!!!",
        "queued!!!!!0:0-3",
        "queued!a!!!!",
        "!!!!!x",
        "!!!!!7:1",
    ],
)
def test_id_that_no_event_of_a_batch_had_is_refused(
    event_id: str, api: APIClient, operator: User
) -> None:
    answer = listen(api, make_batch(operator, items=3), event_id)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_event_id")


def test_job_is_no_batch_and_others_batches_are_not_there(
    api: APIClient, operator: User, client_of: Callable[[User], APIClient]
) -> None:
    batch = make_batch(operator)
    for client, row in ((api, make_job(owner=operator)), (client_of(make_user()), batch)):
        answer = listen(client, row)
        assert (answer.status_code, answer.json()["code"]) == (404, "batch_not_found")
    assert api.get(f"/api/v1/batches/{batch.pk}/events?wait=3").json()["code"] == "unknown_field"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """The project on a real server, in a process of its own."""
    with serving(tmp_path) as served:
        yield served


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
