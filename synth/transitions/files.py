"""Move the files of jobs and of books, and note which jobs are listened to meanwhile."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce

from synth.audiobooks.proof import gap_of
from synth.jobs.removal import lock_jobs, update_jobs
from synth.made_file import MadeFile
from synth.models import Batch, BookFile, Export, ExportCues, RenderJob
from synth.transitions.batches import fail_batch, finish_batch, lock_batches
from synth.transitions.jobs import STOPPING, JobStatus, end_job, end_whole_jobs, telling_failure
from ttsweb import leases
from ttsweb.counted import counted
from ttsweb.leases import Claim
from ttsweb.work import FILL_LIVE, Kind, enqueue, enqueue_task
from voices.objects import delete_objects_on_commit

EXPORT_PRIORITY = Coalesce("job__priority", "batch__priority")


def claimable_exports() -> QuerySet[Export]:
    """Return the exports that wait for a CPU worker now, oldest first."""
    return leases.claimable(Export).order_by(EXPORT_PRIORITY, "created_at")


def finish_export(claim: Claim, **file: Any) -> bool:
    """Publish a file, by the fields of `MadeFile`, and end its job or batch.

    False when the claim is gone.
    """
    return bool(finish_exports({claim: MadeFile(**file)}))


def finish_exports(files: Mapping[Claim, MadeFile]) -> set[Claim]:
    """Publish the files of many jobs and batches and end these, in one transaction.

    Returns:
        The claims that were settled; the others are gone, and nothing was changed for them.
    """
    with transaction.atomic():
        _lock_owners([claim.pk for claim in files])
        done = {claim: file for claim, file in files.items() if _publish(claim, file)}
        ExportCues.objects.bulk_create(
            [
                ExportCues(export_id=claim.pk, sample_rate=file.sample_rate, cues=list(file.cues))
                for claim, file in done.items()
                if file.cues
            ],
            update_conflicts=True,
            unique_fields=["export"],
            update_fields=["sample_rate", "cues"],
        )
        seconds = {claim.pk: file.duration_seconds for claim, file in done.items()}
        made = dict(Export.objects.filter(pk__in=seconds).values_list("job", "pk"))
        jobs = list(RenderJob.objects.defer("text").filter(pk__in=set(made) - {None}))
        end_whole_jobs({job.pk: seconds[made[job.pk]] for job in jobs if _is_plain(job)})
        for job in jobs:
            if not _is_plain(job):
                _end_with_file(job, seconds[made[job.pk]])
        for batch in Batch.objects.filter(export__in=seconds):
            finish_batch(batch)
    return set(done)


def _lock_owners(export_ids: Sequence[uuid.UUID]) -> None:
    """Lock the rows of the jobs and batches that files belong to; call inside a transaction."""
    lock_jobs(RenderJob.objects.filter(exports__in=export_ids))
    lock_batches(Batch.objects.filter(export__in=export_ids))


def _publish(claim: Claim, file: MadeFile) -> bool:
    return leases.end(
        Export,
        claim,
        Export.Status.DONE,
        **file.columns,
        peaks=list(file.peaks),
    )


def _is_plain(job: RenderJob) -> bool:
    """Say whether a job needs only its file to have succeeded."""
    return job.kind == RenderJob.Kind.SPEECH and job.segments_failed == 0


def _end_with_file(job: RenderJob, seconds: float) -> None:
    """End a job whose file is there: as succeeded, or as partial with why something is missing."""
    failure = telling_failure(job)
    gap = gap_of(job) if failure is None and job.kind == RenderJob.Kind.BOOK else None
    if gap is not None:
        end_job(
            job.pk,
            JobStatus.PARTIAL,
            audio_seconds=seconds,
            error_code=gap.code,
            error_message=gap.message,
        )
        return
    if failure is None:
        end_job(job.pk, JobStatus.SUCCEEDED, audio_seconds=seconds)
        return
    missing = (
        f"{job.segments_failed} of {counted(job.segments_total, 'segment')} "
        f"{'has' if job.segments_failed == 1 else 'have'} no audio"
    )
    if failure.error_code in STOPPING:
        code, message = failure.error_code, f"{missing}: {failure.error_message}"
    else:
        code = "segments_failed"
        message = f"{missing}; the first is number {failure.index}: {failure.error_message}"
    end_job(
        job.pk, JobStatus.PARTIAL, audio_seconds=seconds, error_code=code, error_message=message
    )


def fail_export(claim: Claim, *, code: str, message: str) -> bool:
    """Move CLAIMED -> FAILED and end the job or batch; a retry makes the file again."""
    with transaction.atomic():
        _lock_owners([claim.pk])
        failed = leases.fail(Export, claim, code=code, message=message)
        if failed:
            export = Export.objects.select_related("batch").get(pk=claim.pk)
            if export.batch is not None:
                fail_batch(export.batch, code=code, message=message)
            elif export.job_id is not None:
                end_job(export.job_id, JobStatus.FAILED, error_code=code, error_message=message)
    return failed


Status = BookFile.Status
MOST_FILES = 1000  # of one book
_OPEN = (Status.QUEUED, Status.CLAIMED)
_UNMADE: Mapping[str, Any] = {
    "key": "",
    "size_bytes": 0,
    "sha256": "",
    "duration_seconds": 0.0,
    "report": {},
    "content_digest": "",
    "error_code": "",
    "error_message": "",
    "finished_at": None,
}


class TooManyFilesError(Exception):
    """A book has as many files as one may have."""


def ask_for_file(
    job_id: uuid.UUID,
    kind: str,
    options: Mapping[str, Any],
    *,
    options_digest: str,
    content_digest: str,
    is_partial: bool,
    gone: uuid.UUID | None = None,
) -> BookFile | None:
    """Return the row of a file, which is made unless it is there and of the takes of now.

    Args:
        content_digest: of what the file would be made of now.
        is_partial: it may be made of the chapters that are complete.
        gone: the file whose object the storage has lost.

    Returns:
        The row; None when there is no such job any more.

    Raises:
        TooManyFilesError: one more is not kept.
    """
    with transaction.atomic():
        if not lock_jobs(RenderJob.objects.filter(pk=job_id)):
            return None
        files = BookFile.objects.filter(job=job_id)
        row = files.filter(kind=kind, options_digest=options_digest).first()
        if row is None:
            if files.count() >= MOST_FILES:
                raise TooManyFilesError
            row = BookFile.objects.create(
                job_id=job_id,
                kind=kind,
                options=dict(options),
                options_digest=options_digest,
                is_partial=is_partial,
            )
            enqueue(Kind.BOOK_FILE, [row.pk])
        elif row.status in _OPEN:
            files.filter(pk=row.pk, status__in=_OPEN).update(is_partial=is_partial)
        elif (
            row.status == Status.FAILED
            or row.content_digest != content_digest
            or row.pk == gone
        ):  # fmt: skip
            _make_again(row, is_partial=is_partial)
        row.refresh_from_db()
    return row


def _make_again(row: BookFile, *, is_partial: bool) -> None:
    """Move DONE or FAILED -> QUEUED; the file so far goes."""
    moved = BookFile.objects.filter(pk=row.pk, status=row.status).update(
        status=Status.QUEUED, is_partial=is_partial, **leases.untried(), **_UNMADE
    )
    if moved:
        delete_objects_on_commit([row.key] if row.key else [])
        enqueue(Kind.BOOK_FILE, [row.pk])


def claimable_book_files() -> QuerySet[BookFile]:
    """Return the files that wait for a CPU worker now, those of urgent books first."""
    return leases.claimable(BookFile).order_by("job__priority", "created_at")


def finish_book_file(
    claim: Claim, file: MadeFile, *, content_digest: str, is_partial: bool
) -> bool:
    """Publish a file: CLAIMED -> DONE; False when the claim is gone.

    Args:
        content_digest: of what it is made of.
        is_partial: chapters that it should have are missing.
    """
    facts = file.columns | {"content_digest": content_digest, "is_partial": is_partial}
    return leases.end(BookFile, claim, Status.DONE, error_code="", error_message="", **facts)


FRESH = dt.timedelta(seconds=30)  # a request that follows so soon changes nothing


def request_live(job_id: uuid.UUID) -> bool:
    """Have pieces of the job's audio written from now on, and those of what is done already.

    Returns:
        Whether anything was changed: False for a job that is gone or was asked for a moment ago.
    """
    now = leases.database_now()
    stale = Q(live_requested_at__isnull=True) | Q(live_requested_at__lt=now - FRESH)
    changed = RenderJob.objects.filter(stale, pk=job_id).update(live_requested_at=now)
    if changed:
        enqueue_task(FILL_LIVE)
    return bool(changed)


def keep_live(job_ids: Collection[uuid.UUID]) -> int:
    """Note that somebody still listens to these jobs; return how many are there."""
    rows = RenderJob.objects.filter(pk__in=list(job_ids), live_requested_at__isnull=False)
    return update_jobs(rows, live_requested_at=leases.database_now())


def end_live(*, keep_seconds: float, limit: int = 100) -> int:
    """Forget ended jobs that nobody has listened to for so long; their pieces may go.

    Returns:
        How many jobs.
    """
    cutoff = leases.database_now() - dt.timedelta(seconds=keep_seconds)
    over = RenderJob.objects.filter(
        status__in=RenderJob.FINAL, live_requested_at__lt=cutoff, finished_at__lt=cutoff
    )
    # Chosen first, as an UPDATE has no limit; the condition is repeated, as one may listen again.
    chosen = list(over.order_by().values_list("pk", flat=True)[:limit])
    return update_jobs(over.filter(pk__in=chosen), live_requested_at=None) if chosen else 0
