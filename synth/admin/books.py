"""Manage books in the admin: files come in, plans are edited, progress is seen, files go out."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from synth.accounts.access import visible_books
from synth.admin.book_actions import BookActions
from synth.admin.book_cells import row_cell, voice_names, voices_of
from synth.admin.book_pages import BookPages, add_context, page_context
from synth.api.books.filters import status_condition
from synth.api.books.serializers import STATUSES, with_progress
from synth.models import BookSource
from ttsweb.pages.admin_filters import NamedValuesFilter


class BookChangeList(ChangeList):
    """A page of books whose progress and voices are looked up together."""

    def get_results(self, request: HttpRequest) -> None:
        """Find the page's books, and how far they are."""
        super().get_results(request)
        books = with_progress(list(self.result_list))
        names = voice_names(books)
        for book in books:
            book.voice_names = names  # type: ignore[attr-defined]  # as an annotation would be
        self.result_list = books


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


class BatchFilter(admin.SimpleListFilter):
    """Show the books of one batch; its page leads here."""

    title, parameter_name = "batch", "batch"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer books that are of no batch, and the batch that is chosen."""
        chosen = self.value()
        others = [(chosen, "of one batch")] if chosen and chosen != "none" else []
        return [("none", "of no batch"), *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the books of the batch that was chosen."""
        chosen = self.value()
        if chosen is None:
            return queryset
        if chosen == "none":
            return queryset.filter(batch_entry__isnull=True)
        try:
            return queryset.filter(batch_entry__batch=uuid.UUID(chosen))
        except ValueError:
            return queryset.none()


@admin.register(BookSource)
class BookAdmin(BookActions, BookPages, ModelAdmin):  # type: ignore[misc]  # theirs has no types
    """Books: a list that moves by itself, the upload, a page for each, its plan and its proof."""

    list_display = (
        "cover", "what", "badge", "progress", "voice", "owner", "created_at", "file",
    )  # fmt: skip
    list_display_links = ("what",)
    list_filter = (StateFilter, BatchFilter, ("language", NamedValuesFilter), "created_at")
    list_per_page = 50
    show_full_result_count = False
    search_fields = ("title", "filename", "owner__username")
    actions = (
        "start_chosen", "pause_chosen", "resume_chosen", "cancel_chosen", "retry_chosen",
        "make_interactive", "make_bulk",
    )  # fmt: skip
    change_form_outer_before_template = "synth/book_page.html"
    fieldsets = (
        ("File and request", {"fields": (
            ("filename", "size"), ("owner", "created_at"), ("asked", "rules"), ("id", "digest"),
        )}),
    )  # fmt: skip
    readonly_fields = (
        "filename", "size", "owner", "created_at", "asked", "rules", "id", "digest",
    )  # fmt: skip

    class Media:
        js = ("ttsweb/book_page.js", "ttsweb/book_files.js")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BookSource]:
        """Return the books that the user may see."""
        books = visible_books(request.user).select_related("job", "owner").defer("job__text")
        return books.prefetch_related("job__voices__version__voice")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that looks progress up for a whole page."""
        return BookChangeList

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

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody edit the row: what can be changed has pages of its own."""
        return False

    def has_control_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those plan, start, pause and cancel who may change books."""
        return bool(request.user.has_perm("synth.change_booksource"))

    def get_urls(self) -> list[Any]:
        """Add the pages of plan and proof, and what the page of a book asks for."""
        wrap = self.admin_site.admin_view
        return [
            path("<uuid:pk>/plan/", wrap(self.plan_page), name="synth_booksource_plan"),
            path("<uuid:pk>/proof/", wrap(self.proof_page), name="synth_booksource_proof"),
            path(
                "<uuid:pk>/chapters/<int:index>/", wrap(self.chapter_part),
                name="synth_booksource_chapter",
            ),
            *super().get_urls(),
        ]  # fmt: skip

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list under the name that people know."""
        shown: HttpResponse = super().changelist_view(
            request, {"title": "Books", **(extra_context or {})}
        )
        return shown

    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show where files are dropped; the page sends them to the API, one by one."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Add books",
            "opts": self.opts,
            "max_bytes": settings.MAX_BOOK_BYTES,
            **add_context(request),
        }
        return TemplateResponse(request, "synth/book_add.html", context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a book with all that is known of it."""
        book = self.get_object(request, object_id)
        context = {} if book is None else page_context(request, book, self)
        shown: HttpResponse = super().change_view(
            request, object_id, form_url, {**context, **(extra_context or {})}
        )
        return shown

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what the page lists before deleting."""
        names = [f"The book {book}, with its plan, its job and all files" for book in objs]
        allowed = self.has_delete_permission(request)
        return names, {"books": len(names)}, set() if allowed else {"book"}, []

    @admin.display(description="cover")
    def cover(self, book: BookSource) -> SafeString:
        """Return the cover, small."""
        return row_cell("book_row_cover", book)

    @admin.display(description="book", ordering="title")
    def what(self, book: BookSource) -> SafeString:
        """Return title and authors, or the name of the file."""
        return row_cell("book_row_title", book)

    @admin.display(description="state")
    def badge(self, book: BookSource) -> SafeString:
        """Return the state as a badge that changes by itself."""
        return row_cell("book_row_state", book)

    @admin.display(description="progress")
    def progress(self, book: BookSource) -> SafeString:
        """Return a bar that moves by itself, and in words how far the book is."""
        return row_cell("book_row_progress", book)

    @admin.display(description="voice")
    def voice(self, book: BookSource) -> str:
        """Return who reads it."""
        return voices_of(book)

    @admin.display(description="file")
    def file(self, book: BookSource) -> SafeString:
        """Return the link that saves the audiobook, once it is there."""
        return row_cell("book_row_file", book)

    @admin.display(description="size")
    def size(self, book: BookSource) -> str:
        """Return how large the file is."""
        return f"{book.size_bytes:,} bytes"

    @admin.display(description="sha256")
    def digest(self, book: BookSource) -> SafeString:
        """Return the digest of the file, in as many lines as it needs."""
        return format_html('<span class="tts-break">{}</span>', book.sha256)

    @admin.display(description="options")
    def asked(self, book: BookSource) -> str:
        """Return what was asked for."""
        return _told(book.options | book.production)

    @admin.display(description="rules")
    def rules(self, book: BookSource) -> str:
        """Return the rules of the plan that were chosen."""
        return _told(book.policies) if book.policies else "the usual ones"


_USUAL = (("speed", 1.0), ("seed", 0))


def _told(values: dict[str, Any]) -> str:
    """Return names and values in one line."""
    parts = []
    for name, value in values.items():
        if value in (None, False, "", [], {}) or (name, value) in _USUAL:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name.replace('_', ' ')}: {text}")
    return " · ".join(parts) or "-"
