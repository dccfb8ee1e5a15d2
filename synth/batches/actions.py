"""Change batches of texts and of books on request: cancel, retry, delete; approve samples."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Q, Sum
from django.db.models.functions import Length

from synth.accounts.limits import KeyLimitError, check_job
from synth.audiobooks.uploads import delete_book
from synth.batches.figures import kept_of
from synth.batches.states import SAMPLED, with_state
from synth.jobs.removal import ITEMS_AT_ONCE, delete_jobs, drop_exports
from synth.jobs.retry import RetryRefusedError
from synth.jobs.retry import retry as retry_job
from synth.models import ApiKey, Batch, BatchEntry, BookSource, Export, RenderJob, Segment
from synth.transitions import book_batches as transitions
from synth.transitions.batches import WITH_AUDIO, retryable_items
from synth.transitions.batches import cancel_batch as cancel_texts
from synth.transitions.batches import retry_batch as reopen_texts
from synth.transitions.jobs import RETRYABLE, UNFINISHED
from ttsweb import leases
from ttsweb.refusals import SubmitRejectedError


def cancel(batch: Batch) -> None:
    """Cancel a batch and what of it has not ended; what is rendered is kept."""
    if batch.kind == Batch.Kind.TEXTS:
        cancel_texts(batch.pk)
    elif transitions.cancel_book_batch(batch.pk):
        transitions.cancel_jobs(batch.pk)


def approve(batch: Batch, book_ids: Sequence[uuid.UUID] | None = None) -> None:
    """Approve samples, so that the rest of their books is rendered.

    Raises:
        SubmitRejectedError: book_batch_without_hold, book_not_in_batch, sample_not_ready.
    """
    if batch.sample != Batch.Sample.HOLD:
        raise SubmitRejectedError(
            "book_batch_without_hold",
            "The batch does not wait for approval: its `sample` is not `hold`.",
        )
    if book_ids is None:
        transitions.approve_batch(batch.pk)
        return
    entries = BatchEntry.objects.filter(batch=batch, book__in=list(book_ids))
    states = dict(with_state(entries).values_list("book", "state"))
    others = [one for one in book_ids if one not in states]
    if others:
        raise SubmitRejectedError(
            "book_not_in_batch", f"This batch has no book with the id {others[0]}.", attr="books"
        )
    early = [one for one in book_ids if states[one] in ("importing", "waiting", "sampling")]
    if early:
        raise SubmitRejectedError(
            "sample_not_ready",
            f"The sample of the book {early[0]} is not rendered yet; listen to it first, "
            "then approve it.",
            attr="books",
            retry_after=5,
        )
    held = [one for one in book_ids if states[one] == SAMPLED]
    transitions.approve_books(batch.pk, held)


def retry(batch: Batch, *, api_key: ApiKey | None = None) -> int:
    """Queue what of a batch failed or was cancelled once more; return of how many items or books.

    Args:
        api_key: the key that asks for it; the jobs count towards its limits from now on.

    Raises:
        KeyLimitError: the key would have too much in the queue; books queued before stay.
        RetryRefusedError: batch_not_ended, voice_deleted, nothing_to_retry; of books, why the
            first of them cannot be.
    """
    is_of_texts = batch.kind == Batch.Kind.TEXTS
    return (_retry_texts if is_of_texts else _retry_books)(batch, api_key)


def delete(batch: Batch) -> None:
    """Delete a batch in any state, with its items or books, their jobs and all files.

    Some at a time, with bounded memory; broken off, the same call goes on: the batch goes last.
    """
    if batch.kind == Batch.Kind.TEXTS:
        now = leases.database_now()
        Batch.objects.filter(pk=batch.pk).update(cancelled_at=now, updated_at=now)
        items = RenderJob.objects.filter(batch=batch.pk).order_by("item_index")
        while chunk := list(items.values_list("pk", flat=True)[:ITEMS_AT_ONCE]):
            delete_jobs(chunk)
    else:
        transitions.cancel_book_batch(batch.pk)
        books = BookSource.objects.filter(batch_entry__batch=batch).order_by("pk")
        for book_id in list(books.values_list("pk", flat=True)):
            for book in BookSource.objects.filter(pk=book_id):  # unless it is gone meanwhile
                delete_book(book)
    with transaction.atomic():
        drop_exports(Export.objects.filter(batch=batch.pk))
        Batch.objects.filter(pk=batch.pk).delete()


def _retry_books(batch: Batch, api_key: ApiKey | None) -> int:
    count = transitions.forget_failed_starts(batch.pk)
    refused: RetryRefusedError | None = None
    jobs = RenderJob.objects.filter(book__batch_entry__batch=batch, status__in=RETRYABLE)
    try:
        for job in jobs.defer("text").order_by("book__batch_entry__index"):
            try:
                retry_job(job, api_key=api_key)
                count += 1
            except RetryRefusedError as error:
                refused = refused or error
    except KeyLimitError:
        if not count:
            raise
    if batch.cancelled_at is not None:  # those that were never started begin by themselves
        entries = BatchEntry.objects.filter(batch=batch, book__job__isnull=True)
        count += with_state(entries).filter(state="cancelled").count()
    if count:
        with transaction.atomic():
            found = Batch.objects.select_for_update().filter(pk=batch.pk).first()
            if found is not None:
                transitions.reopen_batch(batch.pk)
                Batch.objects.filter(pk=batch.pk).update(report=kept_of(found.report))
        return count
    raise refused or RetryRefusedError(
        "nothing_to_retry",
        "There is nothing to retry: the books of this batch that failed would fail again.",
    )


def _retry_texts(batch: Batch, api_key: ApiKey | None) -> int:
    """Queue the items again that failed, are whole only in part, or were cancelled.

    Where nothing of them can be done again but the zip is missing, that is made.
    """
    if batch.status in UNFINISHED:
        raise RetryRefusedError(
            "batch_not_ended", "The batch is still running; cancel it before you retry it."
        )
    items = retryable_items(batch.pk)
    count = items.count()
    if not count and not _is_zip_missing(batch):
        raise _refusal(batch)
    with transaction.atomic():
        if api_key is not None and count:
            unspoken = Segment.objects.filter(job__in=items.values("pk"))
            unspoken = unspoken.exclude(status=Segment.Status.DONE)
            chars = unspoken.aggregate(chars=Sum(Length("text")))["chars"] or 0
            check_job(api_key, Q(batch=batch.pk), chars=chars, jobs=count)
            items.update(api_key=api_key)
        return reopen_texts(batch.pk)


def may_retry_texts(batch: Batch) -> bool:
    """Say whether a retry of a batch would be taken."""
    if batch.status in UNFINISHED:
        return False
    return retryable_items(batch.pk).exists() or _is_zip_missing(batch)


def _is_zip_missing(batch: Batch) -> bool:
    """Say whether there should be a zip, and is none."""
    if not batch.items.filter(status__in=WITH_AUDIO).exists():
        return False
    done = Export.objects.filter(batch=batch, status=Export.Status.DONE).first()
    return done is None or not default_storage.exists(done.key)


def _refusal(batch: Batch) -> RetryRefusedError:
    left = batch.items.exclude(status=RenderJob.Status.SUCCEEDED).filter(segments_total__gt=0)
    if left.exists():
        return RetryRefusedError(
            "voice_deleted",
            "The voices of the incomplete items were deleted or could not be encoded. "
            "Submit their texts in a new batch with another voice.",
        )
    return RetryRefusedError(
        "nothing_to_retry",
        "There is nothing to retry: every item whose text can be spoken is complete.",
    )
