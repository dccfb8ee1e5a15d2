"""Ended jobs are kept as long as they ask for, or else as long as the service's default says."""

from __future__ import annotations

import datetime as dt

import pytest
from pytest_django import Settings

from synth.models import RenderJob, Segment
from synth.transitions.jobs import JobStatus, end_job, retry_job
from tests.factories import make_batch, make_job

pytestmark = pytest.mark.django_db(transaction=True)


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

    assert end_job(job.pk, status)

    job.refresh_from_db()
    assert job.finished_at is not None
    expected = None if kept is None else job.finished_at + dt.timedelta(seconds=kept)
    assert job.expires_at == expected


def test_unfinished_job_does_not_expire(settings: Settings) -> None:
    settings.RETENTION_DAYS = 1.0

    assert make_job().expires_at is None


def test_item_goes_with_its_batch(settings: Settings) -> None:
    settings.RETENTION_DAYS = 1.0
    batch = make_batch(items=0)
    item = make_job(batch=batch, item_index=0, retention_seconds=60)

    end_job(item.pk, JobStatus.SUCCEEDED)

    item.refresh_from_db()
    assert item.expires_at is None


def test_retry_takes_the_end_of_its_time_away() -> None:
    job = make_job(retention_seconds=60)
    Segment.objects.update(status="failed")
    end_job(job.pk, JobStatus.FAILED)

    assert retry_job(job.pk)

    assert RenderJob.objects.get().expires_at is None
