"""What a day rendered is counted once, whoever counts at the same moment."""

from __future__ import annotations

import datetime as dt

import pytest

from synth.jobs.removal import delete_job
from synth.models import RenderedDay, RenderJob, Segment
from synth.transitions.claims import claim_segments
from synth.transitions.jobs import fail_open_segments, stop_overdue_jobs
from synth.transitions.segments import finish_segments, free_lost_segments, retake_segments
from tests.factories import CODEC_FINGERPRINT, make_job, make_take
from tests.synth.transitions.test_races import at_once
from tests.synth.transitions.test_races import database as database
from ttsweb import leases


def test_threads_that_finish_segments_at_once_lose_no_count(database: str) -> None:
    job = make_job(segments=24)
    claims = claim_segments(worker="w", limit=24, codec_fingerprint=CODEC_FINGERPRINT)
    takes = [make_take(audio_seconds=1.5) for _ in claims]

    def finish(number: int) -> int:
        mine = range(number, 24, 6)
        count = 0
        for place in mine:
            reused = [claims[place]] if place < 6 else []
            count += len(finish_segments([(claims[place], takes[place])], reused=reused))
        return count

    assert sum(at_once(finish)) == 24

    day = RenderedDay.objects.get()
    job.refresh_from_db()
    assert day.day == leases.database_now().astimezone(dt.UTC).date()
    assert (day.segments, day.reused, day.audio_seconds) == (24, 6, 18 * 1.5)
    assert (job.takes_rendered, job.takes_reused) == (18, 6)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("job_services")
def test_count_stays_when_the_job_is_deleted() -> None:
    job = make_job()
    (claim,) = claim_segments(worker="w", limit=1, codec_fingerprint=CODEC_FINGERPRINT)
    finish_segments([(claim, make_take())])

    delete_job(job)

    assert RenderedDay.objects.get().segments == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("job_services")
@pytest.mark.parametrize("reason", ["deadline", "voice"])
@pytest.mark.parametrize("is_claimed", [False, True])
def test_suspicious_take_is_kept_where_no_other_one_can_be_waited_for(
    reason: str, is_claimed: bool
) -> None:
    job = make_job(segments=2)
    (claim,) = claim_segments(worker="w", limit=1, codec_fingerprint=CODEC_FINGERPRINT)
    take = make_take(quality_score=0.3, quality_flags=["noise"], audio_seconds=2.0)
    retake_segments([(claim, take)])
    if is_claimed:
        claim_segments(worker="w", limit=1, codec_fingerprint=CODEC_FINGERPRINT)

    if reason == "deadline":
        RenderJob.objects.update(deadline_at=leases.database_now() - dt.timedelta(seconds=1))
        assert stop_overdue_jobs() == 1
    else:
        fail_open_segments(job.pk, ["queued"], code="voice_deleted", message="It was deleted.")

    first, second = job.segments.order_by("pk")
    job.refresh_from_db()
    assert second.status == "failed"
    if is_claimed and reason == "voice":  # a worker is at it, and ends it
        assert (first.status, job.segments_done) == ("claimed", 0)
    else:
        assert (first.status, first.take, job.segments_done) == ("done", take, 1)
        assert job.audio_seconds == pytest.approx(2.3)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("job_services")
def test_retake_that_no_worker_survives_leaves_the_best_take() -> None:
    job = make_job(segments=2)
    (claim,) = claim_segments(worker="w", limit=1, codec_fingerprint=CODEC_FINGERPRINT)
    take = make_take(quality_score=0.3, quality_flags=["noise"])
    assert retake_segments([(claim, take)]) == {claim}
    lost = claim_segments(worker="w", limit=2, codec_fingerprint=CODEC_FINGERPRINT)
    Segment.objects.update(losses=9)  # each worker that held them has ended, as this one does

    free_lost_segments(leases.expired(leases.database_now() + dt.timedelta(days=1)))

    assert len(lost) == 2
    first, second = job.segments.order_by("pk")
    assert (first.status, first.take, second.status) == ("done", take, "failed")
    job.refresh_from_db()
    assert (job.segments_done, job.segments_failed) == (1, 1)
    assert job.status == RenderJob.Status.RUNNING
