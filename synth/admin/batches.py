"""Manage batches in the admin: of texts, queued as JSONL, and of books, worst first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import AbstractBaseUser
from django.core.paginator import Paginator
from django.db.models import Case, IntegerField, Model, QuerySet, Value, When
from django.db.models.functions import Left
from django.http import HttpRequest
from django.urls import reverse
from unfold.admin import TabularInline
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminSelectWidget

from synth.accounts.access import visible_batches
from synth.admin.books import in_words
from synth.admin.jobs import (
    COLOURS,
    WorkAdmin,
    buttons,
    link_to,
    live_cell,
    state_context,
    text_start,
)
from synth.admin.jobs import cell_context as job_cell_context
from synth.api.batches.entries import entries_of_lines, listed_errors
from synth.api.batches.requests import REJECT, SKIP
from synth.api.batches.serializers import (
    BookBatchEntrySerializer,
    BookBatchSerializer,
    progress_of,
    with_figures,
)
from synth.api.batches.texts import (
    BatchOptions,
    BatchRejectedError,
    PlannedBatch,
    check_batch,
    write_batch,
)
from synth.batches import figures as of_books
from synth.batches import turns as acting
from synth.batches.turns import may_retry_texts
from synth.formats import FORMATS
from synth.jobs.eta import WITHOUT_ETA, hours
from synth.jobs.submit import Sender
from synth.models import Batch, BatchEntry, BookBatch, RenderJob, TextBatch
from synth.transitions.batches import WITH_AUDIO
from synth.transitions.book_batches import pause_batch, resume_batch, with_state
from ttsweb.pages.admin_base import RightsMixin, column, row_action
from ttsweb.refusals import SubmitRejectedError, counted
from voices.access import offered_voices
from voices.models import Voice

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _BatchForm = forms.ModelForm[TextBatch]
    _VoiceField = forms.ModelChoiceField[Voice]
else:
    _BatchForm = forms.ModelForm
    _VoiceField = forms.ModelChoiceField

SHOWN_ERRORS = 20


class BatchForm(_BatchForm):
    """A file, and what holds for items that do not say otherwise.

    `user` is set on the class by the page; `planned` and `options` are there once it is valid.
    """

    user: AbstractBaseUser
    planned: PlannedBatch
    options: BatchOptions

    file = forms.FileField(
        widget=UnfoldAdminFileFieldWidget,
        allow_empty_file=True,
        help_text=(
            'JSONL in UTF-8, with one item on each line, such as {"custom_id": "a", "text": '
            '"Hello."}.'
        ),
    )
    voice = _VoiceField(
        queryset=Voice.objects.none(),
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="Used for items that name no voice.",
    )
    format = forms.ChoiceField(
        choices=[(name, name) for name in FORMATS],
        widget=UnfoldAdminSelectWidget,
        help_text="Used for items that name no format.",
    )
    on_error = forms.ChoiceField(
        choices=[(REJECT, "queue nothing"), (SKIP, "queue the other lines")],
        widget=UnfoldAdminSelectWidget,
        label="If a line is invalid",
    )
    priority = forms.TypedChoiceField(
        choices=RenderJob.Priority.choices,
        initial=RenderJob.Priority.BULK,
        coerce=lambda value: RenderJob.Priority(int(value)),
        widget=UnfoldAdminSelectWidget,
    )

    class Meta:
        model = TextBatch
        fields = ("format", "priority")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["voice"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = offered_voices(self.user)
        field.empty_label = "As each item says"

    def clean(self) -> dict[str, Any]:
        cleaned = dict(super().clean() or {})
        if self.errors:
            return cleaned
        defaults = {"format": cleaned["format"]}
        if cleaned["voice"] is not None:
            defaults["voice"] = str(cleaned["voice"].pk)
        self.options = BatchOptions(priority=cleaned["priority"], defaults=defaults)
        try:
            cleaned["file"].seek(0)
            entries = entries_of_lines(cleaned["file"], max_items=settings.MAX_BATCH_ITEMS)
            skip_bad = cleaned["on_error"] == SKIP
            self.planned = check_batch(entries, self.options, owner=self.user, skip_bad=skip_bad)
        except SubmitRejectedError as error:
            self.add_error("file", forms.ValidationError(str(error), code=error.code))
        except BatchRejectedError as error:
            for shown in listed_errors(error.bad, Batch.Kind.TEXTS)[:SHOWN_ERRORS]:
                self.add_error("file", forms.ValidationError(shown["detail"], code=shown["code"]))
            summary = f"{len(error.bad)} of {counted(error.num_items, 'item')} cannot be rendered."
            self.add_error("file", forms.ValidationError(summary, code="batch_items_invalid"))
        return cleaned

    def _post_clean(self) -> None:
        """Build no row from the fields: a submission makes it."""


def _cell_context(batch: Any) -> dict[str, Any]:
    batch = batch if hasattr(batch, "figures") else with_figures([batch])[0]
    eta = batch.figures.eta_seconds
    words = [f"{batch.items_ended} of {counted(batch.items_total, 'item')} ended"]
    if batch.status == RenderJob.Status.RUNNING:
        if batch.cancel_requested:
            words.append("stopping")
        else:
            words.append(WITHOUT_ETA if eta is None else f"about {hours(eta)} left")
    counts = batch.figures.counts
    is_open = batch.ended_at is None
    return {
        **state_context(batch.status, progress_of(batch), words, is_open=is_open),
        "error_code": batch.error_code,
        "error_message": batch.error_message,
        "counts": " · ".join(f"{count} {name}" for name, count in counts.items() if count),
        "url": reverse("batch-results", args=[batch.pk]) if batch.status in WITH_AUDIO else "",
        "title": f"the zip of batch {str(batch.pk)[:8]}",
    }


class ItemInline(RightsMixin, TabularInline):
    """The items of a batch in their order, a page at a time; each leads to its job."""

    noun = "job"
    cell_context = staticmethod(job_cell_context)
    model = RenderJob
    fk_name = "batch"
    fields = ("number", "name", "start", "state", "audio", "error")
    readonly_fields = fields
    ordering = ("item_index",)
    verbose_name_plural = "items"
    can_delete = False
    max_num = 0
    per_page = 50  # a batch has thousands
    hide_title = True

    number = column("#", lambda item: item.item_index)
    name = column("custom id", lambda item: link_to("renderjob", item.pk, item.custom_id))
    start = column("text", lambda item: text_start(item.text_start))
    state = live_cell("state", "status")
    audio = live_cell("audio")
    error = live_cell("error")

    def get_queryset(self, request: HttpRequest) -> QuerySet[RenderJob]:
        items: QuerySet[RenderJob] = super().get_queryset(request)
        return items.annotate(text_start=Left("text", 80)).defer("text")


class _BatchAdmin(WorkAdmin):
    """The pages of one kind of batches."""

    kind: Batch.Kind
    with_figures: Callable[[list[Any]], list[Any]]  # counted once for all cells
    deletes = staticmethod(acting.delete)
    actions: tuple[Callable[..., None], ...] = (
        row_action("cancel_chosen", "Cancel", "cancelled", acting.cancel),
        row_action("retry_chosen", "Retry", "queued again", acting.retry),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        seen = visible_batches(request.user, self.kind).values("pk")
        return self.model._default_manager.filter(pk__in=seen).select_related("owner")

    def look_up(self, rows: list[Any]) -> list[Any]:
        return self.with_figures(rows)


@admin.register(TextBatch)
class BatchAdmin(_BatchAdmin):
    """Batches: a list with counts, a form that takes a JSONL file, cancel, retry and the zip."""

    noun = "batch"
    rights_of = RenderJob  # whoever may do something with jobs may do it with batches
    allowed = ("view", "add", "delete")
    deletion = "{row}, with all items ({row.items_total}) and all files"
    kind = Batch.Kind.TEXTS
    with_figures = staticmethod(with_figures)
    cell_context = staticmethod(_cell_context)
    form = BatchForm
    inlines = (ItemInline,)
    list_display = ("short_id", "state", "progress", "items", "owner", "created_at", "zip")
    list_filter = ("status", "priority", "created_at")
    search_fields = ("id", "owner__username")
    change_form_outer_before_template = "synth/batch_page.html"
    add_fieldsets = ((None, {"fields": ("file", "voice", "format", "on_error", "priority")}),)
    fieldsets = (
        ("Request", {"fields": (("priority", "owner"), ("webhook_url", "id"))}),
        ("Times", {"fields": (("created_at", "started_at"), ("ended_at", "expires_at"))}),
    )

    short_id = column("batch", lambda batch: str(batch.pk)[:8], "created_at")
    state = live_cell("state", "status", "status")
    progress = live_cell("bar", "progress")
    items = live_cell("counts", "items")
    zip = live_cell("file", "zip")

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> list[type[Any]]:
        return [ItemInline] if obj is not None else []

    def page_context(self, request: HttpRequest, row: TextBatch) -> dict[str, Any]:
        names = ["cancel"] if row.ended_at is None and not row.cancel_requested else []
        names += ["retry"] if may_retry_texts(row) else []
        kept = "Finished items keep their files"
        shown = buttons("batch", row, names, self.noun, "items", kept)
        return {
            **_cell_context(row),
            "noun": self.noun,
            "batch": row,
            "buttons": shown if self.has_control_permission(request) else [],
        }

    def save_model(self, request: HttpRequest, obj: TextBatch, form: Any, change: bool) -> None:
        sender = Sender(request.user)  # type: ignore[arg-type]  # logged in
        batch = write_batch(form.planned, form.options, sender)
        obj.pk = batch.pk
        obj.refresh_from_db()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save nothing: a batch has no rows that a person edits."""


