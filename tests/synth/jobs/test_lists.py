"""Which jobs a list shows, and places in the queue, which are about the order of lanes' turns."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from synth.jobs.queue import QueueState, before_in_lane, queue_positions
from synth.models import RenderJob
from tests.factories import claim, make_job, make_voice
from voices.models import Voice

URL = "/api/v1/jobs"
PLAIN = pytest.mark.django_db
COMMITTED = pytest.mark.django_db(transaction=True)


@COMMITTED
def test_list_is_filtered(api: APIClient, operator: User) -> None:
    ada, bob = make_voice("Ada"), make_voice("Bob")
    old = make_job(owner=operator, voice=ada, status=RenderJob.Status.SUCCEEDED)
    RenderJob.objects.filter(pk=old.pk).update(created_at=timezone.now() - dt.timedelta(days=2))
    new = make_job(owner=operator, voice=bob)
    yesterday = (timezone.now() - dt.timedelta(days=1)).isoformat()
    names = {str(old.pk): "old", str(new.pk): "new"}

    for query, expected in (
        ({"status": "queued"}, {"new"}),
        ({"status": "queued,succeeded"}, {"new", "old"}),
        ({"voice": "ada"}, {"old"}),
        ({"voice": str(bob.pk)}, {"new"}),
        ({"voice": "nobody"}, set()),
        ({"ids": f"{new.pk}, {uuid.uuid4()}"}, {"new"}),
        ({"created_after": yesterday}, {"new"}),
        ({"created_after": yesterday, "status": "succeeded"}, set()),
        ({"created_before": yesterday}, {"old"}),
        ({"created_before": yesterday, "created_after": yesterday}, set()),
        ({"kind": "speech"}, {"new", "old"}),
        ({"kind": "book,batch"}, set()),
    ):
        response = api.get(URL, query)
        assert response.status_code == 200, response.json()
        assert {names[shown["id"]] for shown in response.json()["results"]} == expected, query


@COMMITTED
def test_filter_or_wait_that_cannot_be_read_is_a_400(api: APIClient, operator: User) -> None:
    many = ",".join(["7b6b1de4-6f2c-4a3c-9e0a-111111111111"] * 201)
    refused = {
        "status": ["done", "", "queued,"],
        "voice": ["", "a\0"],
        "ids": ["1", many],
        "created_after": ["yesterday", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "2026-01-01",
                          "0001-01-01T00:00:00+14:00"],
        "created_before": ["", "9999-12-31T23:59:59-12:00", "2026-01-01T00:00:00"],
        "kind": ["song", "speech,", ""],
        "colour": ["red"],
        "limit": ["0", "201", "x"],
    }  # fmt: skip
    for name, values in refused.items():
        for value in values:
            response = api.get(URL, {name: value})
            assert response.status_code == 400, (name, value)
            assert response.json()["errors"][0]["attr"] == name, (name, value)
    twice = api.get(f"{URL}?status=queued&status=failed")
    assert twice.status_code == 400
    errors = [(item["attr"], item["code"]) for item in twice.json()["errors"]]
    assert errors == [("status", "repeated")]

    job = make_job(owner=operator)
    for wait in ("abc", "-1", "nan", "inf", "", "1e999", "\uff11", "1_0"):
        assert api.get(f"{URL}/{job.pk}", {"wait": wait}).status_code == 400, wait


def positions() -> dict[uuid.UUID, int]:
    """Return the place of each queued job."""
    return queue_positions(list(RenderJob.objects.filter(status="queued")))


def order_of_claims() -> list[object]:
    """Return the jobs in the order in which workers take their first segment."""
    return list(
        dict.fromkeys(one.job_id for claims in iter(lambda: claim(1), []) for one in claims)
    )


@pytest.fixture
def voice(db: None) -> Voice:
    return make_voice()


@PLAIN
def test_positions_are_the_order_of_claims_where_lanes_are_alike(voice: Voice) -> None:
    for lane in ("a", "a", "a", "b", "c", "b", "c", "b", "c"):
        make_job(voice=voice, lane=lane)
    shown = positions()

    assert sorted(shown.values()) == list(range(1, 10))
    assert sorted(shown, key=shown.__getitem__) == order_of_claims()


@PLAIN
def test_sentence_behind_many_jobs_of_another_lane_is_second_in_a_lane_age_decides(
    voice: Voice,
) -> None:
    books = [make_job(voice=voice, lane="books").pk for _ in range(20)]
    sentence = make_job(voice=voice, lane="other").pk

    assert positions() == dict(zip([books[0], sentence, *books[1:]], range(1, 22), strict=True))
    assert order_of_claims().index(sentence) == 1


@PLAIN
def test_more_urgent_jobs_of_all_lanes_come_first(voice: Voice) -> None:
    bulk = make_job(voice=voice, lane="a", priority=RenderJob.Priority.BULK)
    for lane in ("a", "b"):
        make_job(voice=voice, lane=lane)

    assert positions()[bulk.pk] == 3


@PLAIN
def test_job_by_itself_has_the_place_that_it_has_on_a_page(voice: Voice) -> None:
    for lane in ("a", "b", "a", "a", "b", "c", "a"):
        make_job(voice=voice, lane=lane)
    same = RenderJob.objects.filter(lane="a").order_by("-created_at")[:2]
    RenderJob.objects.filter(pk=same[0].pk).update(created_at=same[1].created_at)
    jobs = list(RenderJob.objects.filter(status="queued"))

    page = before_in_lane(jobs)

    assert {job.pk: QueueState([job]).before[job.pk] for job in jobs} == page
    assert any(before.queued_jobs and before.segments for before in page.values())
