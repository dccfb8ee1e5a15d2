"""Move batches of texts: they start, end, are cancelled and tried again as their items are.

An item is a job and locks its own row first; a batch's row is locked after it, never before. What a
batch knows of its items is counted anew each time from their rows, in a transaction of its own once
an item's end has committed: a count that a killed process left out is made by the sweep. After
batches of books a worker is sent (`synth/batches/turns.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.dispatch import receiver

from synth.jobs.removal import ITEMS_AT_ONCE, drop_exports, lock_jobs
from synth.models import Batch, BatchEntry, Export, JobVoice, RenderJob, Segment
from synth.signals import batch_ended, item_deleted, job_reopened, jobs_ended
from synth.transitions.jobs import (
    REOPENED,
    RETRYABLE,
    SILENCED,
    UNFINISHED,
    JobStatus,
    close_segments,
    complete_jobs,
    expiry,
    queue_again,
)
from ttsweb import leases
from ttsweb.refusals import counted
from ttsweb.work import ADVANCE_BOOK_BATCH, Kind, enqueue, enqueue_task
from voices.models import VoiceVersion

CANCELLED_AT_ONCE = 2_000  # items in one transaction
ZIP = "zip"  # the format of a batch's export
WITH_AUDIO = (JobStatus.SUCCEEDED, JobStatus.PARTIAL)


def lock_batches(batches: QuerySet[Batch]) -> list[uuid.UUID]:
    """Lock the rows of batches, in one order; call inside a transaction, after those of jobs."""
    return list(batches.select_for_update(of=("self",)).order_by("pk").values_list("pk", flat=True))


def start_batches(job_ids: Collection[uuid.UUID]) -> None:
    """Move the batches of jobs that have just begun QUEUED -> RUNNING; call in a transaction."""
    batches = RenderJob.objects.filter(pk__in=job_ids, batch__isnull=False).values("batch")
    queued = lock_batches(Batch.objects.filter(pk__in=batches, status=JobStatus.QUEUED))
    now = leases.database_now()
    Batch.objects.filter(pk__in=queued).update(
        status=JobStatus.RUNNING, started_at=Coalesce("started_at", now), updated_at=now
    )


def settle_batch_on_commit(batch_id: uuid.UUID) -> None:
    """Count a batch once the current transaction has committed; an error then is only logged."""
    transaction.on_commit(partial(settle_batch, batch_id), robust=True)


def settle_batch(batch_id: uuid.UUID) -> None:
    """Count the ended items of an unfinished batch; after the last one order its zip, or end it."""
    with transaction.atomic():
        batch = open_batch(batch_id).select_for_update().first()
        if batch is None:
            return
        counts = count_items([batch_id]).get(batch_id, {})
        ended = sum(counts.get(status, 0) for status in RenderJob.FINAL)
        Batch.objects.filter(pk=batch_id).update(
            items_ended=ended, items_total=sum(counts.values()), updated_at=leases.database_now()
        )
        if ended == sum(counts.values()):
            _complete(batch, counts)


def count_items(batch_ids: Collection[uuid.UUID]) -> dict[uuid.UUID | None, dict[str, int]]:
    rows = RenderJob.objects.filter(batch__in=batch_ids).order_by()
    found: dict[uuid.UUID | None, dict[str, int]] = {}
    for batch_id, status, count in rows.values_list("batch", "status").annotate(Count("pk")):
        found.setdefault(batch_id, {})[status] = count
    return found


def end_batch(batch_id: uuid.UUID, **columns: Any) -> bool:
    """End a batch of texts or of books and tell of it; of many callers exactly one does."""
    now = leases.database_now()
    with transaction.atomic():
        ended = open_batch(batch_id).update(ended_at=now, updated_at=now, **columns)
        if ended:
            batch_ended.send(Batch, batch_id=batch_id)
    return bool(ended)


def finish_batch(batch: Batch) -> None:
    """End a batch whose zip was made; call it with the batch's row locked."""
    counts = count_items([batch.pk]).get(batch.pk, {})
    total = sum(counts.values())
    missing = total - counts.get(JobStatus.SUCCEEDED, 0)
    if not missing:
        _end(batch, JobStatus.SUCCEEDED)
        return
    verb = "is" if missing == 1 else "are"
    message = f"{missing} of {counted(total, 'item')} {verb} incomplete; {_first_bad(batch)}"
    _end(batch, JobStatus.PARTIAL, "items_failed", message)


def fail_batch(batch: Batch, *, code: str, message: str) -> None:
    """End a batch whose zip cannot be made; call it with the batch's row locked."""
    _end(batch, JobStatus.FAILED, code, message)


