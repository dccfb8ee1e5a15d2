"""Steps of segments: who may claim, and that a late worker changes nothing."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence

import pytest
from django.db.models import Q
from django.utils import timezone
from pytest_django import Settings

from synth.models import Export, JobVoice, RenderJob, Segment
from synth.transitions.claims import claim_segments
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import (
    cancel_segment,
    fail_segment,
    free_lost_segments,
    reopen_segments,
)
from tests.factories import (
    CODEC_FINGERPRINT,
    finish_segment,
    make_job,
    make_segment,
    make_take,
    make_version,
    make_voice,
)
from ttsweb import leases
from ttsweb.leases import LOSSES_BESIDE_OTHERS, Claim
from voices.models import VoiceVersion

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Status = Segment.Status


def claim(limit: int = 100, *, worker: str = "w1", ids: Sequence[int] | None = None) -> list[Claim]:
    return list(
        claim_segments(worker=worker, limit=limit, codec_fingerprint=CODEC_FINGERPRINT, ids=ids)
    )


def only(job: RenderJob) -> Segment:
    return job.segments.get()


def test_only_one_worker_claims_a_segment() -> None:
    job = make_job()

    first, second = claim(worker="gpu-1"), claim(worker="gpu-2")

    segment = only(job)
    assert (len(first), len(second)) == (1, 0)
    assert (segment.claimed_by, segment.attempts, segment.status) == ("gpu-1", 1, Status.CLAIMED)
    assert segment.claim_token == first[0].token


def test_first_claim_starts_the_job() -> None:
    job = make_job()

    claim()

    job.refresh_from_db()
    assert job.status == RenderJob.Status.RUNNING
    assert job.started_at is not None


def test_segments_come_by_priority_then_age_then_place() -> None:
    voice = make_voice()
    bulk = make_job(voice=voice, priority=10)
    old = make_job(voice=voice, segments=2)
    new = make_job(voice=voice)

    order = [claim.pk for claim in claim()]

    expected = [*old.segments.all(), *new.segments.all(), *bulk.segments.all()]
    assert order == [segment.pk for segment in expected]


def test_claim_takes_no_more_than_asked_and_only_what_was_named() -> None:
    job = make_job(segments=5)
    ids = list(job.segments.values_list("pk", flat=True))

    assert [found.pk for found in claim(2)] == ids[:2]
    assert [found.pk for found in claim(ids=ids[:4])] == ids[2:4]


@pytest.mark.parametrize(
    ("status", "fingerprint"),
    [
        (VoiceVersion.Status.PENDING, CODEC_FINGERPRINT),
        (VoiceVersion.Status.ENCODING, CODEC_FINGERPRINT),
        (VoiceVersion.Status.FAILED, CODEC_FINGERPRINT),
        (VoiceVersion.Status.READY, "d" * 64),
    ],
)
def test_segment_waits_for_a_voice_in_the_workers_codec(status: str, fingerprint: str) -> None:
    version = make_version(status=status, codec_fingerprint=fingerprint)
    make_job(version=version)

    assert claim() == []
    VoiceVersion.objects.update(status="ready", codec_fingerprint=CODEC_FINGERPRINT)
    assert len(claim()) == 1


def test_segment_waits_for_every_pinned_voice() -> None:
    job = make_job()
    JobVoice.objects.create(job=job, speaker=1, version=make_version(status="pending"))

    assert claim() == []


def test_segment_of_a_cancelled_job_or_of_later_is_not_claimed() -> None:
    later, cancelled = make_job(), make_job()
    later.segments.update(not_before=timezone.now() + dt.timedelta(minutes=1))
    RenderJob.objects.filter(pk=cancelled.pk).update(cancel_requested=True)

    assert claim() == []


def test_last_finished_segment_orders_the_file(sent_tasks: Callable[[str], list[str]]) -> None:
    job = make_job(segments=2)
    first, second = claim()

    assert finish_segment(first, make_take(audio_seconds=1.0))
    assert not Export.objects.exists()
    assert finish_segment(second, make_take(audio_seconds=2.0))

    job.refresh_from_db()
    export = Export.objects.get()
    assert (export.status, export.format) == (Export.Status.QUEUED, "wav")
    assert (job.segments_done, job.status) == (2, RenderJob.Status.RUNNING)
    assert job.audio_seconds == pytest.approx(3.6)
    assert export.sent_at is not None
    assert len(sent_tasks("assemble")) == 1


def test_finished_segment_keeps_its_take_and_who_made_it() -> None:
    job = make_job()
    take = make_take()

    finish_segment(claim(worker="gpu-1")[0], take)

    segment = only(job)
    assert (segment.status, segment.take, segment.claimed_by) == (Status.DONE, take, "gpu-1")
    assert segment.claim_token is None
    assert segment.finished_at is not None


@pytest.mark.parametrize("late", ["finish", "fail", "cancel", "release"])
def test_late_worker_changes_nothing(late: str) -> None:
    job = make_job()
    stale = claim(worker="gpu-1")[0]
    leases.hand_back(Segment, stale, spend_attempt=True)
    claim(worker="gpu-2")
    before = Segment.objects.filter(pk=stale.pk).values().get()

    steps: dict[str, Callable[[], bool]] = {
        "finish": lambda: finish_segment(stale, make_take()),
        "fail": lambda: fail_segment(stale, code="x", message="x"),
        "cancel": lambda: cancel_segment(stale),
        "release": lambda: leases.hand_back(Segment, stale),
    }
    assert steps[late]() is False

    job.refresh_from_db()
    assert Segment.objects.filter(pk=stale.pk).values().get() == before
    assert (job.segments_done, job.segments_failed, job.segments_cancelled) == (0, 0, 0)


def test_same_finish_twice_counts_once() -> None:
    job = make_job(segments=2)
    held = claim()[0]

    assert finish_segment(held, make_take())
    assert not finish_segment(held, make_take())

    job.refresh_from_db()
    assert job.segments_done == 1


def test_job_whose_segments_all_failed_fails_with_the_first_reason() -> None:
    job = make_job(segments=2)
    first, second = claim()

    fail_segment(second, code="later", message="Second.")
    fail_segment(first, code="prompt_too_long", message="First.")

    job.refresh_from_db()
    assert (job.status, job.error_code) == (RenderJob.Status.FAILED, "prompt_too_long")
    assert job.error_message == "First."
    assert job.finished_at is not None


def test_one_failed_segment_does_not_stop_the_others() -> None:
    job = make_job(segments=2)
    first, second = claim()

    fail_segment(first, code="x", message="x")
    finish_segment(second, make_take())

    job.refresh_from_db()
    assert job.status == RenderJob.Status.RUNNING
    assert Export.objects.filter(job=job).exists()


def test_given_back_segment_has_not_spent_its_attempt_unless_said() -> None:
    job = make_job()

    leases.hand_back(Segment, claim()[0])
    assert only(job).attempts == 0
    leases.hand_back(Segment, claim()[0], spend_attempt=True, delay_seconds=60)

    segment = only(job)
    assert (segment.attempts, segment.status, segment.claim_token) == (1, Status.QUEUED, None)
    assert segment.not_before > timezone.now() + dt.timedelta(seconds=50)


def test_expired_claims_are_free_again_and_others_stay() -> None:
    make_job(segments=2)
    expired, alive = claim()
    past = timezone.now() - dt.timedelta(seconds=1)
    Segment.objects.filter(pk=expired.pk).update(lease_until=past)

    assert free_lost_segments(leases.expired(timezone.now())) == 1

    assert Segment.objects.get(pk=expired.pk).status == Status.QUEUED
    lost = Segment.objects.get(pk=expired.pk)
    assert (lost.attempts, lost.losses) == (0, 1), "a lost worker is no fault of the segment"
    assert Segment.objects.get(pk=alive.pk).status == Status.CLAIMED


def test_segment_that_loses_every_worker_fails_at_last(settings: Settings) -> None:
    job = make_job()
    for number in range(LOSSES_BESIDE_OTHERS + settings.MAX_ATTEMPTS):
        assert len(claim()) == 1, number
        free_lost_segments(Q(claimed_by="w1"))

    segment = only(job)
    job.refresh_from_db()
    assert (segment.status, segment.error_code) == (Status.FAILED, "worker_lost")
    assert job.status == RenderJob.Status.FAILED


def test_lost_segment_of_a_cancelled_job_is_cancelled() -> None:
    job = make_job()
    claim()
    cancel_job(job.pk)

    free_lost_segments(Q(claimed_by="w1"))

    job.refresh_from_db()
    assert only(job).status == Status.CANCELLED
    assert job.status == RenderJob.Status.CANCELLED


def test_segment_whose_audio_is_gone_is_rendered_again() -> None:
    job = make_job(segments=2)
    first, second = claim()
    finish_segment(first, make_take(audio_seconds=1.0))
    finish_segment(second, make_take(audio_seconds=2.0))

    assert reopen_segments([first.pk, first.pk]) == 1

    job.refresh_from_db()
    segment = Segment.objects.get(pk=first.pk)
    assert (segment.status, segment.take, segment.attempts) == (Status.QUEUED, None, 0)
    assert job.segments_done == 1
    assert job.audio_seconds == pytest.approx(2.3)
    assert reopen_segments([first.pk]) == 0


def test_claim_of_a_deleted_segment_is_gone() -> None:
    ghost = Claim(10**9, uuid.uuid4())

    assert not finish_segment(ghost, make_take())
    assert not leases.hand_back(Segment, ghost)


def test_renewing_extends_what_is_held_and_says_what_is_lost() -> None:
    make_job(segments=2)
    first, second = claim()
    leases.hand_back(Segment, second)
    before = Segment.objects.get(pk=first.pk).lease_until

    held = leases.renew(Segment.objects.all(), [first.token, second.token], lease_seconds=500)

    after = Segment.objects.get(pk=first.pk).lease_until
    assert held == {first.pk}
    assert before is not None
    assert after is not None
    assert after > before


def test_segment_put_in_later_is_claimed_as_well() -> None:
    job = make_job()
    claim()
    added = make_segment(job)

    assert [found.pk for found in claim()] == [added.pk]
