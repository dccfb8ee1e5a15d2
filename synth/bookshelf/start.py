"""Start planned books: the plan as it is becomes a job with chapters and segments."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from rest_framework import serializers

from synth.accounts.limits import KeyLimitError, check_job
from synth.api.books.options import order_of
from synth.books.cast import Casting
from synth.books.plan_cast import unknown_characters
from synth.books.plan_edits import PlanEditError
from synth.books.stored import StoredBookError
from synth.bookshelf.book_credits import credits_of
from synth.bookshelf.casting import CastBook, cast_book
from synth.bookshelf.plans import load_plan, script_of
from synth.bookshelf.script import Script
from synth.jobs.planning import Planner
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.submit import bind_job
from synth.models import ApiKey, BookSource, Chapter, JobVoice, RenderJob, Segment
from synth.options.voice_choice import note_use
from synth.transitions import enqueue_segments
from synth.transitions.books import begin_book, note_failed_start
from ttsweb.http.database_errors import DATABASE_AWAY
from voices.models import VoiceVersion

logger = logging.getLogger(__name__)

SEGMENTS_AT_ONCE = 1000
WAKING_SEGMENTS = 64  # messages for these wake the workers; their pumps find the rest
BOOKS_AT_ONCE = 20


class ChangedMeanwhileError(Exception):
    """The plan that the job was made of is no longer the book's."""


def start_book(
    book: BookSource, *, voice: str | None = None, api_key: ApiKey | None = None
) -> RenderJob:
    """Make the job of a planned book, with all its rows, in one transaction.

    Args:
        voice: id or name of the voice that reads it, in place of the one that it has.
        api_key: the key that asks for it, whose limits hold.

    Raises:
        SubmitRejectedError: book_not_planned, book_started, plan_changed, book_gone, and all of
            `read_script` and `cast_book`.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """
    check_startable(book)
    script = read_script(book)
    order, planner = order_of(book, voice=voice), Planner(book.owner)
    cast = cast_book(script, order, planner, book_credits=credits_of(book))
    bind_job(cast.job, api_key=api_key)
    try:
        # Of two that start it at once the second one ends before its many rows are written.
        return write_cast(cast, lambda: begin_book(book, cast.job, _started(cast, script)))
    except ChangedMeanwhileError:
        found = BookSource.objects.filter(pk=book.pk).first()
        if found is None:
            raise SubmitRejectedError(
                404, "book_not_found", "No book that you may see has this id."
            ) from None
        check_startable(found)
        raise SubmitRejectedError(
            409,
            "plan_changed",
            "Somebody changed the plan at the same time; look at the plan, then start the "
            "book again.",
        ) from None


def read_script(book: BookSource) -> Script:
    """Return what of a planned book is spoken, and by which roles.

    Raises:
        SubmitRejectedError: book_gone, book_text_lost, character_unknown, and those of
            `PlanEditError`.
    """
    casting = Casting.of(book.casting)
    try:
        plan = load_plan(book)
    except (FileNotFoundError, StoredBookError) as error:
        raise SubmitRejectedError(
            410, "book_gone", "The text of this book is no longer stored; upload the book again."
        ) from error
    except PlanEditError as error:  # another version of the program reads the book otherwise
        raise SubmitRejectedError(
            409,
            error.code,
            f"The edits of the plan no longer fit the book; send `reset` to remove them. {error}",
        ) from error
    if unknown := unknown_characters(plan, casting):
        raise character_unknown(unknown[0], 409)
    script = script_of(plan, casting)
    if not script.is_complete:
        raise SubmitRejectedError(
            500,
            "book_text_lost",
            "The book was not started: its plan does not account for every character of the "
            "text. Please report this as a defect.",
        )
    return script


def character_unknown(name: str, status: int) -> SubmitRejectedError:
    """Return the error for a casting that names somebody who says nothing in the book."""
    return SubmitRejectedError(
        status,
        "character_unknown",
        f"The casting has a voice for {name!r}, who does not speak in this book; the plan "
        "lists the characters who do.",
        attr=f"casting.characters.{name}",
    )


