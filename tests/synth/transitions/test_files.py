"""Steps of a job's file: one worker makes it, and its end is the job's end."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone
from pytest_django import Settings

from synth.models import Export, RenderJob
from synth.transitions.files import claimable_exports, fail_export
from tests.factories import claim_row, finish_export, make_job
from ttsweb import leases
from ttsweb.leases import Claim

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Status = Export.Status


def make_queued_export() -> Export:
    """Return an export of a running job whose segment is done."""
    job = make_job(status=RenderJob.Status.RUNNING, segments_done=1)
    job.segments.update(status="done")
    return Export.objects.create(job=job, format="wav")


def job_of(export: Export) -> RenderJob:
    assert export.job is not None
    return export.job


def claimed(export: Export, worker: str = "cpu-1") -> Claim:
    claim = claim_row(Export, export.pk, worker=worker)
    assert claim is not None
    return claim


def test_finished_file_ends_its_job() -> None:
    export = make_queued_export()

    finish_export(claimed(export), key="k", size_bytes=9, sha256="s", duration_seconds=1.5)

    export.refresh_from_db()
    assert (export.status, export.key, export.size_bytes) == (Status.DONE, "k", 9)
    assert job_of(export).status == RenderJob.Status.SUCCEEDED
    assert job_of(export).audio_seconds == 1.5
    assert job_of(export).finished_at is not None


def test_only_one_worker_makes_a_file() -> None:
    export = make_queued_export()

    assert claim_row(Export, export.pk, worker="cpu-1") is not None
    assert claim_row(Export, export.pk, worker="cpu-2") is None


def test_late_worker_changes_nothing() -> None:
    export = make_queued_export()
    stale = claimed(export)
    leases.hand_back(Export, stale)
    claimed(export, worker="cpu-2")

    assert not finish_export(stale, key="k", size_bytes=9, sha256="s", duration_seconds=1.5)
    assert not fail_export(stale, code="x", message="x")
    assert not leases.hand_back(Export, stale)

    export.refresh_from_db()
    assert (export.status, export.claimed_by) == (Status.CLAIMED, "cpu-2")
    assert job_of(export).status == RenderJob.Status.RUNNING


def test_file_that_cannot_be_made_fails_its_job() -> None:
    export = make_queued_export()

    fail_export(claimed(export), code="encoder_failed", message="No such codec.")

    export.refresh_from_db()
    assert export.status == Status.FAILED
    assert (job_of(export).status, job_of(export).error_code) == ("failed", "encoder_failed")


def test_file_given_back_for_later_is_not_claimed_before() -> None:
    export = make_queued_export()
    leases.hand_back(Export, claimed(export), delay_seconds=60)

    assert claim_row(Export, export.pk, worker="cpu-2") is None
    assert not claimable_exports().exists()


def test_expired_claim_is_free_again_until_it_was_lost_too_often(settings: Settings) -> None:
    export = make_queued_export()
    for _ in range(leases.LOSSES_BESIDE_OTHERS + settings.MAX_ATTEMPTS):
        claimed(export)
        Export.objects.update(lease_until=timezone.now() - dt.timedelta(seconds=1))
        assert leases.settle_lost(Export, leases.expired(timezone.now()), fail=fail_export) == 1

    export.refresh_from_db()
    assert (export.status, export.error_code) == (Status.FAILED, "worker_lost")
    assert job_of(export).status == RenderJob.Status.FAILED


def test_urgent_files_come_first() -> None:
    bulk, urgent = make_queued_export(), make_queued_export()
    RenderJob.objects.filter(pk=job_of(bulk).pk).update(priority=10)

    assert list(claimable_exports()) == [urgent, bulk]
