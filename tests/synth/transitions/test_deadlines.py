"""Past its deadline nothing more of a job is rendered; what is rendered becomes its file."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from synth.jobs.retry import retry
from synth.models import Export, RenderJob, Segment
from synth.transitions.claims import claim_segments
from synth.transitions.jobs import stop_overdue_jobs
from synth.transitions.segments import fail_segment
from tests.factories import (
    CODEC_FINGERPRINT,
    claim_row,
    finish_export,
    finish_segment,
    make_job,
    make_take,
    make_version,
)
from ttsweb import leases

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = dt.timedelta(hours=1)


def claim(limit: int = 10) -> list[Any]:
    return claim_segments(worker="gpu", limit=limit, codec_fingerprint=CODEC_FINGERPRINT)


def pass_deadline() -> None:
    RenderJob.objects.update(deadline_at=leases.database_now() - dt.timedelta(seconds=1))


def statuses() -> list[str]:
    return list(Segment.objects.order_by("pk").values_list("status", flat=True))


def test_job_of_which_nothing_was_rendered_fails_with_the_deadlines_sentence() -> None:
    job = make_job(segments=3)
    claim(1)
    pass_deadline()

    assert stop_overdue_jobs() == 1

    job.refresh_from_db()
    assert (job.status, job.error_code) == ("failed", "deadline_passed")
    assert "deadline" in job.error_message and "UTC" in job.error_message
    assert statuses() == ["failed"] * 3
    assert job.segments_failed == 3


def test_what_is_rendered_becomes_the_file_of_a_partial_job() -> None:
    job = make_job(segments=4)
    first, second, *_ = claim(3)
    finish_segment(first, make_take())
    fail_segment(second, code="bad", message="It is bad.")
    pass_deadline()

    stop_overdue_jobs()
    export = claim_row(Export, Export.objects.get().pk, worker="cpu")
    assert export is not None
    finish_export(export, key="k", size_bytes=1, sha256="e", duration_seconds=1.0)

    job.refresh_from_db()
    assert statuses() == ["done", "failed", "failed", "failed"]
    assert (job.status, job.error_code) == ("partial", "deadline_passed")
    assert "3 of 4 segments" in job.error_message


def test_worker_that_renders_on_changes_nothing() -> None:
    job = make_job(segments=1)
    (late,) = claim()
    pass_deadline()
    stop_overdue_jobs()

    assert not finish_segment(late, make_take())
    assert not fail_segment(late, code="bad", message="It is bad.")
    assert not leases.hand_back(Segment, late)
    job.refresh_from_db()
    assert (job.status, job.segments_failed, job.segments_done) == ("failed", 1, 0)


def test_segment_past_its_jobs_deadline_is_not_claimed() -> None:
    late, timely, free = make_job(), make_job(), make_job()
    RenderJob.objects.filter(pk=late.pk).update(deadline_at=leases.database_now())
    RenderJob.objects.filter(pk=timely.pk).update(deadline_at=leases.database_now() + HOUR)

    assert {one.job_id for one in claim()} == {timely.pk, free.pk}


def test_job_that_waits_for_its_voice_is_stopped_too() -> None:
    job = make_job(version=make_version(status="pending"))
    pass_deadline()

    stop_overdue_jobs()

    job.refresh_from_db()
    assert job.status == "failed"


@pytest.mark.parametrize("fields", [{}, {"deadline_at": HOUR}, {"cancel_requested": True}])
def test_other_jobs_are_left_alone(fields: dict[str, Any]) -> None:
    if "deadline_at" in fields:
        fields = {"deadline_at": leases.database_now() + HOUR}
    make_job(segments=2, **fields)

    assert stop_overdue_jobs() == 0
    assert statuses() == ["queued", "queued"]


def test_job_whose_segments_are_all_rendered_gets_its_file_after_all() -> None:
    job = make_job(segments=1)
    (one,) = claim()
    finish_segment(one, make_take())
    pass_deadline()

    assert stop_overdue_jobs() == 0
    export = claim_row(Export, Export.objects.get().pk, worker="cpu")
    assert export is not None
    finish_export(export, key="k", size_bytes=1, sha256="e", duration_seconds=1.0)
    job.refresh_from_db()
    assert job.status == "succeeded"


def test_stopping_twice_counts_once() -> None:
    job = make_job(segments=2)
    pass_deadline()

    assert [stop_overdue_jobs() for _ in range(2)] == [1, 0]
    job.refresh_from_db()
    assert job.segments_failed == 2


def test_retry_goes_on_without_the_deadline() -> None:
    job = make_job(segments=2)
    first, _ = claim()
    finish_segment(first, make_take())
    pass_deadline()
    stop_overdue_jobs()
    RenderJob.objects.update(status="partial")
    job.refresh_from_db()

    retry(job)

    job.refresh_from_db()
    assert (job.status, job.deadline_at, job.error_code) == ("queued", None, "")
    assert statuses() == ["done", "queued"]
    assert len(claim()) == 1