def cancel_batch(batch_id: uuid.UUID) -> bool:
    """Cancel an unfinished batch and its items, some at a time; False when it had ended.

    The sweep goes on with what a killed process has left.
    """
    now = leases.database_now()
    with transaction.atomic():
        if not open_batch(batch_id).update(cancelled_at=now, updated_at=now):
            return False
        drop_exports(Export.objects.filter(batch=batch_id))
    _cancel_items(batch_id)
    return True


def retryable_items(batch_id: uuid.UUID) -> QuerySet[RenderJob]:
    """Return the items that have something to do again, and a voice that can do it."""
    return (
        RenderJob.objects.filter(batch=batch_id, status__in=RETRYABLE, segments_total__gt=0)
        .exclude(Exists(JobVoice.objects.filter(SILENCED, job=OuterRef("pk"))))
        .exclude(voices__version__status=VoiceVersion.Status.FAILED)
    )


def retry_batch(batch_id: uuid.UUID) -> int:
    """Queue again what the items of an ended batch did not finish; what is rendered is kept.

    A batch whose zip alone is missing gets another one.

    Returns:
        How many items were queued again.
    """
    with transaction.atomic():
        ids = lock_jobs(retryable_items(batch_id))
        if not reopen_batch(batch_id):
            return 0  # it is being cancelled
        for start in range(0, len(ids), ITEMS_AT_ONCE):
            queue_again(ids[start : start + ITEMS_AT_ONCE])
    return len(ids)


@receiver(jobs_ended)
def settle_batches_of(jobs: Collection[RenderJob], **_: Any) -> None:
    """Have the batches counted that ended jobs are items of, once this has committed."""
    for batch_id in {job.batch_id for job in jobs if job.batch_id is not None}:
        settle_batch_on_commit(batch_id)


def advance_on_commit(batch_id: uuid.UUID) -> None:
    """Have a worker look after a batch once the current transaction has committed."""
    enqueue_task(ADVANCE_BOOK_BATCH, str(batch_id))


@receiver(jobs_ended)
def advance_batches_of(jobs: Collection[RenderJob], **_: Any) -> None:
    """Have the batches looked after that ended jobs, of books or of samples, belong to."""
    ids = [job.pk for job in jobs if job.kind == RenderJob.Kind.BOOK]
    if not ids:
        return
    entries = BatchEntry.objects.filter(Q(book__job__in=ids) | Q(book__sample_job__in=ids))
    for batch_id in entries.values_list("batch", flat=True):
        advance_on_commit(batch_id)


def advance_batch_of_book(book_id: uuid.UUID) -> bool:
    """Have the batch of a book looked after; False where it is in none."""
    batch_id = BatchEntry.objects.filter(book=book_id).values_list("batch", flat=True).first()
    if batch_id is None:
        return False
    advance_on_commit(batch_id)
    return True


@receiver(job_reopened)
def reopen_batch_of(job_id: uuid.UUID, **_: Any) -> None:
    """Open the batch again that a reopened job is an item of; its zip is made anew."""
    batch_id = RenderJob.objects.values_list("batch_id", flat=True).get(pk=job_id)
    if batch_id is not None:
        reopen_batch(batch_id)


def reopen_batch(batch_id: uuid.UUID) -> bool:
    """Open a batch again because of an item; its zip goes. False where it is being cancelled."""
    with transaction.atomic():
        batch = Batch.objects.select_for_update().filter(pk=batch_id).first()
        if batch is None or (batch.ended_at is None and batch.cancel_requested):
            return False
        if batch.ended_at is not None:
            columns = {name: value for name, value in REOPENED.items() if name != "finished_at"}
            columns |= {"cancelled_at": None, "ended_at": None, "status": JobStatus.QUEUED}
            Batch.objects.filter(pk=batch_id).update(updated_at=leases.database_now(), **columns)
        drop_exports(Export.objects.filter(batch=batch_id))
        settle_batch_on_commit(batch_id)
    return True


@receiver(item_deleted)
def forget_item(batch_id: uuid.UUID, **_: Any) -> None:
    """Make a batch do without an item that was deleted; a zip that holds it is made again."""
    made = Export.objects.filter(batch=batch_id).exists()
    if made or not RenderJob.objects.filter(batch=batch_id).exists():
        reopen_batch(batch_id)
    else:
        settle_batch_on_commit(batch_id)