ENTRIES_PER_PAGE = 50
# What asks for somebody comes first.
WORST_FIRST = (
    "failed", "partial", "deleted", "cancelled", "sampled", "missing", "paused", "running",
    "sampling", "queued", "waiting", "importing", "succeeded",
)  # fmt: skip


def _book_cells(batch: Any) -> dict[str, Any]:
    data: dict[str, Any] = BookBatchSerializer(batch).data
    progress = data["progress"]
    words = [
        f"{progress['books_ended']} of {counted(progress['books_total'], 'book')}",
        f"{hours(progress['audio_seconds'])} of about {hours(progress['expected_seconds'])}",
    ]
    if progress["real_time_factor"]:
        words.append(f"{progress['real_time_factor']:.1f}x real time")
    if progress["eta_seconds"] is not None:
        words.append(f"about {hours(progress['eta_seconds'])} left")
    counts = [(state, count) for state, count in data["counts"].items() if count]
    return {
        **state_context(data["status"], progress["share"], words, is_open=batch.ended_at is None),
        "data": data,
        "counts": " · ".join(f"{count:,} {state}" for state, count in counts),
    }


@admin.register(BookBatch)
class BookBatchAdmin(_BatchAdmin):
    """Batches of books: a list with progress, and a page that moves by itself."""

    noun = "book-batch"
    allowed = ("view", "delete")
    deletion = "{row}, with all its books, their jobs and all files"
    kind = Batch.Kind.BOOKS
    with_figures = staticmethod(of_books.with_figures)
    cell_context = staticmethod(_book_cells)
    list_title = "Book batches"
    list_display = ("what", "state", "progress", "books", "owner", "created_at")
    list_display_links = ("what",)
    list_filter = ("sample", "created_at")
    list_per_page = 25
    search_fields = ("id", "name", "owner__username")
    actions = (
        row_action("pause_chosen", "Pause", "paused", lambda one: pause_batch(one.pk)),
        row_action("resume_chosen", "Resume", "resumed", lambda one: resume_batch(one.pk)),
        *_BatchAdmin.actions,
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

    def page_context(self, request: HttpRequest, row: Batch) -> dict[str, Any]:
        cells = _book_cells(row)
        data = cells["data"]
        may_control = self.has_control_permission(request)
        whens = [When(state=state, then=Value(rank)) for rank, state in enumerate(WORST_FIRST)]
        rank = Case(*whens, default=Value(len(whens)), output_field=IntegerField())
        of_batch = with_state(BatchEntry.objects.filter(batch=row)).order_by(rank, "index")
        of_batch = of_batch.select_related("book__job", "book__sample_job")
        page = Paginator(of_batch, ENTRIES_PER_PAGE).get_page(request.GET.get("page"))
        entries = list(page.object_list)
        shown = BookBatchEntrySerializer(entries, many=True).data
        names = []
        if row.ended_at is not None:
            names = ["retry"]
        elif row.cancelled_at is None:
            names = ["approve"] if data["counts"]["sampled"] else []
            names += ["resume" if row.paused_at is not None else "pause", "cancel"]
            names += ["close"] if row.closed_at is None else []
        return {
            **cells,
            "noun": self.noun,
            "title": str(row),
            "entries": [_entry(*pair, data) for pair in zip(entries, shown, strict=True)],
            "page": page,
            "audio_length": hours((data["summary"] or {}).get("audio_seconds", 0.0)),
            "buttons": buttons("book-batch", row, names if may_control else (), "batch", "books"),
            "may_control": may_control,
            "books_page": f"{reverse('admin:synth_booksource_changelist')}?batch={row.pk}",
        }


def _entry(entry: Any, shown: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    plan, progress = shown["plan"] or {}, shown["progress"]
    words = []
    if progress is not None:
        total = counted(progress["chapters_total"], "chapter")
        words += [f"{progress['chapters_done']} of {total}", hours(progress["audio_seconds"])]
    elif plan:
        words.append(f"about {hours(plan['expected_seconds'])}")
    is_held = entry.state == "sampled" and data["status"] not in ("cancelled", "ended")
    share = progress["share"] if progress is not None else 0.0
    book = [entry.book_id]
    return shown | {
        "pk": entry.pk,
        "colour": COLOURS.get(entry.state, "pending"),
        "words": " · ".join(words),
        "share": f"{share:.3f}",
        "percent": round(100 * share),
        "approve_url": reverse("book-approve", args=book) if is_held else "",
        "page": reverse("admin:synth_booksource_change", args=book) if entry.book_id else "",
    }
