"""Change how long the pauses of a book are: its file is made again, and nothing is rendered."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from django.db import transaction
from django.db.models import Sum

from synth.jobs.removal import drop_exports, lock_jobs
from synth.models import BookSource, Export, RenderJob, Segment
from synth.signals import job_reopened
from synth.transitions.jobs import JobStatus, complete_job
from ttsweb import leases

ROWS_AT_ONCE = 500
_WITH_FILE = (JobStatus.SUCCEEDED, JobStatus.PARTIAL)


def change_pauses(
    job_id: uuid.UUID,
    pauses: Mapping[str, int],
    lengths: Mapping[int, Sequence[int]],
    *,
    before: Mapping[str, int],
) -> bool:
    """Give segments of a book's job other pauses; a file that is there, or is made, is made anew.

    Args:
        pauses: those of the job from now on, in ms by name.
        lengths: segments by the length in ms that the pause after them gets.
        before: the job's pauses that `lengths` were made from.

    Returns:
        False when the job is gone, or somebody else changed its pauses meanwhile.
    """
    with transaction.atomic():
        lock_jobs(RenderJob.objects.filter(pk=job_id))
        job = RenderJob.objects.defer("text").filter(pk=job_id).first()
        if job is None or job.pauses != dict(before):
            return False
        for length, segment_ids in lengths.items():
            for start in range(0, len(segment_ids), ROWS_AT_ONCE):
                some = segment_ids[start : start + ROWS_AT_ONCE]
                rows = Segment.objects.filter(job=job_id, pk__in=some)
                rows.update(pause_after_ms=length)
        _remake(job, pauses)
    return True


def _remake(job: RenderJob, pauses: Mapping[str, int]) -> None:
    """Let the file go, and have it made again where all that it needs is there."""
    now = leases.database_now()
    BookSource.objects.filter(job=job.pk).update(updated_at=now)
    spoken = Segment.objects.filter(job=job.pk, status=Segment.Status.DONE)
    sums = spoken.aggregate(pauses=Sum("pause_after_ms"), seconds=Sum("take__audio_seconds"))
    RenderJob.objects.filter(pk=job.pk).update(
        pauses=dict(pauses),
        audio_seconds=(sums["pauses"] or 0) / 1000 + (sums["seconds"] or 0.0),
        updated_at=now,
    )
    if job.status in (JobStatus.CANCELLED, JobStatus.FAILED) or job.cancel_requested:
        return  # it has no file; a retry makes one
    drop_exports(Export.objects.filter(job=job.pk))
    if job.status in _WITH_FILE:
        RenderJob.objects.filter(pk=job.pk, status__in=_WITH_FILE).update(
            status=JobStatus.RUNNING,
            started_at=now,
            finished_at=None,
            expires_at=None,
            deadline_at=None,  # it may have passed
            error_code="",
            error_message="",
        )
        job_reopened.send(RenderJob, job_id=job.pk)
    complete_job(job.pk)
