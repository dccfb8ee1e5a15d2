"""Lanes get equal shares of what workers take, whatever each has queued."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from synth.accounts.access import create_key
from synth.jobs.planning import Order
from synth.jobs.queue import lane_of
from synth.jobs.retry import retry
from synth.jobs.submit import Sender, submit_job
from synth.models import ApiKey, LaneTurn, RenderJob, Segment
from synth.transitions import claims as fair_order
from synth.transitions.claims import SegmentClaim
from synth.transitions.jobs import cancel_job
from tests.factories import (
    claim,
    finish_segment,
    make_ended_job,
    make_job,
    make_take,
    make_user,
    make_version,
    make_voice,
    stored,
)
from voices.models import Voice

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

BULK = RenderJob.Priority.BULK


@pytest.fixture
def voice() -> Voice:
    """The voice of all jobs."""
    return make_voice()


def lanes_of(claims: Sequence[SegmentClaim]) -> list[str]:
    """Return the lanes of claims, in their order."""
    lanes: dict[Any, str] = dict(RenderJob.objects.values_list("pk", "lane"))
    return [lanes[claim.job_id] for claim in claims]


def test_sentence_is_next_however_much_another_lane_has_queued(voice: Voice) -> None:
    for _ in range(40):
        make_job(voice=voice, lane="books", segments=3)
    claim(16)
    sentence = make_job(voice=voice, lane="other")

    [claimed] = claim(1)

    assert claimed.job_id == sentence.pk
    assert lanes_of(claim(4)) == ["books"] * 4, "what is left goes to whom it is of use"


def test_lanes_come_to_the_same_number_in_flight(voice: Voice) -> None:
    make_job(voice=voice, lane="a", segments=30)
    claim(6)
    make_job(voice=voice, lane="b", segments=30)
    make_job(voice=voice, lane="c", segments=2)

    assert Counter(lanes_of(claim(9))) == {"b": 7, "c": 2}
    assert Counter(lanes_of(claim(5))) == {"a": 3, "b": 2}


def test_more_lanes_than_a_worker_has_room_for_take_turns(voice: Voice) -> None:
    """Without turns the two oldest would be taken for ever, and the third never."""
    for lane in "abc":
        make_job(voice=voice, lane=lane, segments=9)
    held = claim(2)
    order = lanes_of(held)
    for _ in range(10):
        assert finish_segment(held.pop(0), make_take())
        held += claim(1)
        order += lanes_of(held[-1:])

    assert order == list("abc" * 4)


def test_lane_of_one_sentence_jobs_gets_no_more_than_its_share(voice: Voice) -> None:
    for lane in "ab":
        make_job(voice=voice, lane=lane, segments=20)
    for _ in range(20):
        make_job(voice=voice, lane="many")
    order = []
    for _ in range(12):
        [one] = claim(1)
        order += lanes_of([one])
        assert finish_segment(one, make_take())

    assert Counter(order) == {"a": 4, "b": 4, "many": 4}


def test_one_lane_is_taken_by_age_and_its_text_in_order(voice: Voice) -> None:
    jobs = [make_job(voice=voice, lane="a", segments=size) for size in (2, 1, 3, 1, 4)]
    expected = [pk for job in jobs for pk in job.segments.values_list("pk", flat=True)]

    for limit in (1, 3, 4, 9):
        taken = [one.pk for one in claim(limit)]
        assert taken == expected[: len(taken)]
        assert len(taken) == min(limit, len(expected))
        del expected[: len(taken)]
    assert not expected


def test_texts_of_each_lane_stay_in_order_where_lanes_are_mixed(voice: Voice) -> None:
    jobs = [make_job(voice=voice, lane=lane, segments=4) for lane in "ab"]

    claims = claim(8)

    assert lanes_of(claims) == list("abababab")
    for job in jobs:
        own = [one.pk for one in claims if one.job_id == job.pk]
        assert own == sorted(own)


def test_interactive_work_of_any_lane_goes_before_bulk_work(voice: Voice) -> None:
    make_job(voice=voice, lane="a", segments=5, priority=BULK)
    claim(2)
    make_job(voice=voice, lane="b", segments=5, priority=BULK)
    urgent = make_job(voice=voice, lane="a", segments=3)

    claims = claim(5)

    assert [one.job_id for one in claims[:3]] == [urgent.pk] * 3
    assert lanes_of(claims[3:]) == ["b", "b"]


def test_bulk_work_in_flight_does_not_count_against_a_lanes_sentence(voice: Voice) -> None:
    make_job(voice=voice, lane="a", segments=8, priority=BULK)
    claim(8)
    first = make_job(voice=voice, lane="a")
    make_job(voice=voice, lane="b", segments=4)

    assert claim(1)[0].job_id == first.pk


def test_room_for_interactive_jobs_alone_is_shared_too(voice: Voice) -> None:
    for lane in "ab":
        make_job(voice=voice, lane=lane, segments=5)
        make_job(voice=voice, lane=lane, segments=5, priority=BULK)

    claims = claim(2, interactive_limit=6)

    assert Counter(lanes_of(claims)) == {"a": 3, "b": 3}
    assert {one.priority for one in claims} == {0}


@pytest.mark.parametrize("at_once", [1, 2, 64])
def test_what_cannot_run_holds_nothing_else_of_its_lane_up(
    voice: Voice, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(fair_order, "JOBS_AT_ONCE", at_once)
    now = timezone.now()
    for _ in range(3):
        make_job(version=make_version(make_voice(versions=0), status="pending"), lane="a")
    make_job(version=make_version(codec_fingerprint="d" * 64), lane="a")
    make_job(voice=voice, lane="a", deadline_at=now - dt.timedelta(seconds=1))
    cancel_job(make_job(voice=voice, lane="a").pk)
    make_job(voice=voice, lane="a", cancel_requested=True)  # by a process that was killed
    waiting = make_job(voice=voice, lane="a", segments=2)
    waiting.segments.update(not_before=now + dt.timedelta(hours=1))
    tried = make_job(voice=voice, lane="a", segments=2)
    tried.segments.update(attempts=2)
    last = make_job(voice=voice, lane="a", segments=2, deadline_at=now + dt.timedelta(hours=1))

    assert [one.job_id for one in claim(9, attempts_below=2)] == [last.pk] * 2


def test_counts_that_are_wrong_lose_no_segment(voice: Voice) -> None:
    for total in (0, 1, 99):
        job = make_job(voice=voice, lane="a", segments=3)
        RenderJob.objects.filter(pk=job.pk).update(segments_total=total)

    assert len(claim(100)) == 9


def test_claim_reads_no_more_for_more_segments(voice: Voice) -> None:
    numbers = []
    for size in (3, 120):
        make_job(voice=voice, lane="a", segments=size)
        make_job(voice=voice, lane="b", segments=size)
        claim(1)
        with CaptureQueriesContext(connection) as queries:
            claim(4)
        numbers.append(len(queries))

    assert numbers[1] <= numbers[0] <= 20


def test_claim_reads_no_more_for_more_jobs_that_wait_for_their_files(
    voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_order, "JOBS_AT_ONCE", 4)
    numbers = []
    for waiting in (1, 60):
        for _ in range(waiting):
            make_job(voice=voice, lane="a", segments=1)
        claims = claim(waiting)
        Segment.objects.filter(pk__in=[one.pk for one in claims]).update(status="done")
        last = make_job(voice=voice, lane="a", segments=1)
        with CaptureQueriesContext(connection) as queries:
            assert [one.job_id for one in claim(1)] == [last.pk]
        numbers.append(len(queries))

    assert numbers[0] == numbers[1]


def test_turns_are_kept_once_for_each_lane_and_class(voice: Voice) -> None:
    for _ in range(2):
        make_job(voice=voice, lane="a", segments=2)
        make_job(voice=voice, lane="b", priority=BULK)
    for _ in range(6):
        claim(1)

    assert sorted(LaneTurn.objects.values_list("priority", "lane")) == [(0, "a"), (10, "b")]


def test_lane_is_that_of_the_key_or_else_the_user(voice: Voice) -> None:
    user = make_user()
    keys = [create_key(user, name)[0] for name in ("one", "two")]
    order = Order(text="Hello.", voice=voice)

    lanes = [
        submit_job(order, Sender(user, keys[0]))[0].lane,
        submit_job(order, Sender(user, keys[1]))[0].lane,
        submit_job(order, Sender(user))[0].lane,
        submit_job(order, Sender(None))[0].lane,
    ]

    assert lanes == [f"key:{keys[0].pk.hex}", f"key:{keys[1].pk.hex}", f"user:{user.pk}", "system"]
    assert max(len(lane_of(2**62, key)) for key in (None, *keys)) <= 40
    assert Segment.objects.filter(job__lane=lanes[0]).count() == 1
    assert ApiKey.objects.count() == 2


def test_retry_by_another_key_is_in_that_keys_lane(voice: Voice) -> None:
    user = make_user()
    key, _ = create_key(user, "other")
    job = make_ended_job(user, voice=voice, status="partial", segments_failed=1)
    job.segments.update(status="failed")

    retry(job, api_key=key)

    assert stored(job, "lane") == (lane_of(user.pk, key),)
