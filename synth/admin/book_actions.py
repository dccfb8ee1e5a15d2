"""Do with chosen books in the admin what their jobs allow: start, pause, cancel, reprioritise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from rest_framework import serializers

from synth.accounts.limits import KeyLimitError
from synth.bookshelf.start import start_book
from synth.bookshelf.uploads import delete_book
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.retry import RetryRefusedError, retry
from synth.models import BookSource, RenderJob
from synth.transitions import cancel_job, pause_job, resume_job
from synth.transitions.changes import ChangeRefusedError, change_job
from ttsweb.counted import counted

_REFUSALS = (
    SubmitRejectedError,
    KeyLimitError,
    RetryRefusedError,
    ChangeRefusedError,
    serializers.ValidationError,
)
_MOST_TOLD = 10
_NOT_STARTED = "it was not started yet; start it first"


class BookActions:
    """Actions of the list of books; each says how many books it changed, and why not the others."""

    message_user: Callable[..., None]

    @admin.action(description="Start", permissions=["control"])
    def start_chosen(self, request: HttpRequest, books: QuerySet[BookSource]) -> None:
        """Start the chosen books that are planned, as their plans stand."""
        self._each(request, books, _start, "started")

    @admin.action(description="Pause", permissions=["control"])
    def pause_chosen(self, request: HttpRequest, books: QuerySet[BookSource]) -> None:
        """Start no more segments of the chosen books."""
        self._each(request, books, _with_job(lambda job: pause_job(job.pk)), "paused")

    @admin.action(description="Resume", permissions=["control"])
    def resume_chosen(self, request: HttpRequest, books: QuerySet[BookSource]) -> None:
        """Go on with the chosen books."""
        self._each(request, books, _with_job(lambda job: resume_job(job.pk)), "resumed")

    @admin.action(description="Cancel", permissions=["control"])
    def cancel_chosen(self, request: HttpRequest, books: QuerySet[BookSource]) -> None:
        """Cancel the jobs of the chosen books; what is rendered is kept."""
        self._each(request, books, _with_job(lambda job: cancel_job(job.pk)), "cancelled")

    @admin.action(description="Retry", permissions=["control"])
    def retry_chosen(self, request: HttpRequest, books: QuerySet[BookSource]) -> None:
        """Queue what the chosen books did not finish."""
        self._each(request, books, _with_job(_retry), "queued again")

    @admin.action(description="Set interactive priority", permissions=["control"])
    def make_interactive(self, request: HttpRequest, books: QuerySet[BookSource]) -> None:
        """Give the chosen books the interactive class."""
        work = _with_job(_priority(RenderJob.Priority.INTERACTIVE))
        self._each(request, books, work, "moved to interactive priority")

    @admin.action(description="Set bulk priority", permissions=["control"])
    def make_bulk(self, request: HttpRequest, books: QuerySet[BookSource]) -> None:
        """Give the chosen books the bulk class."""
        self._each(
            request, books, _with_job(_priority(RenderJob.Priority.BULK)), "moved to bulk priority"
        )

    def delete_model(self, request: HttpRequest, obj: BookSource) -> None:
        """Delete a book, its job and all files."""
        delete_book(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[BookSource]) -> None:
        """Delete the chosen books, each in the same way."""
        for book in queryset:
            delete_book(book)

    def _each(
        self,
        request: HttpRequest,
        books: Iterable[BookSource],
        work: Callable[[BookSource], bool],
        done: str,
    ) -> None:
        """Do something with each book, and tell of those where it was refused."""
        changed, same, refused = 0, 0, []
        for book in books:
            try:
                if work(book):
                    changed += 1
                else:
                    same += 1
            except _REFUSALS as error:
                refused.append(f"{book}: {_sentence(error)}")
        if changed:
            self.message_user(request, f"{_books(changed)} {done}.")
        if same:
            self.message_user(
                request,
                f"{_books(same)} did not need a change.",
                messages.WARNING,
            )
        for text in refused[:_MOST_TOLD]:
            self.message_user(request, text, messages.WARNING)
        if len(refused) > _MOST_TOLD:
            more = f"{len(refused) - _MOST_TOLD} more books were refused."
            self.message_user(request, more, messages.WARNING)


def _start(book: BookSource) -> bool:
    start_book(book)
    return True


def _retry(job: RenderJob) -> bool:
    retry(job)
    return True


def _priority(priority: RenderJob.Priority) -> Callable[[RenderJob], bool]:
    return lambda job: change_job(job.pk, {"priority": priority})


def _with_job(work: Callable[[RenderJob], bool]) -> Callable[[BookSource], bool]:
    """Return what does something with the job of a book, and refuses a book that has none."""

    def of_book(book: BookSource) -> bool:
        if book.job is None:
            raise SubmitRejectedError(409, "book_not_started", _NOT_STARTED)
        return work(book.job)

    return of_book


def _sentence(error: Any) -> str:
    if isinstance(error, serializers.ValidationError):
        return "its options are no longer valid; upload it again"
    return str(error)


def _books(number: int) -> str:
    return f"{counted(number, 'book')}:"
