"""What can be changed of a job once it is there, and what no longer means anything."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import RenderJob
from synth.transitions.jobs import change_job
from tests.factories import make_batch, make_ended_job, make_job, make_voice

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/jobs"
Status = RenderJob.Status


def values_of(job: RenderJob) -> tuple[object, ...]:
    job.refresh_from_db()
    return job.priority, job.deadline_at, job.retention_seconds


def patch(api: APIClient, job: RenderJob, **fields: Any) -> Any:
    return api.patch(f"{URL}/{job.pk}", fields, format="json")


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING])
def test_unfinished_job_changes_its_priority_deadline_and_retention(
    api: APIClient, operator: User, status: str
) -> None:
    job = make_job(owner=operator, status=status)
    moment = (timezone.now() + dt.timedelta(hours=1)).replace(microsecond=0)

    response = patch(api, job, priority="bulk", deadline=moment.isoformat(), retention=60)

    shown = response.json()
    assert response.status_code == 200
    assert (shown["priority"], shown["retention"]) == ("bulk", 60)
    assert dt.datetime.fromisoformat(shown["deadline"]) == moment
    assert values_of(job) == (10, moment, 60)
    assert job.expires_at is None


def test_job_of_a_higher_class_overtakes_the_others(api: APIClient, operator: User) -> None:
    voice = make_voice()
    first, second = (make_job(owner=operator, voice=voice, priority=10) for _ in range(2))

    assert patch(api, second, priority="interactive").json()["queue_position"] == 1
    assert api.get(f"{URL}/{first.pk}").json()["queue_position"] == 2


def test_what_is_left_out_stays_and_null_takes_away(api: APIClient, operator: User) -> None:
    moment = timezone.now() + dt.timedelta(hours=1)
    job = make_job(owner=operator, deadline_at=moment, retention_seconds=99, priority=10)

    patch(api, job)
    assert values_of(job) == (10, moment, 99)
    shown = patch(api, job, deadline=None, retention=None).json()

    assert (shown["deadline"], shown["retention"], shown["priority"]) == (None, None, "bulk")


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_ended_job_takes_neither_priority_nor_deadline(
    api: APIClient, operator: User, status: str
) -> None:
    job = make_job(owner=operator, status=status)
    changes: list[dict[str, Any]] = [{"priority": "bulk"}, {"deadline": 60}, {"deadline": None}]
    for fields in changes:
        response = patch(api, job, **fields, retention=60)
        assert (response.status_code, response.json()["code"]) == (409, "job_ended"), fields
        assert status in response.json()["detail"], fields
    assert values_of(job) == (0, None, None)


def test_ended_job_is_kept_as_long_as_it_is_told_from_its_end_on(
    api: APIClient, operator: User, settings: Settings
) -> None:
    settings.RETENTION_DAYS = 2
    ended = timezone.now() - dt.timedelta(seconds=30)
    job = make_ended_job(operator, finished_at=ended)

    def expires(retention: object) -> dt.datetime | None:
        assert patch(api, job, retention=retention).status_code == 200
        job.refresh_from_db()
        return job.expires_at

    assert expires(3600) == ended + dt.timedelta(hours=1)
    assert expires("forever") is None
    assert expires(None) == ended + dt.timedelta(days=2)


def test_wrong_change_is_a_400_and_nothing_changes(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)
    before = RenderJob.objects.values().get()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"priority": "urgent"}, "invalid_choice"),
        ({"priority": None}, "null"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline_past"),
        ({"deadline": "soon"}, "deadline_invalid"),
        ({"deadline": True}, "deadline_invalid"),
        ({"retention": 1}, "retention_invalid"),
        ({"retention": ["forever"]}, "retention_invalid"),
        ({"text": "Other words."}, "unknown_field"),
        ({"status": "succeeded"}, "unknown_field"),
        ({"voice": "Ada"}, "unknown_field"),
    ]
    for fields, code in refused:
        response = patch(api, job, **fields)
        assert (response.status_code, response.json()["code"]) == (400, code), fields
    assert api.patch(f"{URL}/{job.pk}", [], format="json").status_code == 400
    assert RenderJob.objects.values().get() == before


def test_item_is_kept_as_long_as_its_batch(api: APIClient, operator: User) -> None:
    item = make_job(owner=operator, batch=make_batch(operator, items=0), item_index=0)

    changed, refused = patch(api, item, priority="bulk"), patch(api, item, retention=90)

    item.refresh_from_db()
    assert (changed.status_code, item.priority) == (200, RenderJob.Priority.BULK)
    assert (refused.status_code, refused.json()["code"]) == (409, "item_of_batch")
    assert item.retention_seconds is None


def test_job_that_is_gone_is_not_changed(job_services: None) -> None:
    job = make_job()
    key = job.pk
    job.delete()

    assert not change_job(key, {"priority": RenderJob.Priority.BULK})
