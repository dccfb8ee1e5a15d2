"""Move jobs: count their closed segments, end, cancel and retry them."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from django.db.models import F

from synth.models import Export, JobVoice, RenderJob, Segment
from synth.removal import drop_exports, drop_inline_references, lock_jobs
from synth.transitions.comparing import retake_outliers
from synth.transitions.enqueue import enqueue_export, enqueue_segments
from synth.transitions.expiry import expiry_of_ended
from synth.transitions.keeping import keep_candidates
from synth.webhooks.events import tell_of_job
from ttsweb import leases
from voices.models import VoiceVersion

JobStatus = RenderJob.Status
UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING)
DEADLINE_PASSED = "deadline_passed"


def count_closed(job_id: uuid.UUID, **amounts: float) -> None:
    """Add to a job's counters, which also locks its row; complete the job when all is closed."""
    RenderJob.objects.filter(pk=job_id).update(
        updated_at=leases.database_now(), **{name: F(name) + n for name, n in amounts.items()}
    )
    complete_job(job_id)


def complete_job(job_id: uuid.UUID) -> None:
    """Once every segment is closed: end the job, or order its file and end it when that is made."""
    job = RenderJob.objects.defer("text").get(pk=job_id)  # of a book it is long
    closed = job.segments_done + job.segments_failed + job.segments_cancelled
    if job.status not in UNFINISHED or closed < job.segments_total:
        return
    if job.cancel_requested:
        end_job(job_id, JobStatus.CANCELLED)
    elif job.segments_done == 0:
        first = telling_failure(job)
        end_job(
            job_id,
            JobStatus.FAILED,
            error_code=first.error_code if first else "no_audio",
            error_message=first.error_message if first else "No segment of this job has audio.",
        )
    elif not retake_outliers(job):
        export, made = Export.objects.get_or_create(job=job, format=job.format)
        if made:
            enqueue_export(export.pk)


def telling_failure(job: RenderJob) -> Segment | None:
    """Return the failed segment that says why a job failed: the first, but a deadline before all.

    A deadline stops whatever is left, so that its sentence explains the most.
    """
    failed = job.segments.filter(status=Segment.Status.FAILED).order_by("pk")
    return failed.filter(error_code=DEADLINE_PASSED).first() or failed.first()


def end_job(job_id: uuid.UUID, status: JobStatus, **changes: Any) -> bool:
    """Move an unfinished job to a final status; inline references go once this has committed."""
    now = leases.database_now()
    ended = RenderJob.objects.filter(pk=job_id, status__in=UNFINISHED).update(
        status=status,
        finished_at=now,
        updated_at=now,
        expires_at=expiry_of_ended(job_id, now),
        **changes,
    )
    if ended:
        drop_inline_references(job_id)
        settle_batch_of(job_id)
        tell_of_job(job_id)
    return bool(ended)


def settle_batch_of(job_id: uuid.UUID) -> None:
    """Have the batch counted that a job is an item of, once this transaction has committed."""
    from synth.transitions.batches import settle_batch_on_commit  # it imports this module
    from synth.transitions.book_batches import advance_batch_of_job  # and so does it

    row = RenderJob.objects.values_list("batch_id", "kind").get(pk=job_id)
    if row[0] is not None:
        settle_batch_on_commit(row[0])
    elif row[1] == RenderJob.Kind.BOOK:
        advance_batch_of_job(job_id)


def fail_unfinished_segments(job_id: uuid.UUID, *, code: str, message: str) -> None:
    """Fail every queued segment of a job at once: its voice was deleted or could not be encoded.

    One that waits for another take than a suspicious one keeps the best that there is.
    """
    with transaction.atomic():
        lock_jobs(RenderJob.objects.filter(pk=job_id))
        kept = keep_candidates(job_id, [Segment.Status.QUEUED])
        failed = Segment.objects.filter(job_id=job_id, status=Segment.Status.QUEUED).update(
            status=Segment.Status.FAILED,
            error_code=code,
            error_message=message,
            finished_at=leases.database_now(),
        )
        if failed or kept["segments_done"]:
            count_closed(job_id, segments_failed=failed, **kept)


