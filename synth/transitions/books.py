"""Move books: finish and fail their import; change a plan, pauses, metadata; begin their job."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet, Sum

from synth.jobs.removal import drop_exports, lock_jobs
from synth.models import BookSource, Export, RenderJob, Segment
from synth.signals import job_reopened
from synth.transitions.jobs import UNFINISHED, JobStatus, complete_job
from ttsweb import leases
from ttsweb.leases import Claim
from voices.objects import delete_objects_on_commit

State = BookSource.State


def claimable_books() -> QuerySet[BookSource]:
    """Return the books that wait to be read, oldest first."""
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
    changed = _open_plan(book).update(
        edits=edits,
        figures=dict(figures),
        casting=dict(casting),
        production=dict(production),
        plan_number=F("plan_number") + 1,
        updated_at=leases.database_now(),
    )
    return bool(changed)


def change_options(book_id: uuid.UUID, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Change the options of a book that was not started; False when it was, or is gone.

    It counts as a change of the plan, so that a start that goes on meanwhile sees it.
    """
    with transaction.atomic():
        rows = BookSource.objects.select_for_update(of=("self",))
        book = rows.filter(pk=book_id, job__isnull=True).first()
        if book is None:
            return False
        BookSource.objects.filter(pk=book_id).update(
            options=change(dict(book.options)),
            plan_number=F("plan_number") + 1,
            updated_at=leases.database_now(),
        )
    return True


def begin_book(book: BookSource, job: RenderJob, started: Mapping[str, Any]) -> bool:
    """Tie a planned book to its job; False when it was started or changed meanwhile."""
    begun = _open_plan(book).update(
        job=job,
        started=dict(started),
        start_wanted=False,
        error_code="",
        error_message="",
        updated_at=leases.database_now(),
    )
    return bool(begun)


def note_failed_start(book: BookSource, *, code: str, message: str) -> bool:
    """Keep why a book, or its sample, did not start by itself; it stays planned."""
    noted = (
        _open_plan(book)
        .filter(start_wanted=book.start_wanted)
        .update(
            start_wanted=False,
            error_code=code[:60],
            error_message=message,
            updated_at=leases.database_now(),
        )
    )
    return bool(noted)


def pause_job(job_id: uuid.UUID) -> bool:
    """Start nothing more of an unfinished job; what is being rendered is kept."""
    now = leases.database_now()
    return bool(
        RenderJob.objects.filter(
            pk=job_id, status__in=UNFINISHED, cancel_requested=False, paused_at__isnull=True
        ).update(paused_at=now, updated_at=now)
    )


def resume_job(job_id: uuid.UUID) -> bool:
    """Go on with a paused job."""
    return bool(
        RenderJob.objects.filter(pk=job_id, paused_at__isnull=False).update(
            paused_at=None, updated_at=leases.database_now()
        )
    )


def _open_plan(book: BookSource) -> QuerySet[BookSource]:
    return BookSource.objects.filter(
        pk=book.pk, state=State.PLANNED, job__isnull=True, plan_number=book.plan_number
    )


def change_metadata(book_id: uuid.UUID, changes: Mapping[str, Any]) -> bool:
    """Say something else of a book; null takes back what was said. False: there is none."""
    with transaction.atomic():
        book = BookSource.objects.select_for_update(of=("self",)).filter(pk=book_id).first()
        if book is None:
            return False
        merged = {**book.metadata, **changes}
        return bool(
            BookSource.objects.filter(pk=book_id).update(
                metadata={name: value for name, value in merged.items() if value is not None},
                updated_at=leases.database_now(),
            )
        )


def replace_cover(book_id: uuid.UUID, *, key: str, media_type: str) -> bool:
    """Give a book another cover, or none by an empty key; the one so far goes."""
    with transaction.atomic():
        book = BookSource.objects.select_for_update(of=("self",)).filter(pk=book_id).first()
        if book is None:
            return False
        delete_objects_on_commit([book.cover_key] if book.cover_key else [])
        return bool(
            BookSource.objects.filter(pk=book_id).update(
                cover_key=key, cover_type=media_type, updated_at=leases.database_now()
            )
        )


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
