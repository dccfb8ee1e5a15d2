"""Say in which state each entry of a batch of books is; close, approve, pause, resume, cancel.

The rows of jobs are locked first and in one order, then books, then the batch; see removal.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Case, CharField, Count, F, Q, QuerySet, Value, When

from synth.jobs.removal import lock_jobs, update_jobs
from synth.models import PRIORITIES, Batch, BatchEntry, BookSource, RenderJob
from synth.transitions.batches import advance_on_commit, open_batch
from synth.transitions.jobs import UNFINISHED, cancel_job
from ttsweb import leases

MISSING = "missing"  # its file was not uploaded yet
IMPORTING = "importing"
WAITING = "waiting"  # planned; its sample or the rest of it begins when its turn comes
SAMPLING = "sampling"
SAMPLED = "sampled"  # its sample is to be approved
PAUSED = "paused"
DELETED = "deleted"  # its job was deleted once it had been started
QUEUED, RUNNING, SUCCEEDED, PARTIAL, FAILED, CANCELLED = map(str, RenderJob.Status.values)
OPEN = (IMPORTING, WAITING, SAMPLING, SAMPLED, QUEUED, RUNNING, PAUSED)
ENDED_STATES = (SUCCEEDED, PARTIAL, FAILED, CANCELLED, DELETED)
STATES = (MISSING, *OPEN, *ENDED_STATES)

LABELS = ("open", RUNNING, PAUSED, "to_approve", "cancelling", CANCELLED, "ended")

_SAMPLED = Q(book__started__has_key="sample")


def with_state(entries: QuerySet[BatchEntry]) -> QuerySet[Any]:
    """Add `state`, one of STATES, to entries: no type says so."""
    return entries.annotate(
        state=Case(
            When(book__isnull=True, then=Value(MISSING)),
            When(
                book__job__paused_at__isnull=False,
                book__job__status__in=UNFINISHED,
                then=Value(PAUSED),
            ),
            When(book__job__isnull=False, then=F("book__job__status")),
            When(book__started__has_key="chapters", then=Value(DELETED)),
            When(book__state=BookSource.State.FAILED, then=Value(FAILED)),
            When(batch__cancelled_at__isnull=False, then=Value(CANCELLED)),
            When(book__state=BookSource.State.IMPORTING, then=Value(IMPORTING)),
            When(~Q(book__error_code=""), then=Value(FAILED)),
            When(book__sample_job__status__in=UNFINISHED, then=Value(SAMPLING)),
            When(
                _SAMPLED,
                batch__sample=Batch.Sample.HOLD,
                batch__approved_at__isnull=True,
                book__start_wanted=False,
                then=Value(SAMPLED),
            ),
            default=Value(WAITING),
            output_field=CharField(),
        )
    )


def count_states(batch_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, dict[str, int]]:
    """Return how many entries of each batch are in each state, by one query."""
    found = {batch_id: dict.fromkeys(STATES, 0) for batch_id in batch_ids}
    rows = with_state(BatchEntry.objects.filter(batch__in=list(batch_ids))).order_by()
    for batch_id, state, count in rows.values_list("batch", "state").annotate(Count("pk")):
        found[batch_id][state] = count
    return found


def to_sample(batch: Batch) -> QuerySet[Any]:
    """Return the entries of a batch whose samples are still to be begun, in their order."""
    if batch.sample == Batch.Sample.NONE:
        return BatchEntry.objects.none()
    return _planned(batch).exclude(_SAMPLED).filter(book__start_wanted=False)


def to_start(batch: Batch) -> QuerySet[Any]:
    """Return the entries of a batch that may be started as a whole, in their order."""
    ready = _planned(batch)
    if batch.sample == Batch.Sample.NONE:
        return ready
    if batch.sample == Batch.Sample.HOLD and batch.approved_at is None:
        return ready.filter(book__start_wanted=True)
    ready = ready.filter(_SAMPLED | Q(book__start_wanted=True))
    if batch.sample == Batch.Sample.FIRST:
        counts = count_states([batch.pk])[batch.pk]
        coming = counts[IMPORTING] + counts[SAMPLING]
        if batch.closed_at is None:
            coming += counts[MISSING]
        if coming or to_sample(batch).exists():
            return ready.filter(book__start_wanted=True)
    return ready


def number_at_work(batch: Batch) -> int:
    """Return how many jobs of a batch are unfinished, samples too; paused ones do not count."""
    unfinished = RenderJob.objects.filter(status__in=UNFINISHED, paused_at__isnull=True)
    whole = unfinished.filter(book__batch_entry__batch=batch).count()
    return whole + unfinished.filter(sampled_book__batch_entry__batch=batch).count()


def jobs_of(batch_id: uuid.UUID) -> QuerySet[RenderJob]:
    """Return all jobs of a batch: those of its books, and of their samples."""
    entries = BatchEntry.objects.filter(batch=batch_id)
    wholes = entries.exclude(book__job=None).values("book__job")
    samples = entries.exclude(book__sample_job=None).values("book__sample_job")
    return RenderJob.objects.filter(Q(pk__in=wholes) | Q(pk__in=samples))


def _planned(batch: Batch) -> QuerySet[Any]:
    entries = with_state(BatchEntry.objects.filter(batch=batch)).order_by("index")
    return entries.filter(state__in=(WAITING, SAMPLED)).select_related(
        "book__owner", "book__api_key"
    )


def label_of(batch: Batch, counts: dict[str, int]) -> str:
    """Return the status of a batch as a whole."""
    if batch.ended_at is not None:
        return CANCELLED if batch.cancelled_at is not None else "ended"
    if batch.cancelled_at is not None:
        return "cancelling"
    if batch.paused_at is not None:
        return PAUSED
    if counts[SAMPLED] and not any(counts[s] for s in (IMPORTING, SAMPLING, QUEUED, RUNNING)):
        return "to_approve"
    if not sum(counts[state] for state in OPEN):
        return "open"
    return RUNNING


def close_batch(batch_id: uuid.UUID) -> bool:
    """Let no more entries and files come; False where that was said already."""
    return _note_moment(batch_id, "closed_at")


def approve_batch(batch_id: uuid.UUID) -> bool:
    """Let the rest of all books follow their samples; False where that was said already."""
    return _note_moment(batch_id, "approved_at")


def approve_books(batch_id: uuid.UUID, book_ids: Collection[uuid.UUID]) -> int:
    """Let the rest of some books follow; return of how many that was not said yet."""
    books = BookSource.objects.filter(
        pk__in=list(book_ids), batch_entry__batch=batch_id, job__isnull=True, start_wanted=False
    )
    ids = list(books.values_list("pk", flat=True))
    approved = BookSource.objects.filter(pk__in=ids, job__isnull=True).update(
        start_wanted=True, updated_at=leases.database_now()
    )
    advance_on_commit(batch_id)
    return approved


def attach_book(entry: BatchEntry, book: BookSource) -> bool:
    """Give an entry the book of its file; False where it has one, or no more files are taken.

    Call it in the transaction that makes the book.
    """
    batch = Batch.objects.filter(pk=entry.batch_id, closed_at__isnull=True)
    if not batch.filter(cancelled_at__isnull=True).update(updated_at=leases.database_now()):
        return False
    taken = BatchEntry.objects.filter(pk=entry.pk, book__isnull=True)
    return bool(taken.update(book=book, error_code="", error_message=""))


def begin_sample(book: BookSource, job: RenderJob, chapter: Mapping[str, Any]) -> bool:
    """Tie a planned book to the job of its sample; False when it has one, or was changed."""
    stopped = BatchEntry.objects.filter(
        Q(batch__paused_at__isnull=False) | Q(batch__cancelled_at__isnull=False), book__isnull=False
    )
    begun = BookSource.objects.filter(
        ~Q(pk__in=stopped.values("book")),
        pk=book.pk,
        state=BookSource.State.PLANNED,
        job__isnull=True,
        sample_job__isnull=True,
        plan_number=book.plan_number,
    ).update(sample_job=job, started={"sample": dict(chapter)}, updated_at=leases.database_now())
    return bool(begun)


def note_waiting(entry: BatchEntry, *, code: str = "", message: str = "") -> None:
    """Keep what a planned entry waits for, such as room within its key's limits; empty: nothing."""
    if (entry.error_code, entry.error_message) != (code, message):
        BatchEntry.objects.filter(pk=entry.pk).update(error_code=code[:60], error_message=message)


