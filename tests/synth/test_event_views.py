"""Events over REST as Django alone answers: what is new so far, to whom, and from where on."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.api.jobs.event_streams import SEEN_HEADER
from synth.models import RenderJob
from tests.factories import make_ended_job, make_job

pytestmark = pytest.mark.django_db(transaction=True)


def listen(client: APIClient, job_id: Any, last_id: str | None = None, query: str = "") -> Any:
    """Ask for the events of a job."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    return client.get(f"/api/v1/jobs/{job_id}/events{query}", headers=headers)


def ids_of(answer: Any) -> list[str]:
    """Return the ids of the events of an answer."""
    lines = answer.content.decode().split("\n")
    return [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]


def test_unfinished_job_is_told_so_far_and_left_open(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)

    answer = listen(api, job.pk)

    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/event-stream"
    assert answer["Cache-Control"] == "private, no-store"
    assert answer["X-Accel-Buffering"] == "no"
    assert answer.content.startswith(b"retry: 2000\n\nid: queued!!!!\nevent: state\n")
    assert answer[SEEN_HEADER] == ids_of(answer)[-1] == "queued!0.0.0!!!"


def test_ended_job_is_told_to_its_end_and_then_there_is_no_more(
    api: APIClient, operator: User
) -> None:
    job = make_ended_job(operator)

    first = listen(api, job.pk)
    rest = listen(api, job.pk, ids_of(first)[0])
    over = listen(api, job.pk, ids_of(first)[-1])

    assert SEEN_HEADER not in first
    assert len(ids_of(first)) == 3
    assert ids_of(rest) == ids_of(first)[1:]
    assert (over.status_code, over.content) == (204, b"")
    RenderJob.objects.filter(pk=job.pk).update(status="queued")
    assert listen(api, job.pk, ids_of(first)[-1]).status_code == 200


@pytest.mark.parametrize("last_id", ["5", "queued!0.0.0!0:0-9!!", "x" * 5000])
def test_id_of_no_event_of_the_job_is_a_400(api: APIClient, operator: User, last_id: str) -> None:
    answer = listen(api, make_job(owner=operator).pk, last_id)

    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_event_id"
    assert answer.json()["errors"][0]["attr"] == "Last-Event-ID"


def test_unknown_job_and_query_are_refused(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)
    assert listen(api, uuid.uuid4()).status_code == 404
    assert listen(api, job.pk, query="?wait=5").json()["code"] == "unknown_field"