def fail_jobs_of_failed_versions() -> int:
    """Fail what waits for a version that cannot be encoded, with the version's sentence."""
    waiting = JobVoice.objects.filter(
        job__status__in=UNFINISHED, version__status=VoiceVersion.Status.FAILED
    ).select_related("version")
    found = list(waiting)
    for row in found:
        fail_unfinished_segments(
            row.job_id, code=row.version.error_code, message=row.version.error_message
        )
    return len(found)


def cancel_job(job_id: uuid.UUID) -> bool:
    """Cancel an unfinished job: what is queued ends now, what is rendered within a frame or two.

    Returns False when the job had already ended.
    """
    with transaction.atomic():
        now = leases.database_now()
        asked = RenderJob.objects.filter(pk=job_id, status__in=UNFINISHED).update(
            cancel_requested=True, updated_at=now
        )
        if not asked:
            return False
        Export.objects.filter(job_id=job_id).delete()
        cancelled = Segment.objects.filter(job_id=job_id, status=Segment.Status.QUEUED).update(
            status=Segment.Status.CANCELLED, finished_at=now
        )
        count_closed(job_id, segments_cancelled=cancelled)
    return True


def close_cancelled_jobs() -> int:
    """Cancel what a worker gave back in the moment its job was cancelled; return how many."""
    count = 0
    left = RenderJob.objects.filter(
        cancel_requested=True, status__in=UNFINISHED, segments__status=Segment.Status.QUEUED
    )
    for job_id in set(left.values_list("pk", flat=True)):
        with transaction.atomic():
            lock_jobs(RenderJob.objects.filter(pk=job_id))
            cancelled = Segment.objects.filter(
                job_id=job_id, status=Segment.Status.QUEUED, job__cancel_requested=True
            ).update(status=Segment.Status.CANCELLED, finished_at=leases.database_now())
            if cancelled:
                count_closed(job_id, segments_cancelled=cancelled)
        count += cancelled
    return count


def retry_job(job_id: uuid.UUID) -> bool:
    """Queue again what failed or was cancelled in an ended job; finished segments are kept.

    Returns False when the job is unfinished or has nothing to do again.
    """
    again = (JobStatus.FAILED, JobStatus.PARTIAL, JobStatus.CANCELLED)
    with transaction.atomic():
        moved = RenderJob.objects.filter(pk=job_id, status__in=again).update(
            status=JobStatus.QUEUED,
            cancel_requested=False,
            error_code="",
            error_message="",
            finished_at=None,
            expires_at=None,
            deadline_at=None,  # it may have passed; who tries again wants it done
            paused_at=None,
            updated_at=leases.database_now(),
        )
        if not moved:
            return False
        drop_exports(Export.objects.filter(job_id=job_id))
        rows = Segment.objects.filter(
            job_id=job_id, status__in=(Segment.Status.FAILED, Segment.Status.CANCELLED)
        )
        ids = list(rows.values_list("pk", flat=True))
        rows.update(
            status=Segment.Status.QUEUED,
            error_code="",
            error_message="",
            finished_at=None,
            attempts=0,
            not_before=leases.database_now(),
        )
        RenderJob.objects.filter(pk=job_id).update(
            segments_failed=0, segments_cancelled=0, takes_compared=False
        )
        reopen_batch_of(job_id)
        enqueue_segments(ids)
        complete_job(job_id)  # where only the file was missing
    return True


def reopen_batch_of(job_id: uuid.UUID) -> None:
    """Open the batch again that a reopened job is an item of; its zip is made anew."""
    from synth.transitions.batches import reopen_batch  # it imports this module

    batch_id = RenderJob.objects.values_list("batch_id", flat=True).get(pk=job_id)
    if batch_id is not None:
        reopen_batch(batch_id)
