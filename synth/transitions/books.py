"""Move books: finish and fail their import; change a plan; begin its job."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from synth.models import BookSource, RenderJob
from synth.transitions.jobs import UNFINISHED
from ttsweb import leases
from ttsweb.leases import Claim

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
    """Keep why a book that was to start by itself did not; it stays planned."""
    noted = (
        _open_plan(book)
        .filter(start_wanted=True)
        .update(
            start_wanted=False,
            error_code=code,
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