def pause_batch(batch_id: uuid.UUID) -> bool:
    """Start nothing more of a batch and pause its jobs; those paused before stay so at a resume.

    What is being rendered at this moment is kept.
    """
    with transaction.atomic():
        ids = lock_jobs(_unfinished(batch_id).filter(paused_at__isnull=True))
        now = leases.database_now()
        if (
            not open_batch(batch_id)
            .filter(paused_at__isnull=True)
            .update(paused_at=now, updated_at=now)
        ):
            return False
        # The same moment in all of them tells later which ones this has paused.
        RenderJob.objects.filter(pk__in=ids).update(paused_at=now, updated_at=now)
    return True


def pause_late(batch: Batch) -> int:
    """Pause what was begun in the moment in which its batch was paused; return how many.

    A job that began before, and that a person let go on, is left alone.
    """
    if batch.paused_at is None:
        return 0
    late = _unfinished(batch.pk).filter(paused_at__isnull=True, created_at__gte=batch.paused_at)
    return update_jobs(late, paused_at=batch.paused_at, updated_at=leases.database_now())


def resume_batch(batch_id: uuid.UUID) -> bool:
    """Go on with a paused batch and with the jobs that its pause has paused."""
    with transaction.atomic():
        ids = lock_jobs(jobs_of(batch_id).filter(paused_at__isnull=False))
        batch = Batch.objects.select_for_update().filter(pk=batch_id).first()
        if batch is None or batch.paused_at is None:
            return False
        now = leases.database_now()
        RenderJob.objects.filter(pk__in=ids, paused_at=batch.paused_at).update(
            paused_at=None, updated_at=now
        )
        Batch.objects.filter(pk=batch_id).update(paused_at=None, updated_at=now)
        advance_on_commit(batch_id)
    return True


