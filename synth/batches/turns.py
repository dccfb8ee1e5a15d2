"""Begin the samples and books of batches whose turn it is, and end the batches that are done.

Called by the sweep and by messages, anywhere and any number of times: rows decide.
"""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

from django.db import transaction
from django.db.models import QuerySet

from synth.audiobooks.casting import cast_book
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
from synth.batches.figures import correct_report, make_report, outdated_batches
from synth.batches.states import OPEN, count_states, jobs_of, number_at_work, to_sample, to_start
from synth.jobs.planning import Planner
from synth.models import ApiKey, Batch, BatchEntry, BookSource, RenderJob
from synth.transitions import book_batches as transitions
from synth.transitions.batches import end_batch
from synth.transitions.book_batches import begin_sample
from synth.transitions.files import note_failed_start
from ttsweb import leases

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
            transitions.advance_on_commit(batch_id)  # others of this worker's tasks come first
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
