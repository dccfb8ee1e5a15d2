"""Manage books in the admin: files come in, plans are edited, progress is seen, files go out."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from synth.accounts.access import visible_books
from synth.admin.book_cells import cell_context, voice_names, voices_of
from synth.admin.book_pages import BookPages, add_context, page_context
from synth.admin.cells import job_actions, live_cell
from synth.api.books.filters import status_condition
from synth.api.books.serializers import STATUSES, with_progress
from synth.audiobooks.start import start_book
from synth.audiobooks.uploads import delete_book
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookSource, RenderJob
from ttsweb.pages.admin_base import BatchFilter, NamedValuesFilter, column, row_action

_USUAL = (("speed", 1.0), ("seed", 0))


def in_words(values: dict[str, Any]) -> str:
    """Return names and values in one line."""
    parts = []
    for name, value in values.items():
        if value in (None, False, "", [], {}) or (name, value) in _USUAL:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name.replace('_', ' ')}: {text}")
    return " · ".join(parts) or "-"


def _job_of(book: BookSource) -> RenderJob:
    if book.job is None:
        sentence = "it was not started yet; start it first"
        raise SubmitRejectedError("book_not_started", sentence)
    return book.job


class StateFilter(admin.SimpleListFilter):
    """Show books in one state, as the list calls it."""

    title, parameter_name = "state", "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer all states."""
        return [(name, name) for name in STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the books in the state that was chosen."""
        chosen = self.value()
        if chosen is None:
            return queryset
        if chosen not in STATUSES:
            return queryset.none()
        return queryset.filter(status_condition([chosen]))


class OfBatchFilter(BatchFilter):
    """Show the books of one batch, or of none."""

    path, single, label = "batch_entry__batch", "none", "of no batch"


@admin.register(BookSource)
class BookAdmin(BookPages):
    """Books: a list that moves by itself, the upload, a page for each, its plan and its proof."""

    noun = "book"
    allowed = ("view", "add", "delete")
    deletion = "The book {row}, with its plan, its job and all files"
    deletes = staticmethod(delete_book)
    cell_context = staticmethod(cell_context)
    pages = (
        ("plan", "plan/", "plan_page"),
        ("proof", "proof/", "proof_page"),
        ("chapter", "chapters/<int:index>/", "chapter_part"),
    )
    list_title = "Books"
    list_display = (
        "cover", "what", "badge", "progress", "voice", "owner", "created_at", "file",
    )  # fmt: skip
    list_display_links = ("what",)
    list_filter = (StateFilter, OfBatchFilter, ("language", NamedValuesFilter), "created_at")
    search_fields = ("title", "filename", "owner__username")
    actions = (
        row_action("start_chosen", "Start", "started", start_book),
        *job_actions(
            "pause_chosen", "resume_chosen", "cancel_chosen", "retry_chosen", "make_interactive",
            "make_bulk", job_of=_job_of,
        ),
    )  # fmt: skip
    change_form_outer_before_template = "synth/book_page.html"
    fieldsets = (
        ("File and request", {"fields": (
            ("filename", "size"), ("owner", "created_at"), ("asked", "rules"), ("id", "digest"),
        )}),
    )  # fmt: skip

    cover = live_cell("cover")
    what = live_cell("title", "book", "title")
    badge = live_cell("state")
    progress = live_cell("progress")
    file = live_cell("file")
    voice = column("voice", voices_of)
    size = column("size", lambda book: f"{book.size_bytes:,} bytes")
    digest = column(
        "sha256", lambda book: format_html('<span class="tts-break">{}</span>', book.sha256)
    )
    asked = column("options", lambda book: in_words(book.options | book.production))
    rules = column(
        "rules", lambda book: in_words(book.policies) if book.policies else "the usual ones"
    )

    class Media:
        js = ("ttsweb/book_page.js", "ttsweb/book_files.js")

    @staticmethod
    def visible(user: Any) -> QuerySet[BookSource]:
        """Return the books that the user may see."""
        books = visible_books(user).select_related("job", "owner").defer("job__text")
        return books.prefetch_related("job__voices__version__voice")

    def look_up(self, rows: list[Any]) -> list[Any]:
        """Return books that know how far they are, and the names of their voices."""
        books = with_progress(rows)
        names = voice_names(books)
        for book in books:
            book.voice_names = names  # type: ignore[attr-defined]  # as an annotation would be
        return books

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search the authors, too; one database keeps their letters escaped."""
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if search_term:
            escaped = json.dumps(search_term)[1:-1]
            of_authors = Q(authors__icontains=search_term) | Q(authors__icontains=escaped)
            found = queryset.filter(Q(pk__in=found.order_by().values("pk")) | of_authors)
        return found, may_repeat

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show where files are dropped; the page sends them to the API, one by one."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        context = {"max_bytes": settings.MAX_BOOK_BYTES, **add_context(request)}
        return self.render_page(request, "synth/book_add.html", "Add books", context)

    def page_context(self, request: HttpRequest, row: BookSource) -> dict[str, Any]:
        """Return all that is known of a book."""
        return page_context(request, row, self)
