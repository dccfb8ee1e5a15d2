"""Manage batches of books in the admin: progress, worst books first, samples to approve."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Case, IntegerField, Model, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from synth.accounts.access import visible_book_batches
from synth.admin.book_cells import COLOURS
from synth.api.book_batches.serializers import (
    BookBatchEntrySerializer,
    BookBatchSerializer,
    with_entry_figures,
)
from synth.book_batches import acting
from synth.book_batches.figures import with_figures
from synth.book_batches.states import with_state
from synth.jobs.eta import hours
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.retry import RetryRefusedError
from synth.models import BookBatch, BookBatchEntry
from ttsweb.counted import counted

ENTRIES_PER_PAGE = 50
# What asks for somebody comes first.
WORST_FIRST = (
    "failed", "partial", "deleted", "cancelled", "sampled", "missing", "paused", "running",
    "sampling", "queued", "waiting", "importing", "succeeded",
)  # fmt: skip
_COLOURS = COLOURS | {
    "sampled": "encoding",
    "to_approve": "encoding",
    "sampling": "encoding",
    "deleted": "failed",
    "ended": "ready",
}


class BatchChangeList(ChangeList):
    """A page of batches whose figures are looked up together."""

    def get_results(self, request: HttpRequest) -> None:
        """Find the page's batches, and how far they are."""
        super().get_results(request)
        self.result_list = with_figures(list(self.result_list))


@admin.register(BookBatch)
class BookBatchAdmin(ModelAdmin):  # type: ignore[misc]  # theirs has no types
    """Batches of books: a list with progress, and a page that moves by itself."""

    list_display = ("what", "state", "progress", "books", "owner", "created_at")
    list_display_links = ("what",)
    list_filter = ("sample", "created_at")
    list_per_page = 25
    show_full_result_count = False
    search_fields = ("id", "name", "owner__username")
    actions = ("pause_chosen", "resume_chosen", "cancel_chosen", "retry_chosen")
    change_form_outer_before_template = "synth/book_batch.html"
    fieldsets = (
        (
            "Request",
            {"fields": (("owner", "created_at"), ("asked", "webhook_url"), ("sample", "id"))},
        ),
    )
    readonly_fields = ("owner", "created_at", "asked", "webhook_url", "sample", "id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BookBatch]:
        """Return the batches that the user may see."""
        return visible_book_batches(request.user).select_related("owner")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that looks figures up for a whole page."""
        return BatchChangeList

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Make batches where books are added."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody edit the row: a batch is paused, resumed, approved, cancelled or retried."""
        return False

    def has_control_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those pause, approve and cancel who may change batches."""
        return bool(request.user.has_perm("synth.change_bookbatch"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list under the name that people know."""
        shown: HttpResponse = super().changelist_view(
            request, {"title": "Book batches", **(extra_context or {})}
        )
        return shown

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a batch and its books, worst first."""
        batch = self.get_object(request, object_id)
        context = {} if batch is None else self._context(request, batch)
        shown: HttpResponse = super().change_view(
            request, object_id, form_url, {**context, **(extra_context or {})}
        )
        return shown

    def _context(self, request: HttpRequest, batch: BookBatch) -> dict[str, Any]:
        told = BookBatchSerializer(with_figures([batch])[0]).data
        may_control = self.has_control_permission(request)
        page = Paginator(_entries(batch), ENTRIES_PER_PAGE).get_page(request.GET.get("page"))
        entries = with_entry_figures(list(page.object_list))
        return {
            "title": str(batch),
            "told": told,
            "colour": _COLOURS.get(told["status"], "pending"),
            "words": " · ".join(_words(told)),
            "percent": round(100 * told["progress"]["share"]),
            "progress": f"{told['progress']['share']:.3f}",
            "counts": [(state, count) for state, count in told["counts"].items() if count],
            "entries": [_entry(entry, told) for entry in entries],
            "page": page,
            "audio_length": hours((told["summary"] or {}).get("audio_seconds", 0.0)),
            "buttons": _buttons(batch, told) if may_control else [],
            "may_control": may_control,
            "books_page": f"{reverse('admin:synth_booksource_changelist')}?batch={batch.pk}",
        }

    @admin.display(description="batch", ordering="created_at")
    def what(self, batch: BookBatch) -> str:
        """Return its name, or the beginning of its id."""
        return str(batch)

    @admin.display(description="state")
    def state(self, batch: BookBatch) -> SafeString:
        """Return what it does, as a badge."""
        return _badge(BookBatchSerializer().get_status(_figured(batch)))

    @admin.display(description="progress")
    def progress(self, batch: BookBatch) -> SafeString:
        """Return a bar, and in words how far it is."""
        told = BookBatchSerializer(_figured(batch)).data
        share = told["progress"]["share"]
        context = {"progress": f"{share:.3f}", "percent": round(100 * share)}
        bar = render_to_string("synth/progress.html", context)
        words = render_to_string("synth/quiet.html", {"text": " · ".join(_words(told))})
        return SafeString(f'<span class="tts-stack">{bar}{words}</span>')

    @admin.display(description="books")
    def books(self, batch: BookBatch) -> str:
        """Return how many books are in which state."""
        counts = _figured(batch).figures.states
        return " · ".join(f"{number} {state}" for state, number in counts.items() if number) or "-"

    @admin.display(description="defaults")
    def asked(self, batch: BookBatch) -> str:
        """Return what holds for books that do not say otherwise."""
        told = batch.defaults.items()
        return (
            " · ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in told) or "-"
        )

    @admin.action(description="Pause", permissions=["control"])
    def pause_chosen(self, request: HttpRequest, batches: QuerySet[BookBatch]) -> None:
        """Start nothing more of the chosen batches."""
        self._each(request, batches, acting.pause, "paused")

    @admin.action(description="Resume", permissions=["control"])
    def resume_chosen(self, request: HttpRequest, batches: QuerySet[BookBatch]) -> None:
        """Go on with the chosen batches."""
        self._each(request, batches, acting.resume, "resumed")

    @admin.action(description="Cancel", permissions=["control"])
    def cancel_chosen(self, request: HttpRequest, batches: QuerySet[BookBatch]) -> None:
        """Cancel what has not ended of the chosen batches."""
        self._each(request, batches, acting.cancel, "cancelled")

    @admin.action(description="Retry", permissions=["control"])
    def retry_chosen(self, request: HttpRequest, batches: QuerySet[BookBatch]) -> None:
        """Queue what failed or was cancelled of the chosen batches."""
        self._each(request, batches, acting.retry_batch, "queued again")

    def _each(
        self,
        request: HttpRequest,
        batches: QuerySet[BookBatch],
        work: Callable[[BookBatch], Any],
        done: str,
    ) -> None:
        changed = 0
        for batch in batches:
            try:
                work(batch)
                changed += 1
            except (SubmitRejectedError, RetryRefusedError) as error:
                self.message_user(request, f"{batch}: {error}", messages.WARNING)
        if changed:
            self.message_user(request, f"Batches {done}: {changed}.")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what the page lists before deleting."""
        names = [f"{batch}, with all its books, their jobs and all files" for batch in objs]
        allowed = self.has_delete_permission(request)
        return names, {"book batches": len(names)}, set() if allowed else {"book batch"}, []

    def delete_model(self, request: HttpRequest, obj: BookBatch) -> None:
        """Delete a batch, its books and all files."""
        acting.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[BookBatch]) -> None:
        """Delete the chosen batches, each in the same way."""
        for batch in queryset:
            acting.delete(batch)