def check_startable(book: BookSource) -> None:
    """Refuse a book that is still being read, could not be read, or was started.

    Raises:
        SubmitRejectedError: book_not_planned, book_failed, book_started.
    """
    if book.state == BookSource.State.IMPORTING:
        raise SubmitRejectedError(
            409,
            "book_not_planned",
            "The book is still being read; wait until its status is `planned`.",
            retry_after=2,
        )
    if book.state == BookSource.State.FAILED:
        raise SubmitRejectedError(
            409, "book_failed", f"The book could not be read: {book.error_message}"
        )
    if book.job_id is not None:
        raise SubmitRejectedError(
            409, "book_started", f"The book was started already, as the job {book.job_id}."
        )


def start_wanted_books() -> int:
    """Start books that were to start by themselves, and that nobody started; return how many."""
    waiting = BookSource.objects.filter(
        start_wanted=True, state=BookSource.State.PLANNED, job__isnull=True, batch_entry=None
    )
    ids = list(waiting.order_by("created_at").values_list("pk", flat=True)[:BOOKS_AT_ONCE])
    return sum(start_wanted_book(book_id) for book_id in ids)


def start_wanted_book(book_id: uuid.UUID) -> bool:
    """Start a book if it was to start by itself; a refusal is kept in its row.

    A voice that is being encoded is waited for: the next sweep tries again.
    """
    book = BookSource.objects.select_related("owner", "api_key").filter(pk=book_id).first()
    if book is None or not book.start_wanted or book.job_id is not None:
        return False
    try:
        start_book(book, api_key=book.api_key)
    except SubmitRejectedError as error:
        if error.code in ("voice_not_ready", "book_started", "plan_changed", "book_not_planned"):
            return False
        note_failed_start(book, code=error.code, message=str(error))
        return False
    except KeyLimitError as error:
        if error.retry_after is None:
            note_failed_start(book, code=error.code, message=str(error))
        return False
    except serializers.ValidationError:
        note_failed_start(
            book,
            code="options_invalid",
            message="The options of this book are no longer valid; upload the book again.",
        )
        return False
    except DATABASE_AWAY:
        raise
    except Exception:
        # One book must not keep the sweep from all other work, round after round.
        logger.exception("cannot start a book")
        note_failed_start(
            book,
            code="unexpected_error",
            message="Starting the book failed unexpectedly; the server's log has the details.",
        )
        return False
    logger.info("book started")
    return True


@transaction.atomic
def write_cast(cast: CastBook, begin: Callable[[], bool]) -> RenderJob:
    """Write all rows of a book's job, some at a time.

    Args:
        begin: ties the job, once it is written, to its book; False where it must not begin.

    Raises:
        ChangedMeanwhileError: `begin` said no; nothing is kept.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """
    job = cast.job
    job.save(force_insert=True)
    if not begin():
        raise ChangedMeanwhileError
    if job.api_key is not None:
        check_job(job.api_key, job, chars=sum(one.text_chars for one in cast.chapters))
    for version in sorted(set(cast.versions.values()), key=lambda one: str(one.voice_id)):
        note_use(version, job.owner)
    voices, chapters, segments = cast.rows()
    JobVoice.objects.bulk_create(voices)
    Chapter.objects.bulk_create(chapters)
    waking: list[int] = []
    coming = iter(segments)
    while some := list(itertools.islice(coming, SEGMENTS_AT_ONCE)):
        written = Segment.objects.bulk_create(some)
        waking += [one.pk for one in written[: WAKING_SEGMENTS - len(waking)]]
    if all(one.status == VoiceVersion.Status.READY for one in cast.versions.values()):
        enqueue_segments(waking)
    return job


def _started(cast: CastBook, script: Script) -> Mapping[str, Any]:
    """Return what the proof of completeness needs of the plan."""
    return {
        "spine_chars": script.spine_chars,
        "skipped": dict(script.skipped),
        "chapters": [
            {
                "id": one.chapter.id,
                "title": one.chapter.title,
                "source_chars": one.chapter.source_chars,
                "text_chars": one.text_chars,
                "segments": len(one.pieces),
                "pauses": one.pause_kinds,
            }
            for one in cast.chapters
        ],
    }
