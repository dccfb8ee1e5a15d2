"""Jobs whose time is over go with all their bytes; nothing else goes, and no download breaks."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from rest_framework.test import APIClient

from synth.jobs.removal import lock_jobs
from synth.models import Batch, Export, RenderJob, SweepTurn, Take
from tests.factories import make_batch, make_ended_job, make_export, make_user
from ttsweb import leases
from workers import sweep
from workers import sweep as retention

pytestmark = pytest.mark.django_db(transaction=True)
SECOND = dt.timedelta(seconds=1)


def expired(**fields: Any) -> RenderJob:
    return make_ended_job(expires_at=leases.database_now() - SECOND, **fields)


def test_expired_job_goes_with_its_file_and_the_takes_that_no_other_job_uses() -> None:
    job, sharing, other = expired(), expired(), make_ended_job()
    other.segments.update(take=sharing.segments.get().take)
    take, path = job.segments.get().take, Path(default_storage.path(job.exports.get().key))

    assert retention.delete_expired_jobs() == 2

    assert RenderJob.objects.get() == other
    assert Export.objects.get().job == other
    assert Take.objects.filter(segments__job=other).exists()
    assert take is not None and not Take.objects.filter(pk=take.pk).exists()
    assert not path.exists()


@pytest.mark.parametrize(
    ("status", "moment"),
    [("succeeded", None), ("succeeded", dt.timedelta(hours=1)), ("running", -SECOND)],
)
def test_job_whose_time_is_not_over_or_that_was_opened_again_stays(
    status: str, moment: dt.timedelta | None
) -> None:
    make_ended_job(status=status, expires_at=moment and leases.database_now() + moment)
    assert retention.delete_expired_jobs() == 0
    assert RenderJob.objects.exists()


def test_sweep_deletes_and_a_second_round_finds_nothing() -> None:
    expired()
    assert sweep.sweep_if_due()
    assert not RenderJob.objects.exists()
    SweepTurn.objects.update(next_at=leases.database_now())
    assert sweep.sweep_if_due()


def test_round_is_bounded_in_number_and_in_time() -> None:
    for _ in range(4):
        expired()
    assert retention.delete_expired_jobs(most=2) == 2
    assert retention.delete_expired_jobs(within_seconds=0.0) == 1
    assert retention.delete_expired_jobs() == 1


def test_longest_overdue_goes_first() -> None:
    now = leases.database_now()
    jobs = [make_ended_job(expires_at=now - n * SECOND) for n in (1, 3, 2)]
    retention.delete_expired_jobs(most=1)
    assert set(RenderJob.objects.values_list("pk", flat=True)) == {jobs[0].pk, jobs[2].pk}


@pytest.mark.parametrize("change", ["retried", "kept", "deleted"])
def test_job_that_changes_in_the_moment_of_its_deletion_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    expired()

    def change_then_lock(rows: Any) -> Any:
        job = RenderJob.objects.all()
        if change == "retried":
            job.update(status="queued", expires_at=None)
        elif change == "kept":
            job.update(expires_at=None)
        else:
            job.delete()
        return lock_jobs(rows)

    monkeypatch.setattr(retention, "lock_jobs", change_then_lock)

    assert retention.delete_expired_jobs() == 0
    assert RenderJob.objects.exists() == (change != "deleted")


def test_items_go_with_their_batch_and_not_before() -> None:
    past = leases.database_now() - SECOND
    batch = make_batch(status="failed", items=0)
    items = [make_ended_job(batch=batch, item_index=index, expires_at=past) for index in range(3)]
    key = default_storage.save("exports/batch.zip", default_storage.open(_key(items[0])))
    make_export(batch=batch, key=key)
    paths = [Path(default_storage.path(one)) for one in [key, *map(_key, items)]]

    assert retention.delete_expired_jobs() == 0
    Batch.objects.filter(pk=batch.pk).update(expires_at=past)
    assert retention.delete_expired_jobs() == 1

    assert not Batch.objects.exists() and not RenderJob.objects.exists()
    assert not any(path.exists() for path in paths)


def _key(job: RenderJob) -> str:
    return str(job.exports.get().key)


def test_end_of_a_jobs_time_is_shown_and_a_download_goes_on_to_its_end() -> None:
    owner = make_user()
    job = expired(owner=owner)
    client = APIClient()
    client.force_authenticate(owner)
    shown = client.get(f"/api/v1/jobs/{job.pk}").json()["expires_at"]
    answer: Any = client.get(f"/api/v1/jobs/{job.pk}/audio")

    retention.delete_expired_jobs()

    assert dt.datetime.fromisoformat(shown) == job.expires_at
    assert b"".join(answer.streaming_content) == b"0123456789"
    assert client.get(f"/api/v1/jobs/{job.pk}/audio").status_code == 404
