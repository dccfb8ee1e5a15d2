"""Move books (import, plan, pauses, cover) and files: exports of jobs, further files of books."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce

from synth.audiobooks.proof import gap_of
from synth.jobs.removal import lock_jobs
from synth.models import Batch, BookFile, BookSource, Export, ExportCues, RenderJob, Segment
from synth.transitions.batches import fail_batch, finish_batch, lock_batches
from synth.transitions.jobs import (
    STOPPING,
    UNFINISHED,
    JobStatus,
    complete_jobs,
    count_audio,
    end_job,
    end_whole_jobs,
    reopen_job,
    telling_failure,
)
from ttsweb import leases
from ttsweb.leases import AnyClaim, Claim
from ttsweb.refusals import counted
from ttsweb.storage import MadeFile, delete_objects_on_commit
from ttsweb.work import Kind, enqueue

State = BookSource.State


def claimable_books() -> QuerySet[BookSource]:
    return leases.claimable(BookSource).order_by("created_at")


def finish_book(claim: Claim, facts: Mapping[str, Any]) -> bool:
    """Move IMPORTING -> PLANNED with what was read; False when the claim is gone."""
    return leases.end(BookSource, claim, State.PLANNED, **facts)


def fail_book(claim: Claim, *, code: str, message: str) -> bool:
    """Move IMPORTING -> FAILED: the file is none that can be read."""
    return leases.fail(BookSource, claim, code=code, message=message, start_wanted=False)


def change_plan(
    book: BookSource,
    *,
    edits: list[Any],
    figures: Mapping[str, Any],
    casting: Mapping[str, Any],
    production: Mapping[str, Any],
) -> bool:
    """Replace a plan's edits and casting, if it is still what `book` has and not started."""
    facts = {"figures": dict(figures), "casting": dict(casting), "production": dict(production)}
    number, now = F("plan_number") + 1, leases.database_now()
    return bool(_open_plan(book).update(edits=edits, **facts, plan_number=number, updated_at=now))