def remake_items(batch_id: uuid.UUID, item_ids: Sequence[uuid.UUID]) -> int:
    """Have the lost files of ended items made again from their takes; the zip follows them."""
    count = 0
    with transaction.atomic():
        for item_id in lock_jobs(RenderJob.objects.filter(pk__in=item_ids, status__in=WITH_AUDIO)):
            count += RenderJob.objects.filter(pk=item_id).update(
                status=JobStatus.RUNNING,
                error_code="",
                error_message="",
                finished_at=None,
                updated_at=leases.database_now(),
            )
            drop_exports(Export.objects.filter(job=item_id))
            complete_jobs([item_id])
        reopen_batch(batch_id)
    return count


def settle_stalled_batches() -> int:
    """Go on with batches whose count or cancel was broken off; return how many."""
    open_items = RenderJob.objects.filter(batch=OuterRef("pk"), status__in=UNFINISHED)
    batches = Batch.objects.filter(kind=Batch.Kind.TEXTS, ended_at__isnull=True)
    halfway = batches.filter(
        Exists(open_items.filter(cancel_requested=False)), cancelled_at__isnull=False
    )
    for batch_id in (cancelled := list(halfway.values_list("pk", flat=True))):
        _cancel_items(batch_id)
    stalled = batches.filter(~Exists(open_items), export__isnull=True)
    for batch_id in (left := list(stalled.values_list("pk", flat=True))):
        settle_batch(batch_id)
    return len(cancelled) + len(left)


def _complete(batch: Batch, counts: dict[str, int]) -> None:
    if batch.cancel_requested or counts.keys() == {JobStatus.CANCELLED}:
        _end(batch, JobStatus.CANCELLED)
    elif not counts:
        _end(batch, JobStatus.FAILED, "no_items", "All items of this batch were deleted.")
    elif not any(counts.get(status) for status in WITH_AUDIO):
        items = counted(sum(counts.values()), "item")
        message = f"None of the {items} has audio; {_first_bad(batch)}"
        _end(batch, JobStatus.FAILED, "items_failed", message)
    else:
        export, made = Export.objects.get_or_create(batch=batch, defaults={"format": ZIP})
        if made:
            enqueue(Kind.EXPORT, [export.pk])


def _end(batch: Batch, status: JobStatus, error_code: str = "", error_message: str = "") -> None:
    end_batch(
        batch.pk,
        status=status,
        expires_at=expiry(batch.retention_seconds, leases.database_now()),
        error_code=error_code,
        error_message=error_message,
    )


def open_batch(batch_id: uuid.UUID) -> QuerySet[Batch]:
    return Batch.objects.filter(pk=batch_id, ended_at__isnull=True)


def _first_bad(batch: Batch) -> str:
    items = batch.items.exclude(status=JobStatus.SUCCEEDED).order_by("item_index")
    found = items.values_list("custom_id", "status", "error_message").first()
    if found is None:
        return "the reason is not known."
    custom_id, status, message = found
    return f"the first is {custom_id!r}, {status}{f': {message}' if message else '.'}"


def _cancel_items(batch_id: uuid.UUID) -> None:
    left = RenderJob.objects.filter(
        batch=batch_id, status__in=UNFINISHED, cancel_requested=False
    ).order_by("item_index")
    # Read once for all parts: to find the next part among ten thousand items takes as long as to
    # cancel it, and to count them all takes longer.
    while places := list(left.values_list("item_index", flat=True)):
        for start in range(0, len(places), CANCELLED_AT_ONCE):
            some = places[start : start + CANCELLED_AT_ONCE]
            _cancel_some(batch_id, (some[0], some[-1]))
    settle_batch(batch_id)


@transaction.atomic
def _cancel_some(batch_id: uuid.UUID, places: tuple[int | None, int | None]) -> None:
    """Cancel the items from one place to another as `cancel_job` does one job.

    The few statements name the items by their places: thousands of ids would take longer to send
    and to look up than the work itself.
    """
    items = RenderJob.objects.filter(batch=batch_id, status__in=UNFINISHED)
    items = items.filter(item_index__range=places)
    lock_jobs(items)
    now = leases.database_now()
    drop_exports(Export.objects.filter(job__in=items))
    close_segments(Segment.objects.filter(job__in=items), Segment.Status.CANCELLED)
    cancelled = Segment.objects.filter(job=OuterRef("pk"), status=Segment.Status.CANCELLED)
    counts = cancelled.order_by().values("job").annotate(count=Count("pk")).values("count")
    number = Coalesce(Subquery(counts), 0)
    items.update(cancel_requested=True, segments_cancelled=number, updated_at=now)
    closed = F("segments_done") + F("segments_failed") + F("segments_cancelled")
    items.filter(segments_total__lte=closed).update(status=JobStatus.CANCELLED, finished_at=now)
