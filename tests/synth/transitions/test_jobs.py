"""Steps of whole jobs: cancelling, retrying, failing what waits for a voice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from synth.models import Export, RenderJob, Segment
from synth.transitions.claims import claim_segments
from synth.transitions.files import fail_export
from synth.transitions.jobs import (
    cancel_job,
    close_cancelled_jobs,
    fail_jobs_of_failed_versions,
    fail_open_segments,
    retry_job,
)
from synth.transitions.segments import cancel_segment, fail_segment
from tests.factories import (
    CODEC_FINGERPRINT,
    claim_row,
    finish_export,
    finish_segment,
    make_ended_job,
    make_job,
    make_take,
    make_version,
)
from ttsweb import leases

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

JobStatus = RenderJob.Status


def statuses(job: RenderJob) -> list[str]:
    return [segment.status for segment in job.segments.all()]


def claim(limit: int = 100) -> list[object]:
    return list(claim_segments(worker="w1", limit=limit, codec_fingerprint=CODEC_FINGERPRINT))


def test_cancelled_queued_job_ends_at_once_and_renders_nothing() -> None:
    job = make_job(segments=3)

    assert cancel_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.segments_cancelled) == (JobStatus.CANCELLED, 3)
    assert statuses(job) == ["cancelled"] * 3
    assert claim() == []


def test_cancelled_running_job_ends_at_once_and_late_results_change_nothing() -> None:
    job = make_job(segments=3)
    first, second = claim_segments(worker="w1", limit=2, codec_fingerprint=CODEC_FINGERPRINT)

    cancel_job(job.pk)

    assert not cancel_segment(first)
    assert not finish_segment(second, make_take())
    job.refresh_from_db()
    assert job.status == JobStatus.CANCELLED
    assert (job.segments_done, job.segments_cancelled) == (0, 3)
    assert statuses(job) == ["cancelled"] * 3
    assert not Export.objects.exists()


def test_ended_job_is_not_cancelled() -> None:
    job = make_ended_job()

    assert not cancel_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.cancel_requested) == (JobStatus.SUCCEEDED, False)


def test_job_cancelled_while_its_file_is_made_ends_without_one() -> None:
    job = make_job()
    finish_segment(
        claim_segments(worker="w1", limit=1, codec_fingerprint=CODEC_FINGERPRINT)[0], make_take()
    )
    claim = claim_row(Export, Export.objects.get().pk, worker="cpu-1")
    assert claim is not None

    cancel_job(job.pk)

    job.refresh_from_db()
    assert job.status == JobStatus.CANCELLED
    assert not finish_export(claim, key="k", size_bytes=1, sha256="s", duration_seconds=1.0)
    assert not Export.objects.exists()


def test_segment_given_back_while_its_job_was_cancelled_is_closed_later() -> None:
    job = make_job()
    held = claim_segments(worker="w1", limit=1, codec_fingerprint=CODEC_FINGERPRINT)[0]
    RenderJob.objects.filter(pk=job.pk).update(cancel_requested=True)  # and no more, being killed
    leases.hand_back(Segment, held)

    assert close_cancelled_jobs() == 1

    job.refresh_from_db()
    assert job.status == JobStatus.CANCELLED
    assert close_cancelled_jobs() == 0


def make_partial_job() -> RenderJob:
    """Return a job with one done and one failed segment, and its file."""
    job = make_job(segments=2)
    first, second = claim_segments(worker="w1", limit=2, codec_fingerprint=CODEC_FINGERPRINT)
    fail_segment(first, code="prompt_too_long", message="Too long.")
    finish_segment(second, make_take())
    claim = claim_row(Export, Export.objects.get(job=job).pk, worker="cpu-1")
    assert claim is not None
    finish_export(claim, key="exports/x", size_bytes=5, sha256="s", duration_seconds=2.0)
    job.refresh_from_db()
    return job


def test_partial_job_names_what_is_missing() -> None:
    job = make_partial_job()

    assert (job.status, job.error_code) == (JobStatus.PARTIAL, "segments_failed")
    assert "1 of 2" in job.error_message
    assert "Too long." in job.error_message
    assert job.audio_seconds == 2.0


def test_retry_queues_what_failed_and_keeps_what_is_done(
    sent_tasks: Callable[[str], list[str]],
) -> None:
    job = make_partial_job()

    assert retry_job(job.pk)

    job.refresh_from_db()
    failed, done = job.segments.all()
    assert (job.status, job.error_code, job.finished_at) == (JobStatus.QUEUED, "", None)
    assert (job.segments_done, job.segments_failed) == (1, 0)
    assert (failed.status, failed.attempts, failed.error_code) == (Segment.Status.QUEUED, 0, "")
    assert done.status == Segment.Status.DONE
    assert not Export.objects.exists()
    assert (failed.sent_at is not None, done.sent_at) == (True, None)
    assert len(sent_tasks("render_segments")) == 1


def test_retried_cancelled_job_runs_again() -> None:
    job = make_job(segments=2)
    cancel_job(job.pk)

    assert retry_job(job.pk)

    job.refresh_from_db()
    assert (job.cancel_requested, job.segments_cancelled) == (False, 0)
    assert len(claim()) == 2


def test_retry_of_a_job_whose_file_alone_failed_makes_the_file_again() -> None:
    job = make_job()
    finish_segment(
        claim_segments(worker="w1", limit=1, codec_fingerprint=CODEC_FINGERPRINT)[0], make_take()
    )
    held = claim_row(Export, Export.objects.get().pk, worker="cpu-1")
    assert held is not None
    fail_export(held, code="encoder_failed", message="No such codec.")
    job.refresh_from_db()
    assert (job.status, job.error_code) == (JobStatus.FAILED, "encoder_failed")

    assert retry_job(job.pk)

    export = Export.objects.get()
    assert (export.status, export.attempts) == (Export.Status.QUEUED, 0)


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_job_that_is_open_or_complete_is_not_retried(status: str) -> None:
    job = make_job(status=status)

    assert not retry_job(job.pk)


def test_what_waits_for_a_failed_voice_fails_with_its_sentence() -> None:
    version = make_version(status="failed", error_code="clip_silent", error_message="Only silence.")
    job, other = make_job(segments=2, version=version), make_job()

    assert fail_jobs_of_failed_versions() == 1

    job.refresh_from_db()
    other.refresh_from_db()
    assert (job.status, job.error_code) == (JobStatus.FAILED, "clip_silent")
    assert job.error_message == "Only silence."
    assert other.status == JobStatus.QUEUED
    assert fail_jobs_of_failed_versions() == 0


def test_failing_the_unfinished_leaves_what_is_being_rendered() -> None:
    job = make_job(segments=2)
    held = claim_segments(worker="w1", limit=1, codec_fingerprint=CODEC_FINGERPRINT)[0]

    fail_open_segments(job.pk, ["queued"], code="voice_deleted", message="It was deleted.")

    assert statuses(job) == ["claimed", "failed"]
    assert finish_segment(held, make_take())
    job.refresh_from_db()
    assert (job.segments_done, job.segments_failed) == (1, 1)


def test_export_is_claimed_by_one_and_given_back() -> None:
    job = make_job()
    export = Export.objects.create(job=job, format="wav")

    held = claim_row(Export, export.pk, worker="cpu-1")
    assert held is not None
    assert claim_row(Export, export.pk, worker="cpu-2") is None
    assert leases.hand_back(Export, held)
    assert claim_row(Export, export.pk, worker="cpu-2") is not None
    assert not fail_export(held, code="x", message="x")
