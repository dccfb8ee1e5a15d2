"""Manage batches of books in the admin: progress, worst books first, samples to approve."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Case, IntegerField, QuerySet, Value, When
from django.http import HttpRequest
from django.urls import reverse

from synth.accounts.access import visible_batches
from synth.admin.books import in_words
from synth.admin.cells import COLOURS, WorkAdmin, buttons, live_cell, state_context
from synth.api.book_batches.serializers import (
    BookBatchEntrySerializer,
    BookBatchSerializer,
    with_entry_figures,
)
from synth.batches import actions as acting
from synth.batches.figures import with_figures
from synth.batches.states import with_state
from synth.jobs.eta import hours
from synth.models import Batch, BatchEntry, BookBatch
from ttsweb.counted import counted
from ttsweb.pages.admin_base import column, row_action

ENTRIES_PER_PAGE = 50
# What asks for somebody comes first.
WORST_FIRST = (
    "failed", "partial", "deleted", "cancelled", "sampled", "missing", "paused", "running",
    "sampling", "queued", "waiting", "importing", "succeeded",
)  # fmt: skip


def _cell_context(batch: Any) -> dict[str, Any]:
    """Return what the cells of a batch and the state on its page show."""
    shown = BookBatchSerializer(batch if hasattr(batch, "figures") else with_figures([batch])[0])
    data: dict[str, Any] = shown.data
    counts = [(state, count) for state, count in data["counts"].items() if count]
    return {
        **state_context(
            data["status"], data["progress"]["share"], _words(data), is_open=batch.ended_at is None
        ),
        "data": data,
        "counts": " · ".join(f"{count:,} {state}" for state, count in counts),
    }


@admin.register(BookBatch)
class BookBatchAdmin(WorkAdmin):
    """Batches of books: a list with progress, and a page that moves by itself."""

    noun = "book-batch"
    allowed = ("view", "delete")
    deletion = "{row}, with all its books, their jobs and all files"
    deletes = staticmethod(acting.delete)
    cell_context = staticmethod(_cell_context)
    list_title = "Book batches"
    list_display = ("what", "state", "progress", "books", "owner", "created_at")
    list_display_links = ("what",)
    list_filter = ("sample", "created_at")
    list_per_page = 25
    search_fields = ("id", "name", "owner__username")
    actions = (
        row_action("pause_chosen", "Pause", "paused", acting.pause),
        row_action("resume_chosen", "Resume", "resumed", acting.resume),
        row_action("cancel_chosen", "Cancel", "cancelled", acting.cancel),
        row_action("retry_chosen", "Retry", "queued again", acting.retry),
    )
    change_form_outer_before_template = "synth/book_batch.html"
    fieldsets = (
        ("Request", {"fields": (
            ("owner", "created_at"), ("asked", "webhook_url"), ("sample", "id"),
        )}),
    )  # fmt: skip

    what = column("batch", str, "created_at")
    state = live_cell("state")
    progress = live_cell("progress")
    books = live_cell("counts", "books")
    asked = column("defaults", lambda batch: in_words(batch.defaults))

    @staticmethod
    def visible(user: Any) -> QuerySet[BookBatch]:
        """Return the batches that the user may see."""
        seen = visible_batches(user, Batch.Kind.BOOKS).values("pk")
        return BookBatch.objects.filter(pk__in=seen).select_related("owner")

    def look_up(self, rows: list[Any]) -> list[Any]:
        """Return batches with their figures."""
        return with_figures(rows)

    def page_context(self, request: HttpRequest, row: Batch) -> dict[str, Any]:
        """Return how far a batch is, what can be done, and its books, worst first."""
        cells = _cell_context(row)
        data = cells["data"]
        may_control = self.has_control_permission(request)
        page = Paginator(_entries(row), ENTRIES_PER_PAGE).get_page(request.GET.get("page"))
        entries = with_entry_figures(list(page.object_list))
        names = _buttons(row, data) if may_control else []
        return {
            **cells,
            "noun": self.noun,
            "title": str(row),
            "entries": [_entry(entry, data) for entry in entries],
            "page": page,
            "audio_length": hours((data["summary"] or {}).get("audio_seconds", 0.0)),
            "buttons": buttons("book-batch", row, names, "batch", "books"),
            "may_control": may_control,
            "books_page": f"{reverse('admin:synth_booksource_changelist')}?batch={row.pk}",
        }


def _entries(batch: Batch) -> QuerySet[BatchEntry]:
    """Return the entries of a batch, those that went wrong first."""
    whens = [When(state=state, then=Value(rank)) for rank, state in enumerate(WORST_FIRST)]
    entries = with_state(BatchEntry.objects.filter(batch=batch))
    rank = Case(*whens, default=Value(len(whens)), output_field=IntegerField())
    return entries.order_by(rank, "index").select_related("book__job", "book__sample_job")


def _entry(entry: Any, data: dict[str, Any]) -> dict[str, Any]:
    shown = dict(BookBatchEntrySerializer(entry).data)
    plan, progress = shown["plan"] or {}, shown["progress"]
    words = []
    if progress is not None:
        words.append(
            f"{progress['chapters_done']} of {counted(progress['chapters_total'], 'chapter')}"
        )
        words.append(hours(progress["audio_seconds"]))
    elif plan:
        words.append(f"about {hours(plan['expected_seconds'])}")
    is_held = entry.state == "sampled" and data["status"] not in ("cancelled", "ended")
    share = progress["share"] if progress is not None else 0.0
    return shown | {
        "pk": entry.pk,
        "colour": COLOURS.get(entry.state, "pending"),
        "words": " · ".join(words),
        "share": f"{share:.3f}",
        "percent": round(100 * share),
        "approve_url": reverse("book-approve", args=[entry.book_id]) if is_held else "",
        "page": reverse("admin:synth_booksource_change", args=[entry.book_id])
        if entry.book_id
        else "",
    }


def _words(data: dict[str, Any]) -> list[str]:
    progress = data["progress"]
    spoken, expected = hours(progress["audio_seconds"]), hours(progress["expected_seconds"])
    words = [
        f"{progress['books_ended']} of {counted(progress['books_total'], 'book')}",
        f"{spoken} of about {expected}",
    ]
    if progress["real_time_factor"]:
        words.append(f"{progress['real_time_factor']:.1f}x real time")
    if progress["eta_seconds"] is not None:
        words.append(f"about {hours(progress['eta_seconds'])} left")
    return words


def _buttons(batch: Batch, data: dict[str, Any]) -> list[str]:
    """Return what can be done with a batch now."""
    if batch.ended_at is not None:
        return ["retry"]
    if batch.cancelled_at is not None:
        return []
    return [
        *(["approve"] if data["counts"]["sampled"] else []),
        "resume" if batch.paused_at is not None else "pause",
        "cancel",
        *(["close"] if batch.closed_at is None else []),
    ]