def _entries(batch: BookBatch) -> QuerySet[BookBatchEntry]:
    """Return the entries of a batch, those that went wrong first."""
    whens = [When(state=state, then=Value(rank)) for rank, state in enumerate(WORST_FIRST)]
    entries = with_state(BookBatchEntry.objects.filter(batch=batch))
    rank = Case(*whens, default=Value(len(whens)), output_field=IntegerField())
    return entries.order_by(rank, "index").select_related("book__job", "book__sample_job")


def _entry(entry: Any, told: dict[str, Any]) -> dict[str, Any]:
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
    is_held = entry.state == "sampled" and told["status"] not in ("cancelled", "ended")
    share = progress["share"] if progress is not None else 0.0
    return shown | {
        "pk": entry.pk,
        "colour": _COLOURS.get(entry.state, "pending"),
        "words": " · ".join(words),
        "share": f"{share:.3f}",
        "percent": round(100 * share),
        "approve_url": reverse("book-approve", args=[entry.book_id]) if is_held else "",
        "page": reverse("admin:synth_booksource_change", args=[entry.book_id])
        if entry.book_id
        else "",
    }


def _words(told: dict[str, Any]) -> list[str]:
    progress = told["progress"]
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


def _buttons(batch: BookBatch, told: dict[str, Any]) -> list[dict[str, str]]:
    """Return what can be done with a batch now."""
    if batch.ended_at is not None:
        names = ["retry"]
    elif batch.cancelled_at is not None:
        names = []
    else:
        names = ["resume" if batch.paused_at is not None else "pause", "cancel"]
        if told["counts"]["sampled"]:
            names.insert(0, "approve")
        if batch.closed_at is None:
            names.append("close")
    return [{"name": name, "url": reverse(f"book-batch-{name}", args=[batch.pk])} for name in names]


def _figured(batch: Any) -> Any:
    return batch if hasattr(batch, "figures") else with_figures([batch])[0]


def _badge(status: str) -> SafeString:
    context = {"text": status.replace("_", " "), "colour": _COLOURS.get(status, "pending")}
    return SafeString(render_to_string("synth/badge.html", context))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
