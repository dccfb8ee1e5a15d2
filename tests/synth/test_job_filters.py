"""Filters of the job list and the seconds of a wait: read, or refused."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import RenderJob
from tests.factories import make_job, make_voice

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/jobs"


def test_list_is_filtered(api: APIClient, operator: User) -> None:
    ada, bob = make_voice("Ada"), make_voice("Bob")
    old = make_job(owner=operator, voice=ada, status=RenderJob.Status.SUCCEEDED)
    RenderJob.objects.filter(pk=old.pk).update(created_at=timezone.now() - dt.timedelta(days=2))
    new = make_job(owner=operator, voice=bob)
    yesterday = (timezone.now() - dt.timedelta(days=1)).isoformat()

    def ids(**query: str) -> set[str]:
        response = api.get(URL, query)
        assert response.status_code == 200, response.json()
        return {shown["id"] for shown in response.json()["results"]}

    assert ids(status="queued") == {str(new.pk)}
    assert ids(status="queued,succeeded") == {str(new.pk), str(old.pk)}
    assert ids(voice="ada") == {str(old.pk)}
    assert ids(voice=str(bob.pk)) == {str(new.pk)}
    assert ids(voice="nobody") == set()
    assert ids(ids=f"{new.pk}, {uuid.uuid4()}") == {str(new.pk)}
    assert ids(created_after=yesterday) == {str(new.pk)}
    assert ids(created_after=yesterday, status="succeeded") == set()
    assert ids(created_before=yesterday) == {str(old.pk)}
    assert ids(created_before=yesterday, created_after=yesterday) == set()
    assert ids(kind="speech") == {str(new.pk), str(old.pk)}
    assert ids(kind="book,batch") == set()


@pytest.mark.parametrize(
    "query",
    [
        {"status": "done"}, {"status": ""}, {"status": "queued,"}, {"voice": ""}, {"voice": "a\0"},
        {"ids": "1"}, {"ids": ",".join(["7b6b1de4-6f2c-4a3c-9e0a-111111111111"] * 201)},
        {"created_after": "yesterday"}, {"created_after": "2026-01-01T00:00:00"},
        {"created_after": "2026-13-01T00:00:00Z"}, {"created_after": "2026-01-01"},
        {"created_after": "0001-01-01T00:00:00+14:00"}, {"created_before": ""},
        {"created_before": "9999-12-31T23:59:59-12:00"}, {"created_before": "2026-01-01T00:00:00"},
        {"kind": "song"}, {"kind": "speech,"}, {"kind": ""}, {"colour": "red"},
        {"limit": "0"}, {"limit": "201"}, {"limit": "x"},
    ],
)  # fmt: skip
def test_filter_that_cannot_be_read_is_a_400(api: APIClient, query: dict[str, str]) -> None:
    response = api.get(URL, query)

    assert response.status_code == 400
    assert response.json()["errors"][0]["attr"] == next(iter(query))


def test_filter_that_is_given_twice_is_a_400(api: APIClient) -> None:
    response = api.get(f"{URL}?status=queued&status=failed")

    assert response.status_code == 400
    errors = [(item["attr"], item["code"]) for item in response.json()["errors"]]
    assert errors == [("status", "repeated")]


@pytest.mark.parametrize("wait", ["abc", "-1", "nan", "inf", "", "1e999", "\uff11", "1_0"])
def test_wait_that_is_no_number_is_a_400(api: APIClient, operator: User, wait: str) -> None:
    job = make_job(owner=operator)

    assert api.get(f"{URL}/{job.pk}", {"wait": wait}).status_code == 400
