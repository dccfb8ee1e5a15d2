"""Start planned books: the plan and the options as they are become a job with segments."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from synth.accounts.limits import KeyLimitError
from synth.audiobooks.casting import CastBook, cast_book, credits_of
from synth.audiobooks.plans import Script, load_plan, script_of
from synth.books.book import StoredBookError
from synth.books.plan import Plan
from synth.books.plan_edits import PlanEditError
from synth.books.plan_text import unknown_characters
from synth.books.rules import Casting
from synth.jobs.options import COLUMNS
from synth.jobs.orders import Order
from synth.jobs.planning import Planner
from synth.jobs.submit import write_jobs
from synth.models import PRIORITIES, ApiKey, BookSource, RenderJob
from synth.transitions.files import begin_book, note_failed_start
from ttsweb.leases import DATABASE_AWAY
from ttsweb.refusals import SubmitRejectedError

logger = logging.getLogger(__name__)

BOOKS_AT_ONCE = 20
# What another try makes good by itself.
_LATER = ("voice_not_ready", "plan_changed", "book_not_planned")
_DONE = ("book_started", "book_not_found")
PLAN_UNFIT = "plan_unfit"  # what the plan says, and no request: another release may have made it


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
        SubmitRejectedError: book_not_planned, book_started, plan_changed, book_gone,
            options_invalid, and all of `read_script` and `cast_book`.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """
    check_startable(book)
    script = read_script(book)
    order, planner = order_of(book, voice=voice), Planner(book.owner)
    cast = cast_book(script, order, planner, book_credits=credits_of(book))
    try:
        # Of two that start it at once the second one ends before its many rows are written.
        return write_cast(
            cast,
            lambda: begin_book(book, cast.job, _plan_as_started(cast, script)),
            api_key=api_key,
        )
    except ChangedMeanwhileError:
        found = BookSource.objects.filter(pk=book.pk).first()
        if found is None:
            raise SubmitRejectedError(
                "book_not_found", "No book that you may see has this id."
            ) from None
        check_startable(found)
        raise SubmitRejectedError(
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
    casting, plan = Casting.of(book.casting), stored_plan(book)
    if unknown := unknown_characters(plan, casting):
        raise character_unknown(unknown[0], case=PLAN_UNFIT)
    script = script_of(plan, casting)
    if not script.is_complete:
        raise SubmitRejectedError(
            "book_text_lost",
            "The book was not started: its plan does not account for every character of the "
            "text. Please report this as a defect.",
        )
    return script


def stored_plan(book: BookSource) -> Plan:
    """Return the plan of a planned book as it stands.

    Raises:
        SubmitRejectedError: book_gone, and those of `PlanEditError`.
    """
    try:
        return load_plan(book)
    except (FileNotFoundError, StoredBookError) as error:
        raise book_gone() from error
    except PlanEditError as error:  # another version of the program reads the book otherwise
        raise SubmitRejectedError(
            error.code,
            f"The edits of the plan no longer fit the book; send `reset` to remove them. {error}",
            case=PLAN_UNFIT,
        ) from error


def book_gone() -> SubmitRejectedError:
    """Return the error for a book whose stored parts cannot be read any more."""
    return SubmitRejectedError(
        "book_gone", "The text of this book is no longer stored; upload the book again."
    )


def character_unknown(name: str, *, case: str = "") -> SubmitRejectedError:
    """Return the error for a casting that names somebody who says nothing in the book."""
    return SubmitRejectedError(
        "character_unknown",
        f"The casting has a voice for {name!r}, who does not speak in this book; the plan "
        "lists the characters who do.",
        attr=f"casting.characters.{name}",
        case=case,
    )


def check_startable(book: BookSource) -> None:
    """Refuse a book that is still being read, could not be read, or was started.

    Raises:
        SubmitRejectedError: book_not_planned, book_failed, book_started.
    """
    if book.state == BookSource.State.IMPORTING:
        raise SubmitRejectedError(
            "book_not_planned",
            "The book is still being read; wait until its status is `planned`.",
            retry_after=2,
        )
    if book.state == BookSource.State.FAILED:
        raise SubmitRejectedError(
            "book_failed", f"The book could not be read: {book.error_message}"
        )
    if book.job_id is not None:
        raise SubmitRejectedError(
            "book_started", f"The book was started already, as the job {book.job_id}."
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
    begun = try_to_start(lambda: start_book(book, api_key=book.api_key) is not None)
    if isinstance(begun, Refusal):
        if not begun.waits:
            note_failed_start(book, code=begun.code, message=begun.message)
        return False
    if begun:
        logger.info("book started")
    return begun


class Refusal(NamedTuple):
    """Say why a book was not started; `waits` where another try makes that good by itself."""

    code: str
    message: str
    waits: bool = False


def try_to_start(start: Callable[[], bool]) -> bool | Refusal:
    """Return what `start` returns, or why the book could not be started.

    False means that somebody was faster, or that the book is gone. Only a database that is away is
    an error: one book must not keep the sweep from all other work, round after round.
    """
    try:
        return start()
    except SubmitRejectedError as error:
        if error.code in _DONE:
            return False
        return Refusal(error.code, str(error), waits=error.code in _LATER)
    except KeyLimitError as error:
        return Refusal(error.code, str(error), waits=error.retry_after is not None)
    except DATABASE_AWAY:
        raise
    except Exception:
        logger.exception("cannot start a book")
        return Refusal(
            "unexpected_error",
            "Starting the book failed unexpectedly; the server's log has the details.",
        )


def write_cast(
    cast: CastBook, begin: Callable[[], bool], *, api_key: ApiKey | None = None
) -> RenderJob:
    """Write all rows of a book's job in one transaction.

    Args:
        begin: ties the job, once its row is written, to its book; False where it must not begin.
        api_key: the key that asks for it, whose limits hold.

    Raises:
        ChangedMeanwhileError: `begin` said no; nothing is kept.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """

    def check_begun() -> None:
        if not begin():
            raise ChangedMeanwhileError

    write_jobs([cast.planned()], api_key=api_key, on_begun=check_begun)
    return cast.job


def _plan_as_started(cast: CastBook, script: Script) -> Mapping[str, Any]:
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


def order_from(options: Mapping[str, Any]) -> Order:
    """Return the order that stored options make; a book's text is planned by chapters.

    Raises:
        SubmitRejectedError: options_invalid, another release has stored them.
    """
    found = {COLUMNS.get(name, name): value for name, value in options.items()}
    try:
        found["priority"] = PRIORITIES[found["priority"]]
        if "voices" in found:  # JSON has texts for keys
            found["voices"] = {int(speaker): voice for speaker, voice in found["voices"].items()}
        return Order(text="", **found)
    except (KeyError, TypeError) as error:
        raise SubmitRejectedError(
            "options_invalid",
            "The options of this book are no longer valid; upload the book again.",
        ) from error


def order_of(book: BookSource, *, voice: str | None = None) -> Order:
    """Return the order of a book's job; `voice` is the one of speaker 0 in place of the book's."""
    options = dict(book.options)
    if voice is not None and "voices" in options:
        options["voices"] = {**options["voices"], "0": voice}
    elif voice is not None:
        options["voice"] = voice
    return order_from(options)