def cancel_book_batch(batch_id: uuid.UUID) -> bool:
    """Cancel a batch that has not ended: nothing more of it begins; its jobs are cancelled next."""
    return _note_moment(batch_id, "cancelled_at", paused_at=None)


def _note_moment(batch_id: uuid.UUID, column: str, **columns: Any) -> bool:
    """Set a moment of an open batch that is not set yet; False where it is, or the batch ended."""
    now = leases.database_now()
    rows = open_batch(batch_id).filter(**{f"{column}__isnull": True})
    noted = rows.update(updated_at=now, **{column: now}, **columns)
    advance_on_commit(batch_id)
    return bool(noted)


def cancel_jobs(batch_id: uuid.UUID) -> int:
    """Cancel the unfinished jobs of a batch, one transaction each; return how many."""
    left = _unfinished(batch_id).order_by("pk")
    return sum(cancel_job(pk) for pk in list(left.values_list("pk", flat=True)))


def reprioritise_batch(batch_id: uuid.UUID, name: str) -> None:
    """Give a batch, its books that are not started, and its unfinished jobs another priority."""
    value = PRIORITIES[name]
    with transaction.atomic():
        update_jobs(_unfinished(batch_id), priority=value, updated_at=leases.database_now())
        books = BookSource.objects.select_for_update(of=("self",)).filter(
            batch_entry__batch=batch_id, job__isnull=True
        )
        changed = []
        for book in books.order_by("pk").only("pk", "options"):
            book.options = {**book.options, "priority": name}
            changed.append(book)
        BookSource.objects.bulk_update(changed, ["options"], batch_size=500)
        batch = Batch.objects.select_for_update().get(pk=batch_id)
        Batch.objects.filter(pk=batch_id).update(
            priority=value,
            defaults={**batch.defaults, "priority": name},
            updated_at=leases.database_now(),
        )


def reopen_batch(batch_id: uuid.UUID) -> None:
    """Let a batch that has ended go on: something of it is tried again, and its end told again."""
    Batch.objects.filter(pk=batch_id).update(
        ended_at=None, cancelled_at=None, report={}, updated_at=leases.database_now()
    )
    advance_on_commit(batch_id)


def forget_failed_starts(batch_id: uuid.UUID) -> int:
    """Have books started again whose start was refused; return how many."""
    books = BookSource.objects.filter(
        batch_entry__batch=batch_id, job__isnull=True, state=BookSource.State.PLANNED
    ).exclude(error_code="")
    ids = list(books.exclude(started__has_key="chapters").values_list("pk", flat=True))
    return BookSource.objects.filter(pk__in=ids, job__isnull=True).update(
        error_code="", error_message="", updated_at=leases.database_now()
    )


def _unfinished(batch_id: uuid.UUID) -> QuerySet[RenderJob]:
    return jobs_of(batch_id).filter(status__in=UNFINISHED, cancel_requested=False)
