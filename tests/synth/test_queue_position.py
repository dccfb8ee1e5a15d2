"""The place in the queue that a job shows is about the order in which lanes take turns."""

from __future__ import annotations

import uuid

import pytest

from synth.jobs.queue_places import before_in_lane, queue_positions
from synth.models import RenderJob
from synth.transitions.claims import claim_segments
from tests.factories import CODEC_FINGERPRINT, make_job, make_voice

pytestmark = pytest.mark.django_db


def positions() -> dict[uuid.UUID, int]:
    """Return the place of each queued job."""
    return queue_positions(list(RenderJob.objects.filter(status="queued")))


def order_of_claims() -> list[object]:
    """Return the jobs in the order in which workers take their first segment."""
    jobs: list[object] = []
    while claims := claim_segments(worker="w", limit=1, codec_fingerprint=CODEC_FINGERPRINT):
        jobs += [claim.job_id for claim in claims if claim.job_id not in jobs]
    return jobs


def test_positions_are_the_order_of_claims_where_lanes_are_alike() -> None:
    voice = make_voice()
    for lane in ("a", "a", "a", "b", "c", "b", "c", "b", "c"):
        make_job(voice=voice, lane=lane)
    shown = positions()

    assert sorted(shown.values()) == list(range(1, 10))
    assert sorted(shown, key=shown.__getitem__) == order_of_claims()


def test_sentence_behind_many_jobs_of_another_lane_is_second() -> None:
    voice = make_voice()
    for _ in range(20):
        make_job(voice=voice, lane="books")
    sentence = make_job(voice=voice, lane="other")
    shown = positions()

    assert shown[sentence.pk] == 2
    assert sorted(shown.values()) == list(range(1, 22))
    assert order_of_claims().index(sentence.pk) == 1


def test_more_urgent_jobs_of_all_lanes_come_first() -> None:
    voice = make_voice()
    bulk = make_job(voice=voice, lane="a", priority=RenderJob.Priority.BULK)
    for lane in ("a", "b"):
        make_job(voice=voice, lane=lane)

    assert positions()[bulk.pk] == 3


def test_one_lane_is_ordered_by_age() -> None:
    voice = make_voice()
    jobs = [make_job(voice=voice, lane="a").pk for _ in range(4)]

    assert positions() == {pk: place for place, pk in enumerate(jobs, 1)}


def test_job_by_itself_has_the_place_that_it_has_on_a_page() -> None:
    voice = make_voice()
    for lane in ("a", "b", "a", "a", "b", "c", "a"):
        make_job(voice=voice, lane=lane)
    same = RenderJob.objects.filter(lane="a").order_by("-created_at")[:2]
    RenderJob.objects.filter(pk=same[0].pk).update(created_at=same[1].created_at)
    jobs = list(RenderJob.objects.filter(status="queued"))

    page = before_in_lane(jobs)

    assert {job.pk: before_in_lane([job])[job.pk] for job in jobs} == page
    assert any(before.queued_jobs and before.segments for before in page.values())
