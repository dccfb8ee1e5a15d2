"""Steps of segments: who may claim, that a late worker changes nothing, what a person changes."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import Q
from django.utils import timezone
from pytest_django import Settings

from synth.models import Export, JobVoice, RenderJob, Segment, Take
from synth.transitions.jobs import JobStatus, cancel_job
from synth.transitions.segment_edits import choose_take, render_again, say_otherwise
from synth.transitions.segments import (
    cancel_segment,
    fail_segment,
    free_lost_segments,
    reopen_segments,
)
from synth.transitions.takes import retake_seed
from tests.factories import (
    CODEC_FINGERPRINT,
    claim,
    finish_segment,
    make_export,
    make_job,
    make_segment,
    make_take,
    make_version,
    make_voice,
    stored,
)
from tests.synth.conftest import at_once
from ttsweb import leases
from ttsweb.leases import LOSSES_BESIDE_OTHERS, Claim
from voices.models import VoiceVersion

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Status = Segment.Status


def only(job: RenderJob) -> Segment:
    return job.segments.get()


def test_only_one_worker_claims_a_segment_which_starts_the_job() -> None:
    job = make_job()

    first, second = claim(worker="gpu-1"), claim(worker="gpu-2")

    segment = only(job)
    assert (len(first), len(second)) == (1, 0)
    assert (segment.claimed_by, segment.attempts, segment.status) == ("gpu-1", 1, Status.CLAIMED)
    assert segment.claim_token == first[0].token
    assert stored(job, "status") == (JobStatus.RUNNING,)
    assert job.started_at is not None


def test_claim_takes_no_more_than_asked_and_only_what_was_named() -> None:
    job = make_job(segments=5)
    ids = list(job.segments.values_list("pk", flat=True))

    assert [found.pk for found in claim(2)] == ids[:2]
    assert [found.pk for found in claim(ids=ids[:4])] == ids[2:4]
    added = make_segment(job)
    assert [found.pk for found in claim()] == [ids[4], added.pk]


@pytest.mark.parametrize(
    ("status", "fingerprint"),
    [
        (VoiceVersion.Status.PENDING, CODEC_FINGERPRINT),
        (VoiceVersion.Status.ENCODING, CODEC_FINGERPRINT),
        (VoiceVersion.Status.FAILED, CODEC_FINGERPRINT),
        (VoiceVersion.Status.READY, "d" * 64),
    ],
)
def test_segment_waits_for_every_voice_in_the_workers_codec(status: str, fingerprint: str) -> None:
    version = make_version(status=status, codec_fingerprint=fingerprint)
    make_job(version=version)
    JobVoice.objects.create(job=make_job(), speaker=1, version=version)

    assert claim() == []
    VoiceVersion.objects.update(status="ready", codec_fingerprint=CODEC_FINGERPRINT)
    assert len(claim()) == 2


def test_last_finished_segment_orders_the_file(sent_tasks: Callable[[str], list[str]]) -> None:
    job = make_job(segments=2)
    first, second = claim()

    assert finish_segment(first, make_take(audio_seconds=1.0))
    assert not Export.objects.exists()
    assert finish_segment(second, make_take(audio_seconds=2.0))

    export = Export.objects.get()
    assert (export.status, export.format) == (Export.Status.QUEUED, "wav")
    found = stored(job, "segments_done", "status", "audio_seconds")
    assert found == (2, JobStatus.RUNNING, pytest.approx(3.6))
    assert export.sent_at is not None
    assert len(sent_tasks("assemble")) == 1


def test_finished_segment_keeps_its_take_and_who_made_it_and_counts_once() -> None:
    job, take = make_job(), make_take()
    (held,) = claim(worker="gpu-1")

    assert finish_segment(held, take)
    assert not finish_segment(held, make_take())

    segment = only(job)
    assert (segment.status, segment.take, segment.claimed_by) == (Status.DONE, take, "gpu-1")
    assert (segment.claim_token, segment.finished_at is None) == (None, False)
    assert stored(job, "segments_done") == (1,)


def test_late_worker_changes_nothing() -> None:
    job = make_job()
    stale = claim(worker="gpu-1")[0]
    leases.hand_back(Segment, stale, spend_attempt=True)
    claim(worker="gpu-2")
    before = Segment.objects.filter(pk=stale.pk).values().get()

    for late in (stale, Claim(10**9, uuid.uuid4())):  # that of a deleted row as well
        assert finish_segment(late, make_take()) is False, late
        assert fail_segment(late, code="x", message="x") is False, late
        assert cancel_segment(late) is False, late
        assert leases.hand_back(Segment, late) is False, late

    assert Segment.objects.filter(pk=stale.pk).values().get() == before
    found = stored(job, "segments_done", "segments_failed", "segments_cancelled")
    assert found == (0, 0, 0)


def test_job_whose_segments_all_failed_fails_with_the_first_reason() -> None:
    job = make_job(segments=2)
    first, second = claim()

    fail_segment(second, code="later", message="Second.")
    fail_segment(first, code="prompt_too_long", message="First.")

    found = stored(job, "status", "error_code", "error_message")
    assert found == (JobStatus.FAILED, "prompt_too_long", "First.")
    assert job.finished_at is not None


def test_one_failed_segment_does_not_stop_the_others() -> None:
    job = make_job(segments=2)
    first, second = claim()

    fail_segment(first, code="x", message="x")
    finish_segment(second, make_take())

    assert stored(job, "status") == (JobStatus.RUNNING,)
    assert Export.objects.filter(job=job).exists()


def test_given_back_segment_has_not_spent_its_attempt_unless_said() -> None:
    job = make_job()

    leases.hand_back(Segment, claim()[0])
    assert only(job).attempts == 0
    leases.hand_back(Segment, claim()[0], spend_attempt=True, delay_seconds=60)

    segment = only(job)
    assert (segment.attempts, segment.status, segment.claim_token) == (1, Status.QUEUED, None)
    assert segment.not_before > timezone.now() + dt.timedelta(seconds=50)


def test_segments_come_by_priority_then_age_then_place() -> None:
    voice = make_voice()
    bulk = make_job(voice=voice, priority=10)
    old = make_job(voice=voice, segments=2)
    new = make_job(voice=voice)

    order = [held.pk for held in claim()]

    expected = [*old.segments.all(), *new.segments.all(), *bulk.segments.all()]
    assert order == [segment.pk for segment in expected]


def test_expired_claim_is_free_again_unspent_and_others_stay() -> None:
    make_job(segments=2)
    expired, alive = claim()
    past = timezone.now() - dt.timedelta(seconds=1)
    Segment.objects.filter(pk=expired.pk).update(lease_until=past)

    assert free_lost_segments(leases.expired(timezone.now())) == 1

    lost, kept = (Segment.objects.get(pk=held.pk) for held in (expired, alive))
    assert (lost.status, lost.losses) == (Status.QUEUED, 1)
    assert lost.attempts == 0, "a lost worker is no fault of the segment"
    assert (kept.status, kept.claim_token) == (Status.CLAIMED, alive.token)


def test_segment_that_loses_every_worker_fails_at_last(settings: Settings) -> None:
    job = make_job()
    for number in range(LOSSES_BESIDE_OTHERS + settings.MAX_ATTEMPTS):
        assert len(claim()) == 1, number
        free_lost_segments(Q(claimed_by="w1"))

    assert stored(only(job), "status", "error_code") == (Status.FAILED, "worker_lost")
    assert stored(job, "status") == (JobStatus.FAILED,)


def test_lost_segment_of_a_cancelled_job_is_cancelled() -> None:
    job = make_job()
    claim()
    cancel_job(job.pk)

    free_lost_segments(Q(claimed_by="w1"))

    assert stored(only(job), "status") == (Status.CANCELLED,)
    assert stored(job, "status") == (JobStatus.CANCELLED,)


def test_segment_whose_audio_is_gone_is_rendered_again() -> None:
    job = make_job(segments=2)
    first, second = claim()
    finish_segment(first, make_take(audio_seconds=1.0))
    finish_segment(second, make_take(audio_seconds=2.0))

    assert reopen_segments([first.pk, first.pk]) == 1

    segment = Segment.objects.get(pk=first.pk)
    assert (segment.status, segment.take, segment.attempts) == (Status.QUEUED, None, 0)
    assert stored(job, "segments_done", "audio_seconds") == (1, pytest.approx(2.3))
    assert reopen_segments([first.pk]) == 0


def test_renewing_extends_what_is_held_and_says_what_is_lost() -> None:
    make_job(segments=2)
    first, second = claim()
    leases.hand_back(Segment, second)
    before = Segment.objects.get(pk=first.pk).lease_until

    held = leases.renew(Segment.objects.all(), [first.token, second.token], lease_seconds=500)

    after = Segment.objects.get(pk=first.pk).lease_until
    assert held == {first.pk}
    assert before is not None and after is not None and after > before


def spoken_job(*, segments: int = 3, failed: int = 0) -> RenderJob:
    """Return an ended job whose first `failed` segments have no take, with its file."""
    job = make_job(segments=segments, status=JobStatus.PARTIAL if failed else JobStatus.SUCCEEDED)
    for place, segment in enumerate(job.segments.order_by("pk")):
        is_failed = place < failed
        if not is_failed:
            make_take([segment], audio_seconds=2.0)
        Segment.objects.filter(pk=segment.pk).update(
            status="failed" if is_failed else "done", error_code="x" if is_failed else ""
        )
    RenderJob.objects.filter(pk=job.pk).update(
        segments_done=segments - failed, segments_failed=failed, audio_seconds=99.0
    )
    make_export(job)
    job.refresh_from_db()
    return job


def first(job: RenderJob) -> Segment:
    return job.segments.order_by("pk")[0]


def take_of(segment: Segment) -> Take:
    assert segment.take is not None
    return segment.take


def finish(job: RenderJob, take: Take) -> None:
    (held,) = claim()
    assert finish_segment(held, take)
    job.refresh_from_db()


def assert_counts_fit(job: RenderJob) -> None:
    counts = Counter(job.segments.values_list("status", flat=True))
    assert stored(job, "segments_done", "segments_failed") == (counts["done"], counts["failed"])


def test_segment_is_queued_with_the_next_seed_and_its_take_stays_to_be_heard() -> None:
    job = spoken_job()
    before = first(job)

    assert render_again(before.pk)

    segment = first(job)
    assert (segment.status, segment.take, segment.is_hand_picked) == ("queued", None, True)
    assert segment.seed == retake_seed(before.seed, 1)
    assert [one["take"] for one in segment.candidates] == [str(before.take_id)]
    assert list(segment.candidate_takes.all()) == [before.take]
    assert_counts_fit(job)
    assert (job.status, job.finished_at, job.exports.count()) == (JobStatus.RUNNING, None, 0)
    assert job.audio_seconds == pytest.approx(2 * (2.0 + 0.3))
    assert set(job.segments.exclude(pk=segment.pk).values_list("status", flat=True)) == {"done"}


def test_take_that_a_person_asked_for_is_kept_though_it_is_worse() -> None:
    job = spoken_job()
    render_again(first(job).pk, seed=77)
    bad = make_take(quality_score=0.01, quality_flags=["noise"])

    finish(job, bad)

    segment = first(job)
    assert (segment.status, segment.take, segment.seed) == ("done", bad, 77)
    assert len(segment.candidates) == 2
    assert job.exports.get().status == Export.Status.QUEUED
    render_again(segment.pk)
    assert first(job).seed == retake_seed(segment.candidates[0]["seed"], 1)


def test_failed_segment_is_rendered_again_as_well() -> None:
    job = spoken_job(failed=1)

    assert render_again(first(job).pk)

    assert stored(first(job), "status", "error_code", "candidates") == ("queued", "", [])
    assert_counts_fit(job)


def test_other_words_start_anew_and_the_old_takes_go_unless_another_job_has_them() -> None:
    job, other = spoken_job(), spoken_job()
    segment, shared = job.segments.order_by("pk")[:2]
    Segment.objects.filter(pk=first(other).pk).update(take=shared.take)
    others = set(Take.objects.exclude(pk=take_of(segment).pk))
    default_storage.save(take_of(segment).audio_key, ContentFile(b"flac"))

    words: dict[str, Any] = {"spoken_text": "Other words.", "seed": 9, "is_hand_picked": False}
    assert say_otherwise(segment.pk, **words)
    assert say_otherwise(shared.pk, **words)

    changed = stored(first(job), "spoken_text", "text", "seed", "candidates", "is_hand_picked")
    assert changed == ("Other words.", segment.text, 9, [], False)
    assert set(Take.objects.all()) == others
    assert not default_storage.exists(take_of(segment).audio_key)
    assert_counts_fit(job)
    assert first(other).take == shared.take


@pytest.mark.parametrize("state", ["queued", "claimed", "cancelled"])
def test_segment_that_is_at_work_or_cancelled_is_not_touched(state: str) -> None:
    job = spoken_job()
    Segment.objects.filter(pk=first(job).pk).update(status=state)
    before = list(Segment.objects.order_by("pk").values())

    assert not render_again(first(job).pk)
    assert not say_otherwise(first(job).pk, spoken_text="x", seed=1, is_hand_picked=True)
    assert not choose_take(first(job).pk, uuid.uuid4())

    assert list(Segment.objects.order_by("pk").values()) == before
    assert job.exports.count() == 1


def test_segment_of_a_cancelled_job_is_not_touched() -> None:
    job = spoken_job()
    RenderJob.objects.update(status=JobStatus.RUNNING)
    cancel_job(job.pk)

    assert not render_again(first(job).pk)


def test_other_take_is_kept_and_the_file_made_again_without_rendering() -> None:
    job = spoken_job()
    old = take_of(first(job))
    render_again(first(job).pk, seed=77)
    finish(job, make_take(audio_seconds=5.0))

    assert choose_take(first(job).pk, old.pk)

    segment = first(job)
    assert (segment.status, segment.take, segment.is_hand_picked) == ("done", old, True)
    assert segment.seed == segment.candidates[0]["seed"]
    assert len(segment.candidates) == segment.candidate_takes.count() == 2
    assert stored(job, "status", "audio_seconds") == (JobStatus.RUNNING, pytest.approx(3 * 2.3))
    assert job.exports.get().status == Export.Status.QUEUED
    assert_counts_fit(job)


def test_failed_rerendering_can_be_answered_by_the_take_before() -> None:
    job = spoken_job()
    old = take_of(first(job))
    render_again(first(job).pk)
    Segment.objects.filter(pk=first(job).pk).update(status="failed", error_code="x")
    RenderJob.objects.update(segments_failed=1, status=JobStatus.PARTIAL)

    assert choose_take(first(job).pk, old.pk)

    assert stored(first(job), "status", "error_code", "take") == ("done", "", old)
    assert_counts_fit(job)


def test_many_who_ask_at_once_have_it_rendered_once(database: str) -> None:
    job = spoken_job()
    pk = first(job).pk

    moved = at_once(lambda _: render_again(pk))

    assert Counter(moved)[True] == len(first(job).candidates) == 1
    assert_counts_fit(job)


def test_asking_and_choosing_at_once_leave_the_counters_right(database: str) -> None:
    job = spoken_job()
    pk, old = first(job).pk, take_of(first(job))
    render_again(pk)
    finish(job, make_take())

    at_once(lambda number: render_again(pk) if number % 2 else choose_take(pk, old.pk))

    assert_counts_fit(job)
    assert job.exports.count() == int(first(job).status == "done")
