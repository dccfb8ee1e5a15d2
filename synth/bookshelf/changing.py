"""Change the plan of a book that was not started yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from synth.api.books.cast_fields import check_voices
from synth.api.books.plan_serializers import MAX_EDITS
from synth.books.cast import Casting
from synth.books.plan import Plan
from synth.books.plan_cast import unknown_characters
from synth.books.plan_edits import PlanEditError
from synth.books.stored import StoredBookError
from synth.bookshelf.plans import figures_of, load_book, load_plan, plan_of
from synth.bookshelf.start import character_unknown, check_startable
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookSource
from synth.options.voice_choice import find_voice
from synth.transitions.books import change_plan


def read_plan(book: BookSource) -> Plan:
    """Return the plan of a book.

    Raises:
        SubmitRejectedError: book_not_planned, book_failed, book_gone.
    """
    if book.state != BookSource.State.PLANNED:
        check_startable(book)
    try:
        return load_plan(book)
    except PlanEditError as error:  # another version of the program reads the book otherwise
        raise SubmitRejectedError(
            409,
            error.code,
            f"The edits of the plan no longer fit the book; send `reset` to remove them. {error}",
        ) from error
    except (FileNotFoundError, StoredBookError) as error:
        raise book_gone() from error


def edit_plan(
    book: BookSource,
    edits: Sequence[Mapping[str, Any]],
    *,
    reset: bool = False,
    plan_number: int | None = None,
    casting: Mapping[str, Any] | None = None,
    opening_credits: str | None = None,
    closing_credits: str | None = None,
    user: AbstractBaseUser,
) -> Plan:
    """Apply edits after the earlier ones, or in place of them, and return the plan.

    Args:
        plan_number: of the plan that was looked at.
        casting: as `CastingField` returns it, in place of the one so far; None keeps that.
        opening_credits, closing_credits: templates; empty for none, None keeps what there is.
        user: whose voices may be named.

    Raises:
        SubmitRejectedError: book_not_planned, book_failed, book_started, book_gone, plan_changed,
            too_many_edits, voice_not_found, voice_ambiguous_name, and those of `PlanEditError`.
    """
    check_startable(book)
    if plan_number is not None and plan_number != book.plan_number:
        raise _changed()
    both = [*([] if reset else book.edits), *edits]
    if len(both) > MAX_EDITS:
        raise SubmitRejectedError(
            400,
            "too_many_edits",
            f"The plan would have {len(both)} edits, and at most {MAX_EDITS} are allowed. "
            "Send `reset` to start again without edits.",
            attr="edits",
        )
    try:
        source = load_book(book)
        plan = plan_of(source, book.policies, both)
    except PlanEditError as error:
        raise SubmitRejectedError(400, error.code, error.message, attr="edits") from error
    except (FileNotFoundError, StoredBookError) as error:
        raise book_gone() from error
    for edit in edits:
        if edit["edit"] == "voice" and edit["voice"]:
            try:
                find_voice(user, edit["voice"])
            except SubmitRejectedError as error:
                raise error.at("edits") from error
    if casting is not None:
        check_voices(user, casting)
        if unknown := unknown_characters(plan, Casting.of(casting)):
            raise character_unknown(unknown[0], 400)
    credits_given = {"opening_credits": opening_credits, "closing_credits": closing_credits}
    production = {**book.production, **{k: v for k, v in credits_given.items() if v is not None}}
    changed = change_plan(
        book,
        edits=both,
        figures=figures_of(plan),
        casting=book.casting if casting is None else casting,
        production={name: value for name, value in production.items() if value},
    )
    if not changed:
        found = BookSource.objects.filter(pk=book.pk).first()
        if found is not None:
            check_startable(found)
        raise _changed()
    return plan


def book_gone() -> SubmitRejectedError:
    """Return the error for a book whose stored parts cannot be read any more."""
    return SubmitRejectedError(
        410, "book_gone", "The text of this book is no longer stored; upload the book again."
    )


def _changed() -> SubmitRejectedError:
    return SubmitRejectedError(
        409,
        "plan_changed",
        "Somebody else changed the plan meanwhile; get the plan again, then repeat your change.",
    )
