"""When a job is done is told from what was rendered lately, and from what comes before it."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from django.utils import timezone

from synth.eta import eta_of_chars, eta_seconds, etas, real_time_factor, throughput
from synth.models import RenderJob, Segment, Take
from tests.factories import make_job, make_segment, make_take, make_voice
from voices.models import Voice

pytestmark = pytest.mark.django_db
Status = RenderJob.Status
TEXT = "x" * 100


@pytest.fixture
def voice() -> Voice:
    return make_voice()


def job_of(voice: Voice, segments: int, **fields: Any) -> RenderJob:
    """Return a job of so many segments of 100 characters."""
    job = make_job(voice=voice, segments=0, **fields)
    for _ in range(segments):
        make_segment(job, text=TEXT)
    job.refresh_from_db()
    return job


def rendered(voice: Voice, *, segments: int = 11, every: float = 2.0, ago: float = 0.0) -> None:
    """Write that segments of 100 characters ended one after the other: 50 characters a second."""
    job = job_of(voice, segments, status=Status.SUCCEEDED, segments_done=segments)
    now = timezone.now() - dt.timedelta(seconds=ago)
    for place, segment in enumerate(job.segments.order_by("-pk")):
        make_take([segment])
        ended = now - dt.timedelta(seconds=place * every)
        Segment.objects.filter(pk=segment.pk).update(status="done", finished_at=ended)


def test_nothing_is_known_before_anything_was_rendered(voice: Voice) -> None:
    assert eta_seconds(job_of(voice, 3)) is None
    assert throughput() is None


def test_what_was_rendered_long_ago_says_nothing(voice: Voice) -> None:
    rendered(voice, ago=700)

    assert eta_seconds(job_of(voice, 3)) is None


def test_own_characters_take_their_time(voice: Voice) -> None:
    rendered(voice)

    speed = throughput()
    assert speed is not None
    assert speed.chars_per_second == pytest.approx(50, rel=0.01)
    assert eta_seconds(job_of(voice, 10)) == pytest.approx(20, abs=1)


def test_time_in_which_nothing_was_to_be_done_does_not_count(voice: Voice) -> None:
    rendered(voice)
    rendered(voice, ago=300)

    speed = throughput()
    assert speed is not None
    assert speed.chars_per_second == pytest.approx(50, rel=0.01)


def test_takes_that_were_there_before_do_not_count(voice: Voice) -> None:
    rendered(voice)
    old = timezone.now() - dt.timedelta(hours=1)
    Take.objects.update(created_at=old)

    assert throughput() is None


def test_earlier_jobs_of_the_same_lane_come_first(voice: Voice) -> None:
    rendered(voice)
    job_of(voice, 20, lane="a")
    mine = job_of(voice, 10, lane="a")
    job_of(voice, 20, lane="a")

    assert eta_seconds(mine) == pytest.approx(60, abs=2)


def test_other_lanes_take_as_much_as_this_one_at_most(voice: Voice) -> None:
    rendered(voice)
    job_of(voice, 5, lane="little")
    job_of(voice, 40, lane="much")
    mine = job_of(voice, 10, lane="mine")

    assert eta_seconds(mine) == pytest.approx(20 + 20 + 10, abs=2)


def test_bulk_waits_for_all_that_is_interactive_and_not_the_other_way_round(voice: Voice) -> None:
    rendered(voice)
    bulk = job_of(voice, 10, lane="a", priority=10)
    quick = job_of(voice, 30, lane="b", priority=0)

    found = etas([bulk, quick])

    assert found[quick.pk] == pytest.approx(60, abs=2)
    assert found[bulk.pk] == pytest.approx(80, abs=2)


@pytest.mark.parametrize("status", RenderJob.FINAL)
def test_ended_job_has_no_time_left(voice: Voice, status: str) -> None:
    rendered(voice)

    assert eta_seconds(job_of(voice, 3, status=status)) is None


def test_many_jobs_cost_as_many_queries_as_one(
    voice: Voice, django_assert_max_num_queries: object
) -> None:
    rendered(voice)
    jobs = [job_of(voice, 2, lane=str(number)) for number in range(8)]

    with django_assert_max_num_queries(4):  # type: ignore[operator]  # a fixture
        assert len(etas(jobs)) == 8


def test_real_time_factor_is_audio_per_second_of_work(voice: Voice) -> None:
    now = timezone.now()
    start = now - dt.timedelta(seconds=4)
    job = make_job(started_at=start, finished_at=now, audio_seconds=10.0)

    assert real_time_factor(job) == 2.5
    job.finished_at = None
    assert real_time_factor(job) is None


def test_paused_job_holds_nobody_up_and_has_no_end_of_its_own(voice: Voice) -> None:
    rendered(voice)
    before = job_of(voice, 10)
    mine = job_of(voice, 2)
    with_it = eta_seconds(mine)

    RenderJob.objects.filter(pk=before.pk).update(paused_at=timezone.now())
    before.refresh_from_db()

    assert with_it is not None
    assert eta_seconds(mine) == with_it - 20  # 1,000 characters at 50 a second
    assert eta_seconds(before) is None


def test_takes_that_a_later_job_uses_again_do_not_count_as_rendered(voice: Voice) -> None:
    rendered(voice, ago=60)
    speed = throughput()
    takes = list(Take.objects.all())
    again = job_of(voice, len(takes), status=Status.SUCCEEDED)
    for place, (segment, take) in enumerate(zip(again.segments.all(), takes, strict=True)):
        ended = timezone.now() - dt.timedelta(seconds=place * 0.01)
        Segment.objects.filter(pk=segment.pk).update(status="done", take=take, finished_at=ended)

    assert speed is not None
    assert throughput() == speed


def test_text_that_is_not_queued_yet_comes_after_what_is_more_urgent(voice: Voice) -> None:
    rendered(voice)
    job_of(voice, 5, priority=RenderJob.Priority.INTERACTIVE)
    batch = uuid.uuid4()

    found = eta_of_chars({batch: (1000.0, RenderJob.Priority.BULK, "user:1")})

    assert found == {batch: 30}  # 500 and 1,000 characters at 50 a second
    assert eta_of_chars({}) == {}
