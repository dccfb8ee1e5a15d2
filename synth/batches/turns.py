"""Go on with batches: begin what has its turn, end those that are done, do what is asked for.

What is asked for is to cancel, retry, delete or approve. The rest is called by the sweep and by
messages, anywhere and any number of times: rows decide.
"""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Length

from synth.accounts.limits import KeyLimitError, check_job
from synth.audiobooks.casting import cast_book
from synth.audiobooks.changes import delete_book
from synth.audiobooks.start import (
    ChangedMeanwhileError,
    Refusal,
    check_startable,
    order_of,
    read_script,
    start_book,
    try_to_start,
    write_cast,
)
from synth.batches.figures import correct_report, kept_of, make_report, outdated_batches
from synth.jobs.planning import Planner
from synth.jobs.removal import ITEMS_AT_ONCE, delete_jobs, drop_exports
from synth.jobs.retry import RetryRefusedError
from synth.jobs.retry import retry as retry_job
from synth.models import ApiKey, Batch, BatchEntry, BookSource, Export, RenderJob, Segment
from synth.transitions import book_batches as transitions
from synth.transitions.batches import WITH_AUDIO, advance_on_commit, end_batch, retryable_items
from synth.transitions.batches import cancel_batch as cancel_texts
from synth.transitions.batches import retry_batch as reopen_texts
from synth.transitions.book_batches import (
    OPEN,
    SAMPLED,
    begin_sample,
    count_states,
    jobs_of,
    number_at_work,
    to_sample,
    to_start,
    with_state,
)
from synth.transitions.files import note_failed_start
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


logger = logging.getLogger(__name__)

# Books of one batch that are rendered at the same time: enough to fill the workers, and few enough
# that finished books come one after the other.
BATCH_BOOKS_AT_WORK = 16

SAMPLE_FORMAT = "mp3"  # every browser plays it, and it has no place for chapters
# What is shorter is a dedication, an epigraph or credits, which say little of a voice.
LEAST_CHARS = 400


def start_sample(book: BookSource, *, api_key: ApiKey | None = None) -> RenderJob | None:
    """Make the job of a planned book's sample; None where somebody was faster or changed the plan.

    Raises:
        SubmitRejectedError: as `start_book` raises them: the book could not be started either.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """
    check_startable(book)
    script = read_script(book)
    # The file is a sample alone: what the book's own needs of rates and messages is not asked for.
    order = replace(
        order_of(book), format=SAMPLE_FORMAT, bit_rate=None, sample_rate=None, webhook_url=""
    )
    # The first chapter with enough text; where none has, the longest one.
    enough = [one for one in script.chapters if one.source_chars >= LEAST_CHARS]
    chapter = enough[0] if enough else max(script.chapters, key=lambda one: one.source_chars)
    cast = cast_book(replace(script, chapters=(chapter,)), order, Planner(book.owner))
    sampled = {"id": chapter.id, "title": chapter.title, "source_chars": chapter.source_chars}
    try:
        return write_cast(cast, lambda: begin_sample(book, cast.job, sampled), api_key=api_key)
    except ChangedMeanwhileError:
        return None


BATCHES_AT_ONCE = 20  # of one sweep
CORRECTED_DAYS = 7  # after its end a batch's summary is looked at without a message
STARTS_AT_ONCE = 4  # of one call: a long book takes a second or two to be cut
ROOM = "key_limit_stored_bytes"  # somebody can make some


def advance_batches() -> int:
    """Go on with batches that have not ended, the longest unseen first; return how many."""
    ids = _books().filter(ended_at__isnull=True).order_by("created_at")
    count = 0
    for batch_id in list(ids.values_list("pk", flat=True)):
        count += advance_batch(batch_id)
        if count >= BATCHES_AT_ONCE:
            break
    # Where a message was lost, summaries of batches that ended lately are corrected here.
    since = leases.database_now() - dt.timedelta(days=CORRECTED_DAYS)
    lately = _books().filter(ended_at__gte=since).order_by()
    return count + sum(correct_report(batch_id) for batch_id in outdated_batches(lately))


def advance_batch(batch_id: uuid.UUID) -> bool:
    """Begin what of a batch has its turn, or end it; return whether anything was done.

    Of one that has ended the summary follows books that were tried or rendered again by themselves.
    """
    batch = _books().filter(pk=batch_id, ended_at__isnull=True).first()
    if batch is None:
        return correct_report(batch_id)
    if batch.cancelled_at is not None:
        transitions.cancel_jobs(batch_id)
    elif batch.paused_at is not None:
        return bool(transitions.pause_late(batch))
    elif begun := _begin(batch):
        if begun >= STARTS_AT_ONCE:
            advance_on_commit(batch_id)  # others of this worker's tasks come first
        return True
    return _end_if_done(batch)


def _begin(batch: Batch) -> int:
    """Begin samples, then whole books, as far as there is room; return how many."""
    room = BATCH_BOOKS_AT_WORK - number_at_work(batch)
    most = min(room, STARTS_AT_ONCE)
    count = 0
    for entries, start in ((to_sample(batch), start_sample), (to_start(batch), start_book)):
        if count >= most:
            break
        # More than there is room for: some may have to wait, and others need not wait for them.
        for entry in entries[: most + BATCH_BOOKS_AT_WORK]:
            count += _try(entry, start)
            if count >= most:
                break
    return count


def _try(entry: BatchEntry, start: Callable[..., RenderJob | None]) -> bool:
    """Start a book or its sample; what it has to wait for, or why it cannot, is kept in its row."""
    book = entry.book
    if book is None:
        return False
    begun = try_to_start(lambda: start(book, api_key=book.api_key) is not None)
    if not isinstance(begun, Refusal):
        transitions.note_waiting(entry)
        return begun
    if begun.waits or begun.code == ROOM:
        transitions.note_waiting(entry, code=begun.code, message=begun.message)
    else:
        note_failed_start(book, code=begun.code, message=begun.message)
    return False


def _end_if_done(batch: Batch) -> bool:
    """End a batch of which nothing is open any more and to which nothing can come."""
    if batch.closed_at is None and batch.cancelled_at is None:
        return False
    counts = count_states([batch.pk])[batch.pk]
    if any(counts[state] for state in OPEN):
        return False
    if batch.cancelled_at and jobs_of(batch.pk).filter(finished_at__isnull=True).exists():
        return False  # what is being rendered stops within a frame or two
    since, report = leases.database_now(), make_report(batch)
    with transaction.atomic():
        ended = end_batch(batch.pk, report=report)
        correct_report(batch.pk, since=since)  # what was approved while it was summed up
    if ended:
        logger.info("batch of books has ended: books=%d", sum(counts.values()))
    return ended


def _books() -> QuerySet[Batch]:
    return Batch.objects.filter(kind=Batch.Kind.BOOKS)
