"""Takes that stand out or are suspicious are taken again, and the best of them is kept."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

from synth.jobs.removal import delete_job
from synth.models import Export, RenderedDay, RenderJob, Segment, Take
from synth.transitions.jobs import fail_open_segments, stop_overdue_jobs
from synth.transitions.segments import free_lost_segments, retake_segments
from tests.factories import claim, finish_segment, make_job, make_take, stored
from ttsweb import leases

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]


def screened(dbfs: float = -25.0, pace: float = 1.0, **fields: Any) -> Take:
    measures = {"active_dbfs": dbfs, "pace": pace, "screen": []}
    return make_take(quality_score=1.0, measures=measures, **fields)


def finish(job: RenderJob, takes: list[Take], *, order: list[int] | None = None) -> None:
    """Claim what waits and finish it with the takes, by place, in the order that is given."""
    claims = claim()
    for place in order or range(len(takes)):
        assert finish_segment(claims[place], takes[place])
    job.refresh_from_db()


def waiting(job: RenderJob) -> list[Segment]:
    return list(job.segments.filter(status=Segment.Status.QUEUED).order_by("pk"))


@pytest.mark.parametrize(
    ("dbfs", "pace", "flags"),
    [(-40, 1, ["level"]), (-10, 1, ["level"]), (-25, 2.2, ["rhythm"]), (-25, 0.4, ["rhythm"])],
)
def test_take_that_stands_out_is_taken_again_before_the_file_is_made(
    dbfs: float, pace: float, flags: list[str]
) -> None:
    job = make_job(segments=9)
    order = list(range(9))
    random.Random(str((dbfs, pace))).shuffle(order)
    takes = [screened(-25 + place % 3) for place in range(9)]
    takes[4] = screened(dbfs, pace)

    finish(job, takes, order=order)

    (segment,) = waiting(job)
    assert segment == job.segments.order_by("pk")[4]
    assert (segment.retakes, segment.attempts, segment.take) == (1, 0, None)
    assert segment.candidates[0]["flags"] == flags
    assert segment.candidates[0]["score"] < 1
    assert (job.segments_done, job.status, job.exports.count()) == (8, "running", 0)

    finish(job, [screened(-25)])

    status, candidates, take_id = stored(segment, "status", "candidates", "take_id")
    assert (status, candidates[1]["flags"], candidates[1]["take"]) == ("done", [], str(take_id))
    assert (job.segments_done, job.takes_compared) == (9, True)
    assert job.exports.get().status == Export.Status.QUEUED
    total = sum(one.take.audio_seconds + 0.3 for one in job.segments.all() if one.take)
    assert job.audio_seconds == pytest.approx(total)


def test_best_is_kept_where_all_takes_stand_out() -> None:
    job = make_job(segments=8)
    finish(job, [screened(-60), *[screened(-25) for _ in range(7)]])
    finish(job, [screened(-40)])

    finish(job, [screened(-55, audio_seconds=9.0)])

    segment = job.segments.order_by("pk")[0]
    assert [one["flags"] for one in segment.candidates] == [["level"]] * 3
    assert str(segment.take_id) == segment.candidates[1]["take"]
    assert (segment.status, segment.retakes) == ("done", 2)
    assert segment.seed == segment.candidates[1]["seed"]
    assert job.exports.count() == 1
    assert job.audio_seconds == pytest.approx(8 * (0.93 + 0.3))


@pytest.mark.parametrize(
    "takes",
    [
        [-25.0] * 6 + [-45.0],  # one of them stands out, but so few say nothing
        [-25.0 - 2 * place for place in range(9)] + [-45.0],  # all are spread widely
    ],
)
def test_few_or_widely_spread_takes_are_left_as_they_are(takes: list[float]) -> None:
    job = make_job(segments=len(takes))

    finish(job, [screened(dbfs) for dbfs in takes])

    assert (waiting(job), job.exports.count()) == ([], 1)


def test_each_speaker_is_compared_with_itself() -> None:
    job = make_job(segments=16)
    for place, segment in enumerate(job.segments.order_by("pk")):
        segment.speaker = place % 2
        segment.save()

    finish(job, [screened(-20 if place % 2 else -40) for place in range(16)])

    assert (waiting(job), job.exports.count()) == ([], 1)


@pytest.mark.parametrize("reason", ["off", "hand_picked", "unscreened"])
def test_nothing_is_taken_again_where_nobody_wants_it(reason: str) -> None:
    job = make_job(segments=9, max_retakes=0 if reason == "off" else None)
    if reason == "hand_picked":
        job.segments.update(is_hand_picked=True)
    loud = make_take() if reason == "unscreened" else screened(0)

    finish(job, [loud, *[screened(-25) for _ in range(8)]])

    assert (waiting(job), job.exports.count()) == ([], 1)


def test_takes_are_compared_once_and_not_after_a_person_changed_one() -> None:
    job = make_job(segments=9)
    finish(job, [screened(-25) for _ in range(9)])
    row = job.segments.order_by("pk")[0]
    Segment.objects.filter(pk=row.pk).update(status="queued", take=None)
    RenderJob.objects.update(status="running", segments_done=8)

    finish(job, [screened(-60)])

    assert waiting(job) == []


def suspicious(**fields: Any) -> Take:
    return make_take(quality_score=0.3, quality_flags=["noise"], **fields)


def test_suspicious_take_of_another_claim_moves_nothing() -> None:
    job = make_job()
    (first,) = claim()
    Segment.objects.update(claim_token=None, status="queued")
    (second,) = claim(worker="v")
    take = suspicious()

    assert retake_segments([(first, take)]) == set()
    assert retake_segments([(second, take)]) == {second}

    segment = job.segments.get()
    assert (segment.status, segment.retakes, len(segment.candidates)) == ("queued", 1, 1)


@pytest.mark.parametrize("reason", ["deadline", "voice"])
@pytest.mark.parametrize("is_claimed", [False, True])
def test_suspicious_take_is_kept_where_no_other_one_can_be_waited_for(
    reason: str, is_claimed: bool
) -> None:
    job = make_job(segments=2)
    take = suspicious(audio_seconds=2.0)
    retake_segments([(claim(1)[0], take)])
    if is_claimed:
        claim(1)

    if reason == "deadline":
        RenderJob.objects.update(deadline_at=leases.database_now() - dt.timedelta(seconds=1))
        assert stop_overdue_jobs() == 1
    else:
        fail_open_segments(job.pk, ["queued"], code="voice_deleted", message="It was deleted.")

    first, second = job.segments.order_by("pk")
    done, seconds = stored(job, "segments_done", "audio_seconds")
    assert second.status == "failed"
    if is_claimed and reason == "voice":  # a worker is at it, and ends it
        assert (first.status, done) == ("claimed", 0)
    else:
        assert (first.status, first.take, done) == ("done", take, 1)
        assert seconds == pytest.approx(2.3)


def test_retake_that_no_worker_survives_leaves_the_best_take() -> None:
    job = make_job(segments=2)
    (held,) = claim(1)
    take = suspicious()
    assert retake_segments([(held, take)]) == {held}
    assert len(claim()) == 2
    Segment.objects.update(losses=9)  # each worker that held them has ended, as this one does

    free_lost_segments(leases.expired(leases.database_now() + dt.timedelta(days=1)))

    first, second = job.segments.order_by("pk")
    assert (first.status, first.take, second.status) == ("done", take, "failed")
    found = stored(job, "segments_done", "segments_failed", "status")
    assert found == (1, 1, RenderJob.Status.RUNNING)


def test_count_of_a_day_stays_when_the_job_is_deleted() -> None:
    job = make_job()
    finish_segment(claim()[0], make_take())

    delete_job(job)

    assert RenderedDay.objects.get().segments == 1
