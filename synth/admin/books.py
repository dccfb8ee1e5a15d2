"""Manage books in the admin: the list, and a page for each with its plan, proof and segments."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from synth.accounts.access import visible_books
from synth.admin.book_cells import (
    cell_context,
    chapter_rows,
    named_segments,
    plot_of,
    segment_rows,
    voice_names,
    voices_of,
)
from synth.admin.jobs import SEGMENTS_PER_PAGE, WorkAdmin, buttons, job_actions, live_cell
from synth.api.books.serializers import STATUSES, status_condition, status_of, with_progress
from synth.api.jobs.serializers import has_audio
from synth.audiobooks.changes import delete_book
from synth.audiobooks.files import FORMATS as FILE_FORMATS
from synth.audiobooks.files import PRESETS, TAKES
from synth.audiobooks.plans import METADATA_FIELDS, METADATA_LISTS, title_of
from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.books.rules import SkipReason
from synth.formats import BOOK_FORMATS
from synth.jobs.retry import may_retry
from synth.models import BookSource, Export, RenderJob
from synth.models.books import file_kinds
from ttsweb.pages.admin_base import BatchFilter, NamedValuesFilter, column, row_action
from ttsweb.refusals import SubmitRejectedError
from voices.access import offered_voices

_AGAIN = "Save or download the file again, then upload it again."
_SPLIT = "Split the book."
_ADVICE = {
    "book_drm": "Get a copy of the book without DRM and upload that.",
    "book_encrypted": "Save a copy without a password and upload that.",
    "book_format_unknown": "Upload EPUB, TXT, Markdown, HTML, DOCX, or PDF with text.",
    "book_not_epub": (
        "Rename the file so that its extension matches its format, then upload it again."
    ),
    "book_not_text": "Upload EPUB, TXT, Markdown, HTML, DOCX, or PDF with text.",
    "book_charset_unknown": "Save the text as UTF-8 and upload that.",
    "book_broken": _AGAIN,
    "book_package_broken": _AGAIN,
    "book_unreadable": _AGAIN,
    "book_empty": "Upload a file that has text.",
    "book_without_text": "Run OCR (text recognition) on it, or upload another format.",
    "pdf_without_text": "Run OCR (text recognition) on it, or upload another format.",
    "book_too_large": "Split the book into several files.",
    "book_archive_too_large": (
        "Check what else is packed into the file, and pack it again without that."
    ),
    "book_archive_unsafe": (
        "Check what else is packed into the file, and pack it again without that."
    ),
    "book_import_timeout": _SPLIT,
    "book_import_memory": _SPLIT,
    "book_incomplete": "Please report this file as a defect: reading it lost some of its text.",
    "book_unbalanced": "Look at the proof, and please report this book as a defect.",
    "book_segments_short": (
        "Listen to the segments that the proof lists. Render those that are wrong again, and "
        "approve the others."
    ),
    "segments_failed": "Look at the failed segments, then use Retry.",
    "voice_deleted": "Start the book with another voice.",
    "consent_withdrawn": "Start the book with another voice.",
    "voice_not_shared": "Start the book with another voice.",
    "voice_required": "Choose a voice and start the book.",
    "voice_not_found": "Choose another voice and start the book.",
    "options_invalid": "Upload the book again with other options.",
    "worker_lost": "Check that workers are running, then use Retry.",
    "storage_full": "Free some disk space; the book then continues by itself.",
}


def advice_for(code: str, *, is_started: bool) -> str:
    retry = "Use Retry to render the missing segments."
    usual = retry if is_started else "Delete it, or try again."
    return _ADVICE.get(code, usual) if code else ""


MOST_VOICES = 500
KIND_LABELS = dict(file_kinds())
# Which buttons a book has in which state.
BUTTONS = {
    "queued": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
    "partial": ("retry",),
    "failed": ("retry",),
    "cancelled": ("retry",),
}
_SCRIPTS = {"plan": ("plan_rows", "plan_facts", "plan_cast", "plan_editor")}


def voices_for(request: HttpRequest) -> list[dict[str, str]]:
    voices = offered_voices(request.user).order_by("name", "pk")
    rows = voices.values_list("pk", "name")[:MOST_VOICES]
    return [{"id": str(pk), "name": name} for pk, name in rows]


def _sound(book: BookSource) -> dict[str, Any]:
    job = book.job
    if job is None:
        return {"chapters": []}
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    is_heard = export is not None and has_audio(job)
    report = export.report if export is not None and is_heard else {}
    chapters = chapter_rows(job, report)
    return {
        "chapters": chapters,
        "file_seconds": f"{export.duration_seconds if export is not None else 0:.3f}",
        "marks": [
            [row["number"], float(row["start"]), float(row["start"]) + row["seconds"]]
            for row in chapters
            if row["start"]
        ],
        "report": report,
        "plot": plot_of(report),
        "peaks": export.peaks if export is not None and is_heard else None,
        "job_page": reverse("admin:synth_renderjob_change", args=[job.pk]),
        "review_page": f"{reverse('admin:synth_segment_changelist')}?book={book.pk}",
    }


def _files(book: BookSource) -> dict[str, Any]:
    kinds = [
        {"name": str(kind), "label": KIND_LABELS[kind], "takes": " ".join(takes),
         "formats": FILE_FORMATS.get(kind, ())}
        for kind, takes in TAKES.items()
    ]  # fmt: skip
    return {
        "kinds": kinds,
        "kind_labels": KIND_LABELS,
        "presets": PRESETS,
        "files_url": reverse("book-files", args=[book.pk]),
    }


_USUAL = (("speed", 1.0), ("seed", 0))


def in_words(values: dict[str, Any]) -> str:
    parts = []
    for name, value in values.items():
        if value in (None, False, "", [], {}) or (name, value) in _USUAL:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name.replace('_', ' ')}: {text}")
    return " · ".join(parts) or "-"


def find_job(book: BookSource) -> RenderJob:
    if book.job is None:
        raise SubmitRejectedError("book_not_started", "it was not started yet; start it first")
    return book.job


class StateFilter(admin.SimpleListFilter):
    """Show books in one state, as the list calls it."""

    title, parameter_name = "state", "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if chosen is None:
            return queryset
        is_known = chosen in STATUSES
        return queryset.filter(status_condition([chosen])) if is_known else queryset.none()


class OfBatchFilter(BatchFilter):
    """Show the books of one batch, or of none."""

    path, single, label = "batch_entry__batch", "none", "of no batch"


@admin.register(BookSource)
class BookAdmin(WorkAdmin):
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
    list_display = ("cover", "what", "badge", "progress", "voice", "owner", "created_at", "file")
    list_display_links = ("what",)
    list_filter = (StateFilter, OfBatchFilter, ("language", NamedValuesFilter), "created_at")
    search_fields = ("title", "filename", "owner__username")
    actions = (
        row_action("start_chosen", "Start", "started", start_book),
        *job_actions(
            "pause_chosen", "resume_chosen", "cancel_chosen", "retry_chosen", "make_interactive",
            "make_bulk", job_of=find_job,
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
        books = visible_books(user).select_related("job", "owner").defer("job__text")
        return books.prefetch_related("job__voices__version__voice")

    def look_up(self, rows: list[Any]) -> list[Any]:
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
        context = {
            "max_bytes": settings.MAX_BOOK_BYTES,
            "voices": voices_for(request),
            "formats": list(BOOK_FORMATS),
            "presets": PRESETS,
            "books_url": reverse("books"),
            "page_scripts": ("ttsweb/book_upload.js",),
            "batches_url": reverse("book-batches"),
            "accept": ".epub,.txt,.md,.markdown,.html,.htm,.xhtml,.docx,.pdf",
        }
        return self.render_page(request, "synth/book_add.html", "Add books", context)

    def page_context(self, request: HttpRequest, row: BookSource) -> dict[str, Any]:
        book = with_progress([row])[0]
        may_control = self.has_control_permission(request)
        cells = cell_context(book)
        is_planned = cells["status"] == "planned"
        names = [
            name
            for name in BUTTONS.get(status_of(book), ())
            if book.job is not None and (name != "retry" or may_retry(book.job))
        ]
        metadata = []
        for name in METADATA_FIELDS:  # what people say of the book
            value = book.metadata.get(name)
            is_list = name in METADATA_LISTS
            text = "\n".join(value) if is_list and value else value or ""
            label = name.replace("_", " ").capitalize()
            metadata.append({"name": name, "label": label, "value": text, "is_list": is_list})
        return {
            **cells,
            "may_control": may_control,
            "may_start": may_control and is_planned,
            "noun": self.noun,
            "buttons": buttons("book", book, names, "book") if may_control else [],
            "advice": advice_for(cells["error_code"], is_started=book.job_id is not None),
            "who": voices_of(book),
            "voices": voices_for(request) if is_planned else [],
            "metadata": metadata,
            **_sound(book),
            **_files(book),
        }

    def plan_page(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Show the editor of a plan; the page reads and saves it over the API."""
        book = self.find_row(request, pk)
        context = {
            "plan_url": reverse("book-plan", args=[book.pk]),
            "start_url": reverse("book-start", args=[book.pk]),
            "voices": voices_for(request),
            "narrator": voices_of(book),
            "may_edit": self.has_control_permission(request),
            "is_open": book.state == BookSource.State.PLANNED and book.job_id is None,
            "reasons": {str(reason): reason.sentence for reason in SkipReason},
        }
        return self._page(request, book, "plan", "Plan", context)

    def proof_page(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        book = self.find_row(request, pk)
        context: dict[str, Any] = {}
        if book.job_id is not None:
            proof = proof_of(book)
            known = {str(reason): reason.sentence for reason in SkipReason}
            skipped = sorted(proof["skipped"].items(), key=lambda item: -item[1])
            context = {
                "proof": proof,
                "skipped": [
                    {"label": name.replace("_", " "), "chars": n, "sentence": known.get(name, "")}
                    for name, n in skipped
                ],
                "named": named_segments(book.job_id, proof["short_segments"]),
                "json_url": reverse("book-proof", args=[book.pk]),
            }
        return self._page(request, book, "proof", "Proof", context)

    def chapter_part(self, request: HttpRequest, pk: uuid.UUID, index: int) -> HttpResponse:
        """Return the segments of a chapter, for the book's page to put in."""
        book = self.find_row(request, pk)
        if book.job_id is None:
            raise Http404
        rows = segment_rows(book.job_id, index)
        page = Paginator(rows, SEGMENTS_PER_PAGE).get_page(request.GET.get("page"))
        context = {"page": page, "job": book.job_id, "index": index}
        return TemplateResponse(request, "synth/book_segments.html", context)

    def _page(
        self, request: HttpRequest, book: BookSource, name: str, title: str, context: dict[str, Any]
    ) -> HttpResponse:
        more = {
            **cell_context(with_progress([book])[0]),
            "title_short": title_of(book)[:60],
            "original": book,
            "page_scripts": [f"ttsweb/{script}.js" for script in _SCRIPTS.get(name, ())],
        }
        template, heading = f"synth/book_{name}.html", f"{title} of {title_of(book)}"
        return self.render_page(request, template, heading, more | context)
