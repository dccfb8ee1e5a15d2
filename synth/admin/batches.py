"""Manage batches in the admin: a JSONL file is queued, items are seen, the zip is fetched."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import action, display

from synth.accounts.access import visible_batches
from synth.admin.batch_form import BatchForm
from synth.admin.job_cells import BADGES, row_cell
from synth.api.batches.serializers import eta_of, progress_of, with_figures
from synth.batches.retry import may_retry, retry
from synth.batches.submit import write_batch
from synth.jobs.eta import WITHOUT_ETA, hours
from synth.jobs.removal import delete_job
from synth.jobs.retry import RetryRefusedError
from synth.models import BatchJob, RenderJob
from synth.transitions import UNFINISHED, cancel_batch
from synth.transitions.batches import WITH_AUDIO
from ttsweb.counted import counted


class BatchItemsFilter(admin.SimpleListFilter):
    """Leave the items of batches out of the list of jobs, unless one batch is asked for."""

    title, parameter_name = "batch", "batch"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer the items of all batches; a batch's page leads to its own."""
        chosen = self.value()
        return [("all", "with items of batches"), *([(chosen, "of one batch")] if chosen else [])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs that are to be listed."""
        chosen = self.value()
        if chosen == "all":
            return queryset
        if chosen is None:
            return queryset.filter(batch__isnull=True)
        try:
            batch_id = uuid.UUID(chosen)
        except ValueError:
            return queryset.none()
        return queryset.filter(batch=batch_id)


class ItemInline(TabularInline):
    """The items of a batch in their order, a page at a time; each leads to its job."""

    model = RenderJob
    fk_name = "batch"
    fields = ("number", "name", "said", "state", "audio", "error")
    readonly_fields = fields
    ordering = ("item_index",)
    verbose_name_plural = "items"
    can_delete = False
    max_num = 0
    per_page = 50  # a batch has thousands
    hide_title = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[RenderJob]:
        """Return the items with the beginnings of their texts."""
        items: QuerySet[RenderJob] = super().get_queryset(request)
        return items.annotate(text_start=Left("text", 80)).defer("text")

    @display(description="#")
    def number(self, item: RenderJob) -> int | None:
        """Return the place in the batch, from 0 as the API has it."""
        return item.item_index

    @display(description="custom id")
    def name(self, item: RenderJob) -> SafeString:
        """Return the item's name, which leads to its job."""
        url = reverse("admin:synth_renderjob_change", args=[item.pk])
        return format_html('<a href="{}" class="tts-link">{}</a>', url, item.custom_id)

    @display(description="text")
    def said(self, item: Any) -> str:
        """Return the beginning of the text."""
        start: str = item.text_start
        return f"{start[:60].rstrip()}…" if len(start) > 60 else start

    @display(description="status")
    def state(self, item: RenderJob) -> SafeString:
        """Return the status as a badge that changes by itself."""
        return row_cell("row_state", item)

    @display(description="audio")
    def audio(self, item: RenderJob) -> SafeString:
        """Return a button that plays the item's audio."""
        return row_cell("row_audio", item)

    @display(description="error")
    def error(self, item: RenderJob) -> SafeString:
        """Return code and sentence of what went wrong."""
        return row_cell("row_error", item)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the jobs."""
        return bool(request.user.has_perm("synth.view_renderjob"))

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody."""
        return False

    has_change_permission = has_delete_permission = has_add_permission


@admin.register(BatchJob)
class BatchAdmin(ModelAdmin):
    """Batches: a list with counts, a form that takes a JSONL file, cancel, retry and the zip.

    Whoever may do something with jobs may do it with batches.
    """

    form = BatchForm
    inlines = (ItemInline,)
    list_display = ("short_id", "state", "progress", "items", "owner", "created_at", "zip")
    list_filter = ("status", "priority", "created_at")
    list_per_page = 50
    show_full_result_count = False
    search_fields = ("id", "owner__username")
    actions = ("cancel_chosen", "retry_chosen")
    change_form_outer_before_template = "synth/batch_page.html"
    fieldsets = (
        ("Request", {"fields": (("priority", "owner"), ("webhook_url", "id"))}),
        ("Times", {"fields": (("created_at", "started_at"), ("finished_at", "expires_at"))}),
    )
    readonly_fields = (
        "priority", "owner", "webhook_url", "id", "created_at", "started_at", "finished_at",
        "expires_at",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the batches that the user may see."""
        seen = visible_batches(request.user).values("pk")
        return BatchJob.objects.filter(pk__in=seen).select_related("owner")

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form of a new batch for this user."""
        return type("BatchForm", (BatchForm,), {"user": request.user})

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Return what a new batch is asked for, or what is known of one."""
        if obj is not None:
            return self.fieldsets
        return ((None, {"fields": ("file", "voice", "format", "on_error", "priority")}),)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Let nothing be changed once a batch is there."""
        return self.readonly_fields if obj is not None else ()

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> list[type[Any]]:
        """Show items once there are any."""
        return [ItemInline] if obj is not None else []

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the jobs."""
        return bool(request.user.has_perm("synth.view_renderjob"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Follow the jobs."""
        return bool(request.user.has_perm("synth.add_renderjob"))

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody edit a batch: it is cancelled, retried or deleted."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the jobs."""
        return bool(request.user.has_perm("synth.delete_renderjob"))

    def has_control_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those cancel and retry who may change jobs."""
        return bool(request.user.has_perm("synth.change_renderjob"))

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Show the page to those who may see jobs."""
        return self.has_view_permission(request)

    @display(description="batch", ordering="created_at")
    def short_id(self, batch: BatchJob) -> str:
        """Return the beginning of the id."""
        return str(batch.pk)[:8]

    @display(description="status", ordering="status")
    def state(self, batch: BatchJob) -> SafeString:
        """Return the status as a badge that changes by itself."""
        return _cell(batch, "badge")

    @display(description="progress")
    def progress(self, batch: BatchJob) -> SafeString:
        """Return a bar that moves by itself."""
        return _cell(batch, "bar")

    @display(description="items")
    def items(self, batch: BatchJob) -> SafeString:
        """Return how many items are in which state."""
        return _cell(batch, "counts")

    @display(description="zip")
    def zip(self, batch: BatchJob) -> SafeString:
        """Return the link that saves the zip."""
        return _cell(batch, "zip")

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a batch: how far it is, what can be done, its zip and its items."""
        batch = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if batch is not None:
            may_control = self.has_control_permission(request)
            is_open = batch.status in UNFINISHED
            context = _cell_context(batch) | {
                "may_cancel": may_control and is_open and not batch.cancel_requested,
                "may_retry": may_control and may_retry(batch),
            }
        shown: HttpResponse = super().change_view(
            request, object_id, form_url, {**context, **(extra_context or {})}
        )
        return shown

    def save_model(self, request: HttpRequest, obj: BatchJob, form: Any, change: bool) -> None:
        """Queue the file's items as the API would."""
        batch = write_batch(form.planned, form.options, owner=request.user)  # type: ignore[arg-type]  # logged in
        obj.pk = batch.pk
        obj.refresh_from_db()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save nothing: a batch has no rows that a person edits."""

    @action(description="Cancel", permissions=["control"])
    def cancel_chosen(self, request: HttpRequest, batches: QuerySet[BatchJob]) -> None:
        """Cancel the chosen batches that have not ended."""
        cancelled = sum(cancel_batch(batch.pk) for batch in batches)
        self.message_user(request, f"Batches cancelled: {cancelled}.")

    @action(description="Retry", permissions=["control"])
    def retry_chosen(self, request: HttpRequest, batches: QuerySet[BatchJob]) -> None:
        """Queue what the chosen batches did not finish; say why where that is not possible."""
        queued = 0
        for batch in batches:
            try:
                retry(batch)
                queued += 1
            except RetryRefusedError as error:
                self.message_user(request, f"{str(batch.pk)[:8]}: {error}", messages.WARNING)
        if queued:
            self.message_user(request, f"Batches queued again: {queued}.")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what the page lists before deleting."""
        names = [
            f"{str(one).capitalize()}, with {counted(one.items_total, 'item')} and all files"
            for one in objs
        ]
        allowed = self.has_delete_permission(request)
        return names, {"batches": len(names)}, set() if allowed else {"batch"}, []

    def delete_model(self, request: HttpRequest, obj: BatchJob) -> None:
        """Delete a batch, its items and all files."""
        delete_job(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[BatchJob]) -> None:
        """Delete the chosen batches, each in the same way."""
        for batch in queryset:
            delete_job(batch)


def _figured(batch: Any) -> Any:
    """Return a batch with its figures, which are counted once for all cells of its row."""
    return batch if hasattr(batch, "figures") else with_figures([batch])[0]


def _cell(batch: BatchJob, part: str) -> SafeString:
    """Return a cell that keeps itself up to date."""
    context = _cell_context(batch) | {"part": part}
    return SafeString(render_to_string("synth/batch_cell.html", context).strip())


def _cell_context(batch: BatchJob) -> dict[str, Any]:
    """Return what the templates of the cells and of the batch's page need."""
    batch = _figured(batch)
    progress, eta = progress_of(batch), eta_of(batch)
    counts: dict[str, int] = batch.figures.counts  # type: ignore[attr-defined]  # see `_figured`
    words = [f"{batch.items_ended} of {counted(batch.items_total, 'item')} ended"]
    if batch.status == RenderJob.Status.RUNNING:
        if batch.cancel_requested:
            words.append("stopping")
        else:
            words.append(WITHOUT_ETA if eta is None else f"about {hours(eta)} left")
    has_zip = batch.status in WITH_AUDIO
    return {
        "batch": batch,
        "colour": BADGES.get(batch.status, "pending"),
        "is_open": batch.status in UNFINISHED,
        "words": " · ".join(words),
        "counts": " · ".join(f"{count} {name}" for name, count in counts.items() if count),
        "url": reverse("batch-results", args=[batch.pk]) if has_zip else "",
        "progress": f"{progress:.3f}",
        "percent": round(100 * progress),
    }
