"""Write that a person listened to takes and found them good; no file is made anew."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from django.db import transaction
from django.db.models import Q

from synth.bookshelf.proof import gap_of
from synth.jobs.removal import lock_jobs
from synth.models import BookBatchEntry, RenderJob, Segment, Take
from synth.signals import job_approved
from synth.transitions.candidates import approved, with_candidate
from synth.transitions.jobs import JobStatus
from ttsweb import leases

BOOK_SEGMENTS_SHORT = "book_segments_short"


def approve_takes(seen: Mapping[int, uuid.UUID]) -> set[int]:
    """Keep takes as good; a book that was partial for short takes alone succeeds after the last.

    Once more it changes nothing.

    Args:
        seen: by segment, the take that was listened to.

    Returns:
        The segments that are approved; the others keep another take by now, have none, or belong
        to a cancelled job, and nothing was changed of them.
    """
    with transaction.atomic():
        jobs = Segment.objects.filter(pk__in=seen).values("job")
        lock_jobs(RenderJob.objects.filter(pk__in=jobs))
        rows = Segment.objects.select_for_update(of=("self",)).filter(
            ~Q(job__status=JobStatus.CANCELLED),
            pk__in=seen,
            status=Segment.Status.DONE,
            job__cancel_requested=False,
        )
        found = [row for row in rows.order_by("pk") if row.take_id == seen[row.pk]]
        takes = Take.objects.in_bulk({row.take_id for row in found if row.take_id is not None})
        for segment in found:
            _approve(segment, takes[seen[segment.pk]])
        for job_id in sorted({segment.job_id for segment in found}):
            end_as_whole(job_id)
    return {segment.pk for segment in found}


def end_as_whole(job_id: uuid.UUID) -> bool:
    """Move a book PARTIAL -> SUCCEEDED whose short takes are all approved by now.

    Its file is there and stays: no take of it changed; the summary of a batch that has ended says
    so as well. Call it with the job's row locked.
    """
    partial = RenderJob.objects.filter(
        pk=job_id, status=JobStatus.PARTIAL, error_code=BOOK_SEGMENTS_SHORT
    )
    job = partial.defer("text").first()
    if job is None:
        return False
    gap, now = gap_of(job), leases.database_now()
    if gap is not None:
        partial.update(error_code=gap.code, error_message=gap.message, updated_at=now)
        return False
    moved = partial.update(
        status=JobStatus.SUCCEEDED, error_code="", error_message="", updated_at=now
    )
    if moved:
        job_approved.send(RenderJob, job=job)
        _correct_summary_of(job_id)
    return bool(moved)


def _correct_summary_of(job_id: uuid.UUID) -> None:
    """Have the summary of an ended batch of books say that this one is whole."""
    from synth.book_batches.summary import correct_report  # it imports the transitions

    entries = BookBatchEntry.objects.filter(book__job=job_id)
    for batch_id in entries.values_list("batch", flat=True):
        correct_report(batch_id, job_id=job_id)


def _approve(segment: Segment, take: Take) -> None:
    candidates = approved(with_candidate(segment.candidates, take, segment.seed), take)
    if segment.is_hand_picked and candidates == segment.candidates:
        return
    segment.candidate_takes.add(take)
    Segment.objects.filter(pk=segment.pk).update(is_hand_picked=True, candidates=candidates)
