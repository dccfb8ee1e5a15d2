"""Steps of whole jobs and of their files: cancelled, retried, overdue, ended, kept for a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from synth.jobs.retry import retry
from synth.models import Export, RenderJob, Segment
from synth.transitions.files import claimable_exports, fail_export
from synth.transitions.jobs import (
    JobStatus,
    cancel_job,
    close_cancelled_jobs,
    end_job,
    fail_jobs_of_failed_versions,
    fail_open_segments,
    retry_job,
    stop_overdue_jobs,
)
from synth.transitions.segments import cancel_segment, fail_segment
from tests.factories import (
    claim,
    claim_row,
    finish_export,
    finish_segment,
    hold_row,
    make_batch,
    make_ended_job,
    make_job,
    make_take,
    make_version,
    stored,
)
from ttsweb import leases
from ttsweb.leases import Claim

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Status = Export.Status
HOUR = dt.timedelta(hours=1)


def statuses(job: RenderJob) -> list[str]:
    return list(job.segments.order_by("pk").values_list("status", flat=True))


def hold_file() -> Claim:
    """Claim the one file that waits."""
    return hold_row(Export, Export.objects.get().pk, worker="cpu-1")


@pytest.mark.parametrize("begun", [0, 2])
def test_cancelled_job_ends_at_once_and_late_results_change_nothing(begun: int) -> None:
    job = make_job(segments=3)
    late = claim(begun) if begun else []

    assert cancel_job(job.pk)

    assert not any(cancel_segment(one) or finish_segment(one, make_take()) for one in late)
    found = stored(job, "status", "segments_done", "segments_cancelled")
    assert found == (JobStatus.CANCELLED, 0, 3)
    assert statuses(job) == ["cancelled"] * 3
    assert claim() == []
    assert not Export.objects.exists()


def test_ended_job_is_not_cancelled() -> None:
    job = make_ended_job()

    assert not cancel_job(job.pk)

    assert stored(job, "status", "cancel_requested") == (JobStatus.SUCCEEDED, False)


def test_job_cancelled_while_its_file_is_made_ends_without_one() -> None:
    job = make_job()
    finish_segment(claim()[0], make_take())
    held = hold_file()

    cancel_job(job.pk)

    assert stored(job, "status") == (JobStatus.CANCELLED,)
    assert not finish_export(held)
    assert not Export.objects.exists()


def test_segment_given_back_while_its_job_was_cancelled_is_closed_later() -> None:
    job = make_job()
    held = claim()[0]
    RenderJob.objects.filter(pk=job.pk).update(cancel_requested=True)  # and no more, being killed
    leases.hand_back(Segment, held)

    assert [close_cancelled_jobs(), close_cancelled_jobs()] == [1, 0]

    assert stored(job, "status") == (JobStatus.CANCELLED,)


@pytest.fixture
def partial_job() -> RenderJob:
    """A job with one failed and one done segment, and its file."""
    job = make_job(segments=2)
    first, second = claim()
    fail_segment(first, code="prompt_too_long", message="Too long.")
    finish_segment(second, make_take())
    finish_export(hold_file(), duration_seconds=2.0)
    job.refresh_from_db()
    return job


def test_partial_job_names_what_is_missing(partial_job: RenderJob) -> None:
    assert (partial_job.status, partial_job.error_code) == (JobStatus.PARTIAL, "segments_failed")
    assert "1 of 2" in partial_job.error_message and "Too long." in partial_job.error_message
    assert partial_job.audio_seconds == 2.0


def test_retry_queues_what_failed_and_keeps_what_is_done(
    partial_job: RenderJob, sent_tasks: Callable[[str], list[str]]
) -> None:
    assert retry_job(partial_job.pk)

    found = stored(
        partial_job, "status", "error_code", "finished_at", "segments_done", "segments_failed"
    )
    assert found == (JobStatus.QUEUED, "", None, 1, 0)
    failed, done = partial_job.segments.all()
    assert (failed.status, failed.attempts, failed.error_code) == ("queued", 0, "")
    assert (done.status, failed.sent_at is not None, done.sent_at) == ("done", True, None)
    assert not Export.objects.exists()
    assert len(sent_tasks("render_segments")) == 1


def test_retried_cancelled_job_runs_again() -> None:
    job = make_job(segments=2)
    cancel_job(job.pk)

    assert retry_job(job.pk)

    assert stored(job, "cancel_requested", "segments_cancelled") == (False, 0)
    assert len(claim()) == 2


def test_retry_of_a_job_whose_file_alone_failed_makes_the_file_again() -> None:
    job = make_job()
    finish_segment(claim()[0], make_take())
    fail_export(hold_file(), code="encoder_failed", message="No such codec.")
    assert Export.objects.get().status == Status.FAILED
    assert stored(job, "status", "error_code") == (JobStatus.FAILED, "encoder_failed")

    assert retry_job(job.pk)

    export = Export.objects.get()
    assert (export.status, export.attempts) == (Status.QUEUED, 0)


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_job_that_is_open_or_complete_is_not_retried(status: str) -> None:
    assert not retry_job(make_job(status=status).pk)


def test_what_waits_for_a_failed_voice_fails_with_its_sentence() -> None:
    version = make_version(status="failed", error_code="clip_silent", error_message="Only silence.")
    job, other = make_job(segments=2, version=version), make_job()

    assert [fail_jobs_of_failed_versions(), fail_jobs_of_failed_versions()] == [1, 0]

    found = stored(job, "status", "error_code", "error_message")
    assert found == (JobStatus.FAILED, "clip_silent", "Only silence.")
    assert stored(other, "status") == (JobStatus.QUEUED,)


def test_failing_the_unfinished_leaves_what_is_being_rendered() -> None:
    job = make_job(segments=2)
    held = claim(1)[0]

    fail_open_segments(job.pk, ["queued"], code="voice_deleted", message="It was deleted.")

    assert statuses(job) == ["claimed", "failed"]
    assert finish_segment(held, make_take())
    assert stored(job, "segments_done", "segments_failed") == (1, 1)


def make_queued_export() -> Export:
    """Return an export of a running job whose segment is done."""
    job = make_job(status=JobStatus.RUNNING, segments_done=1)
    job.segments.update(status="done")
    return Export.objects.create(job=job, format="wav")


def job_of(export: Export) -> RenderJob:
    assert export.job is not None
    return export.job


def test_finished_file_ends_its_job() -> None:
    export = make_queued_export()

    finish_export(hold_file(), size_bytes=9, duration_seconds=1.5)

    assert stored(export, "status", "key", "size_bytes") == (Status.DONE, "k", 9)
    found = stored(job_of(export), "status", "audio_seconds")
    assert found == (JobStatus.SUCCEEDED, 1.5)
    assert job_of(export).finished_at is not None


def test_one_worker_makes_a_file_and_a_late_one_changes_nothing() -> None:
    export = make_queued_export()
    stale = hold_file()
    assert claim_row(Export, export.pk, worker="cpu-2") is None
    assert leases.hand_back(Export, stale)
    hold_row(Export, export.pk, worker="cpu-2")

    assert not finish_export(stale)
    assert not fail_export(stale, code="x", message="x")
    assert not leases.hand_back(Export, stale)

    assert stored(export, "status", "claimed_by") == (Status.CLAIMED, "cpu-2")
    assert stored(job_of(export), "status") == (JobStatus.RUNNING,)


def test_file_given_back_for_later_is_not_claimed_before() -> None:
    export = make_queued_export()
    leases.hand_back(Export, hold_file(), delay_seconds=60)

    assert claim_row(Export, export.pk, worker="cpu-2") is None
    assert not claimable_exports().exists()


def test_expired_claim_is_free_again_until_it_was_lost_too_often(settings: Settings) -> None:
    export = make_queued_export()
    for _ in range(leases.LOSSES_BESIDE_OTHERS + settings.MAX_ATTEMPTS):
        hold_file()
        Export.objects.update(lease_until=timezone.now() - dt.timedelta(seconds=1))
        assert leases.settle_lost(Export, leases.expired(timezone.now()), fail=fail_export) == 1

    assert stored(export, "status", "error_code") == (Status.FAILED, "worker_lost")
    assert stored(job_of(export), "status") == (JobStatus.FAILED,)


def test_urgent_files_come_first() -> None:
    bulk, urgent = make_queued_export(), make_queued_export()
    RenderJob.objects.filter(pk=job_of(bulk).pk).update(priority=10)

    assert list(claimable_exports()) == [urgent, bulk]


def pass_deadline() -> None:
    RenderJob.objects.update(deadline_at=leases.database_now() - dt.timedelta(seconds=1))


def test_job_of_which_nothing_was_rendered_fails_with_the_deadlines_sentence() -> None:
    job = make_job(segments=3)
    unvoiced = make_job(version=make_version(status="pending"))
    (late,) = claim(1)
    pass_deadline()

    assert [stop_overdue_jobs(), stop_overdue_jobs()] == [2, 0]

    found = stored(job, "status", "error_code", "segments_failed")
    assert found == ("failed", "deadline_passed", 3)
    assert "deadline" in job.error_message and "UTC" in job.error_message
    assert statuses(job) == ["failed"] * 3
    assert stored(unvoiced, "status") == ("failed",)
    assert not finish_segment(late, make_take())
    assert not fail_segment(late, code="bad", message="It is bad.")
    assert not leases.hand_back(Segment, late)
    found = stored(job, "status", "segments_failed", "segments_done")
    assert found == ("failed", 3, 0), "a worker that rendered on changed it"


def test_what_is_rendered_becomes_the_file_of_a_partial_job() -> None:
    job = make_job(segments=4)
    first, second, *_ = claim(3)
    finish_segment(first, make_take())
    fail_segment(second, code="bad", message="It is bad.")
    pass_deadline()

    stop_overdue_jobs()
    finish_export(hold_file())

    assert statuses(job) == ["done", "failed", "failed", "failed"]
    assert stored(job, "status", "error_code") == ("partial", "deadline_passed")
    assert "3 of 4 segments" in job.error_message


@pytest.mark.parametrize("fields", [{}, {"deadline_at": HOUR}, {"cancel_requested": True}])
def test_other_jobs_are_not_overdue(fields: dict[str, Any]) -> None:
    if "deadline_at" in fields:
        fields = {"deadline_at": leases.database_now() + HOUR}
    job = make_job(segments=2, **fields)

    assert stop_overdue_jobs() == 0
    assert statuses(job) == ["queued", "queued"]


def test_job_whose_segments_are_all_rendered_gets_its_file_after_all() -> None:
    job = make_job(segments=1)
    finish_segment(claim()[0], make_take())
    pass_deadline()

    assert stop_overdue_jobs() == 0
    finish_export(hold_file())
    assert stored(job, "status") == ("succeeded",)


def test_retry_goes_on_without_the_deadline() -> None:
    job = make_job(segments=2)
    finish_segment(claim()[0], make_take())
    pass_deadline()
    stop_overdue_jobs()
    RenderJob.objects.update(status="partial")
    job.refresh_from_db()

    retry(job)

    assert stored(job, "status", "deadline_at", "error_code") == ("queued", None, "")
    assert statuses(job) == ["done", "queued"]
    assert len(claim()) == 1


@pytest.mark.parametrize(
    ("default_days", "asked", "kept"),
    [
        (0.0, None, None),
        (2.0, None, 172_800),
        (0.001, None, 86),
        (0.0, 60, 60),
        (2.0, 60, 60),
        (2.0, 0, None),
    ],
)
@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED])
def test_expiry_counts_from_the_end_by_the_jobs_wish_or_the_default(
    settings: Settings, default_days: float, asked: int | None, kept: int | None, status: JobStatus
) -> None:
    settings.RETENTION_DAYS = default_days
    job = make_job(retention_seconds=asked)
    assert job.expires_at is None

    assert end_job(job.pk, status)

    finished_at, expires_at = stored(job, "finished_at", "expires_at")
    assert finished_at is not None
    expected = None if kept is None else finished_at + dt.timedelta(seconds=kept)
    assert expires_at == expected


def test_item_goes_with_its_batch(settings: Settings) -> None:
    settings.RETENTION_DAYS = 1.0
    item = make_job(batch=make_batch(items=0), item_index=0, retention_seconds=60)

    end_job(item.pk, JobStatus.SUCCEEDED)

    assert stored(item, "expires_at") == (None,)


def test_retry_takes_the_end_of_its_time_away() -> None:
    job = make_job(retention_seconds=60)
    Segment.objects.update(status="failed")
    end_job(job.pk, JobStatus.FAILED)

    assert retry_job(job.pk)

    assert stored(job, "expires_at") == (None,)
