"""What may be listened to, what is refused, and what an ended job answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from rest_framework.test import APIClient

from synth.live.streams import LIVE_HEADER
from synth.models import RenderJob
from synth.transitions.live import end_live, keep_live, request_live
from tests.factories import make_ended_job, make_job, make_user

pytestmark = pytest.mark.django_db(transaction=True)


def get(api: APIClient, job: RenderJob, query: str, method: str = "GET") -> Any:
    """Ask for a job's audio."""
    path = reverse("job-audio", args=[job.pk])
    return api.generic(method, f"{path}?{query}")


def requested(job: RenderJob) -> bool:
    return RenderJob.objects.get(pk=job.pk).live_requested_at is not None


@pytest.mark.parametrize(("query", "said"), [("live=1", "wav"), ("live=true&format=pcm", "pcm")])
def test_unfinished_job_is_noted_and_handed_to_the_streams(
    api: APIClient,
    operator: User,
    sent_tasks: Callable[[str], list[str]],
    query: str,
    said: str,
) -> None:
    job = make_job(owner=operator)

    answer = get(api, job, query)

    assert (answer.status_code, answer[LIVE_HEADER]) == (200, said)
    assert answer["Cache-Control"] == "private, no-store"
    assert requested(job)
    assert len(sent_tasks("fill_live")) == 1
    get(api, job, query)
    assert len(sent_tasks("fill_live")) == 1  # it was asked for a moment ago


def test_head_says_what_would_come_and_changes_nothing(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)

    answer = get(api, job, "live=1&format=pcm", "HEAD")

    assert (answer.status_code, answer["Content-Type"]) == (200, "audio/pcm")
    assert LIVE_HEADER not in answer
    assert not requested(job)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("live=2", "invalid_choice"),
        ("live=", "invalid_choice"),
        ("live=%00", "invalid_choice"),
        ("live=1&format=mp3", "invalid_choice"),
        ("live=1&rate=8000", "unknown_field"),
        ("format=pcm", "live_required"),
        ("live=0&format=wav", "live_required"),
    ],
)
def test_query_that_is_not_acted_on_is_refused(
    api: APIClient, operator: User, query: str, code: str
) -> None:
    job = make_job(owner=operator)

    answer = get(api, job, query)

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not requested(job)


def test_job_with_a_speed_is_refused_with_what_to_do(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator, speed=1.5)

    answer = get(api, job, "live=1")

    assert (answer.status_code, answer.json()["code"]) == (409, "live_not_possible")
    assert "speed 1.5" in answer.json()["detail"]
    assert "speed 1 to listen" in answer.json()["detail"]


def test_ended_job_sends_its_file_unless_samples_are_asked_for(
    api: APIClient, operator: User
) -> None:
    job = make_ended_job(operator)

    assert b"".join(get(api, job, "live=1").streaming_content) == b"0123456789"
    assert b"".join(get(api, job, "live=0").streaming_content) == b"0123456789"
    assert not requested(job)
    assert get(api, job, "live=1&format=pcm")[LIVE_HEADER] == "pcm"
    assert requested(job)


def test_ended_job_without_audio_says_why(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator, status=RenderJob.Status.CANCELLED)

    for query in ("live=1", "live=1&format=pcm"):
        answer = get(api, job, query)
        assert (answer.status_code, answer.json()["code"]) == (404, "job_without_audio")


def test_another_users_job_is_not_there_and_is_not_noted(api: APIClient) -> None:
    job = make_job(owner=make_user())

    answer = get(api, job, "live=1")

    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
    assert not requested(job)


def test_job_is_forgotten_only_after_its_end_and_when_nobody_listens(operator: User) -> None:
    running, ended = make_job(owner=operator), make_ended_job(operator)
    for job in (running, ended):
        request_live(job.pk)
    long_ago = "2020-01-01T00:00:00Z"
    RenderJob.objects.update(live_requested_at=long_ago, finished_at=long_ago)

    keep_live([ended.pk])
    assert end_live(keep_seconds=60) == 0
    RenderJob.objects.update(live_requested_at=long_ago)
    assert end_live(keep_seconds=60) == 1

    assert (requested(running), requested(ended)) == (True, False)
    assert keep_live([ended.pk]) == 0  # who comes again has to ask
