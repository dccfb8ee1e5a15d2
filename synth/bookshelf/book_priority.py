"""Move a book to another class of priority, before its start and after it."""

from __future__ import annotations

from synth.models import PRIORITIES, BookSource
from synth.transitions.books import change_options
from synth.transitions.changes import change_job


def set_priority(book: BookSource, priority: str) -> None:
    """Give a book, or the job that it has, a class of priority by its name.

    Raises:
        ChangeRefusedError: job_ended.
    """
    job_id = book.job_id
    if job_id is None and not change_options(book.pk, lambda one: one | {"priority": priority}):
        job_id = BookSource.objects.filter(pk=book.pk).values_list("job_id", flat=True).first()
    if job_id is not None:
        change_job(job_id, {"priority": PRIORITIES[priority]})