def change_options(book_id: uuid.UUID, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Change the options of a book that was not started; False when it was, or is gone.

    It counts as a change of the plan, so that a start that goes on meanwhile sees it.
    """

    def changes(book: BookSource) -> dict[str, Any] | None:
        if book.job_id is not None:
            return None
        return {"options": change(dict(book.options)), "plan_number": F("plan_number") + 1}

    return _change_book(book_id, changes)


def _change_book(
    book_id: uuid.UUID, changes: Callable[[BookSource], dict[str, Any] | None]
) -> bool:
    """Give a locked book the columns that `changes` returns; False: it is gone, or these None."""
    with transaction.atomic():
        book = BookSource.objects.select_for_update(of=("self",)).filter(pk=book_id).first()
        columns = changes(book) if book is not None else None
        if columns is None:
            return False
        rows = BookSource.objects.filter(pk=book_id)
        return bool(rows.update(**columns, updated_at=leases.database_now()))


def begin_book(book: BookSource, job: RenderJob, started: Mapping[str, Any]) -> bool:
    """Tie a planned book to its job; False when it was started or changed meanwhile."""
    columns = {"job": job, "started": dict(started), "error_code": "", "error_message": ""}
    now = leases.database_now()
    return bool(_open_plan(book).update(**columns, start_wanted=False, updated_at=now))


def note_failed_start(book: BookSource, *, code: str, message: str) -> bool:
    """Keep why a book, or its sample, did not start by itself; it stays planned."""
    rows = _open_plan(book).filter(start_wanted=book.start_wanted)
    columns = {"error_code": code[:60], "error_message": message}
    return bool(rows.update(**columns, start_wanted=False, updated_at=leases.database_now()))


def pause_job(job_id: uuid.UUID) -> bool:
    """Start nothing more of an unfinished job; what is being rendered is kept."""
    now = leases.database_now()
    rows = RenderJob.objects.filter(pk=job_id, status__in=UNFINISHED, cancel_requested=False)
    return bool(rows.filter(paused_at__isnull=True).update(paused_at=now, updated_at=now))


def resume_job(job_id: uuid.UUID) -> bool:
    """Go on with a paused job."""
    rows = RenderJob.objects.filter(pk=job_id, paused_at__isnull=False)
    return bool(rows.update(paused_at=None, updated_at=leases.database_now()))


def _open_plan(book: BookSource) -> QuerySet[BookSource]:
    return BookSource.objects.filter(
        pk=book.pk, state=State.PLANNED, job__isnull=True, plan_number=book.plan_number
    )


def change_metadata(book_id: uuid.UUID, changes: Mapping[str, Any]) -> bool:
    """Say something else of a book; null takes back what was said. False: there is none."""

    def merge(book: BookSource) -> dict[str, Any]:
        merged = {**book.metadata, **changes}
        return {"metadata": {name: value for name, value in merged.items() if value is not None}}

    return _change_book(book_id, merge)


def replace_cover(book_id: uuid.UUID, *, key: str, media_type: str) -> bool:
    """Give a book another cover, or none by an empty key; the one so far goes."""

    def replace(book: BookSource) -> dict[str, Any]:
        delete_objects_on_commit([book.cover_key] if book.cover_key else [])
        return {"cover_key": key, "cover_type": media_type}

    return _change_book(book_id, replace)


ROWS_AT_ONCE = 500


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
        BookSource.objects.filter(job=job_id).update(updated_at=leases.database_now())
        if job.status in (JobStatus.CANCELLED, JobStatus.FAILED) or job.cancel_requested:
            count_audio(job_id, pauses=dict(pauses))  # it has no file; a retry makes one
        else:
            reopen_job(job_id, pauses=dict(pauses))
            complete_jobs([job_id])
    return True


EXPORT_PRIORITY = Coalesce("job__priority", "batch__priority")


def claimable_exports() -> QuerySet[Export]:
    """Return the exports that wait for a CPU worker now, oldest first."""
    return leases.claimable(Export).order_by(EXPORT_PRIORITY, "created_at")


def finish_exports(files: Mapping[AnyClaim, MadeFile]) -> set[AnyClaim]:
    """Publish the files of many jobs and batches and end these, in one transaction.

    Returns:
        The claims that were settled; the others are gone, and nothing was changed for them.
    """
    with transaction.atomic():
        _lock_owners([claim.pk for claim in files])
        status = Export.Status.DONE
        done = {
            claim: file
            for claim, file in files.items()
            if leases.end(Export, claim, status, **file.columns, peaks=list(file.peaks))
        }
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
        whole: dict[uuid.UUID, float] = {}
        for job in jobs:
            length = seconds[made[job.pk]]
            if job.kind == RenderJob.Kind.SPEECH and job.segments_failed == 0:
                whole[job.pk] = length  # its file is all that it needed
            else:
                _end_with_file(job, length)
        end_whole_jobs(whole)
        for batch in Batch.objects.filter(export__in=seconds):
            finish_batch(batch)
    return set(done)


def _lock_owners(export_ids: Sequence[uuid.UUID]) -> None:
    """Lock the rows of the jobs and batches that files belong to; call inside a transaction."""
    lock_jobs(RenderJob.objects.filter(exports__in=export_ids))
    lock_batches(Batch.objects.filter(export__in=export_ids))


def _end_with_file(job: RenderJob, seconds: float) -> None:
    status, code, message = JobStatus.PARTIAL, "", ""
    failure = telling_failure(job)
    gap = gap_of(job) if failure is None and job.kind == RenderJob.Kind.BOOK else None
    if failure is not None:
        have = "has" if job.segments_failed == 1 else "have"
        segments = counted(job.segments_total, "segment")
        message = f"{job.segments_failed} of {segments} {have} no audio"
        if failure.error_code in STOPPING:
            code, message = failure.error_code, f"{message}: {failure.error_message}"
        else:
            code = "segments_failed"
            message += f"; the first is number {failure.index}: {failure.error_message}"
    elif gap is not None:
        code, message = gap.code, gap.message
    else:
        status = JobStatus.SUCCEEDED
    end_job(job.pk, status, audio_seconds=seconds, error_code=code, error_message=message)


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
    "key": "", "size_bytes": 0, "sha256": "", "duration_seconds": 0.0, "report": {},
    "content_digest": "", "error_code": "", "error_message": "", "finished_at": None,
}  # fmt: skip


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
            asked = {"kind": kind, "options": dict(options), "options_digest": options_digest}
            row = BookFile.objects.create(job_id=job_id, is_partial=is_partial, **asked)
            enqueue(Kind.BOOK_FILE, [row.pk])
        elif row.status in _OPEN:
            files.filter(pk=row.pk, status__in=_OPEN).update(is_partial=is_partial)
        elif row.status == Status.FAILED or row.content_digest != content_digest or row.pk == gone:
            moved = files.filter(pk=row.pk, status=row.status).update(
                status=Status.QUEUED, is_partial=is_partial, **leases.untried(), **_UNMADE
            )
            if moved:
                delete_objects_on_commit([row.key] if row.key else [])
                enqueue(Kind.BOOK_FILE, [row.pk])
        row.refresh_from_db()
    return row


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
