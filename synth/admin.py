"""Manage jobs in the admin: texts are queued, progress is seen, audio is played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import F, Model, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm

from synth.access import visible_jobs
from synth.admin_forms import JobForm
from synth.admin_inlines import SegmentInline
from synth.batch_admin import BatchAdmin, BatchItemsFilter
from synth.book_admin import BookAdmin
from synth.book_batch_admin import BookBatchAdmin
from synth.job_cells import (
    BADGES,
    bar_of,
    file_cell,
    options_of,
    real_time_factor,
    row_cell,
)
from synth.lexicon_admin import LexiconAdmin
from synth.models import RenderJob
from synth.removal import delete_job
from synth.retry import RetryRefusedError, retry
from synth.review_admin import ReviewAdmin
from synth.submit import submit_job
from synth.transitions import cancel_job
from synth.transitions.changes import ChangeRefusedError, change_job
from synth.webhook_admin import WebhookDeliveryAdmin, WebhookEndpointAdmin, WebhookSecretAdmin
from synth.worker_admin import WorkerStatusAdmin

# Django looks for them here.
__all__ = [
    "BatchAdmin",
    "BookAdmin",
    "BookBatchAdmin",
    "LexiconAdmin",
    "RenderJobAdmin",
    "ReviewAdmin",
    "WebhookDeliveryAdmin",
    "WebhookEndpointAdmin",
    "WebhookSecretAdmin",
    "WorkerStatusAdmin",
]


@admin.register(RenderJob)
class RenderJobAdmin(ModelAdmin):
    """Jobs: a list with progress and players, a form that queues a text, cancel and retry."""

    form = JobForm
    list_display = (
        "short_id",
        "said",
        "state",
        "progress",
        "voice",
        "owner",
        "created_at",
        "audio",
    )
    list_display_links = ("short_id", "said")
    list_filter = ("status", "priority", BatchItemsFilter, "format", "created_at")
    list_per_page = 50
    show_full_result_count = False
    search_fields = ("id", "voices__version__voice__name", "owner__username")
    actions = ("cancel_chosen", "retry_chosen", "make_interactive", "make_bulk")
    actions_detail = ("cancel_this", "retry_this")
    readonly_fields = (
        "id", "state_of", "file", "text", "voice", "format", "priority", "owner", "sampling",
        "options", "created_at", "started_at", "finished_at", "length", "takes", "speed_of_work",
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": ("state_of", "file", "text")}),
        (
            "Request",
            {"fields": (("voice", "format", "priority"), "options", ("sampling", "owner"), "id")},
        ),
        (
            "Times",
            {
                "fields": (
                    ("created_at", "started_at"),
                    ("finished_at", "length"),
                    ("takes", "speed_of_work"),
                )
            },
        ),
    )

    class Media:
        js = tuple(f"ttsweb/{name}.js" for name in ("waveform", "job_list", "segments"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[RenderJob]:
        """Return the jobs that the user may see; their texts are long and read on demand."""
        jobs = visible_jobs(request.user).select_related("owner").defer("text")
        jobs = jobs.annotate(text_start=Left("text", 80), book_title=F("book__title"))
        jobs = jobs.annotate(sample_title=F("sampled_book__title"))
        return jobs.prefetch_related("voices__version__voice")

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form of a new job for this user."""
        return type("JobForm", (JobForm,), {"user": request.user})

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Return what a new job is asked for, or what is known of one."""
        if obj is not None:
            return self.fieldsets
        return (
            (None, {"fields": ("text", "voice", "format")}),
            ("Options", {"fields": JobForm.OPTIONS, "classes": ("collapse",)}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Let nothing be changed once a job is there."""
        return self.readonly_fields if obj is not None else ()

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> list[type[Any]]:
        """Show segments once there are any."""
        return [SegmentInline] if obj is not None else []

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody edit a job: it is cancelled, retried or deleted."""
        return False

    def has_control_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those cancel and retry who may change jobs."""
        return bool(request.user.has_perm("synth.change_renderjob"))

    @display(description="job", ordering="created_at")
    def short_id(self, job: RenderJob) -> str:
        """Return the beginning of the id."""
        return str(job.pk)[:8]

    @display(description="text")
    def said(self, job: Any) -> str:
        """Return the beginning of the text, or which book it is, or is a sample of."""
        start: str = job.text_start or job.book_title or f"Sample of {job.sample_title or 'a book'}"
        return f"{start[:60].rstrip()}…" if len(start) > 60 else start

    @display(description="status", ordering="status")
    def state(self, job: RenderJob) -> SafeString:
        """Return the status as a badge that changes by itself."""
        return row_cell("row_state", job)

    @display(description="progress")
    def progress(self, job: RenderJob) -> SafeString:
        """Return a bar that moves by itself, and in words how far the job is."""
        return row_cell("row_progress", job)

    @display(description="voice")
    def voice(self, job: RenderJob) -> str:
        """Return the names of the voices, or that a clip came with the job."""
        names = [pinned.version.voice for pinned in job.voices.all()]
        return ", ".join(voice.name if voice else "own clip" for voice in names)

    @display(description="audio")
    def audio(self, job: RenderJob) -> SafeString:
        """Return a player that loads nothing before it is asked to."""
        return row_cell("row_audio", job)

    @display(description="file")
    def file(self, job: RenderJob) -> SafeString:
        """Return waveform, player and a link that saves the file; or what is rendered so far."""
        return file_cell(job)

    @display(description="takes")
    def takes(self, job: RenderJob) -> str:
        """Return how many takes were rendered for it, and how many were there already."""
        return f"{job.takes_rendered} rendered, {job.takes_reused} reused"

    @display(description="real-time factor")
    def speed_of_work(self, job: RenderJob) -> str:
        """Return how many seconds of audio a second of work made."""
        factor = real_time_factor(job)
        return "-" if factor is None else f"{factor:.1f}"

    @display(description="length")
    def length(self, job: RenderJob) -> str:
        """Return how long the audio is."""
        return f"{job.audio_seconds:.1f} s"

    @display(description="options")
    def options(self, job: RenderJob) -> str:
        """Return what was asked for beside the usual."""
        return options_of(job)

    @display(description="status")
    def state_of(self, job: RenderJob) -> SafeString:
        """Return status, progress, counts and error."""
        context = {"job": job, "colour": BADGES.get(job.status, "pending")}
        return SafeString(render_to_string("synth/state.html", context | bar_of(job)))

    @display(description="sampling")
    def sampling(self, job: RenderJob) -> str:
        """Return the numbers that the audio depends on."""
        return (
            f"seed {job.seed} · temperature {job.temperature:g} · "
            f"top_p {job.top_p:g} · top_k {job.top_k}"
        )

    def save_model(self, request: HttpRequest, obj: RenderJob, form: Any, change: bool) -> None:
        """Queue the text as the API would."""
        job, _ = submit_job(form.order, owner=request.user)  # type: ignore[arg-type]  # logged in
        obj.pk = job.pk
        obj.refresh_from_db()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save nothing: a job has no rows that a person edits."""

    @action(description="Cancel", permissions=["control"])
    def cancel_chosen(self, request: HttpRequest, jobs: QuerySet[RenderJob]) -> None:
        """Cancel the chosen jobs that have not ended."""
        cancelled = sum(cancel_job(job.pk) for job in jobs)
        self.message_user(request, f"{cancelled} jobs were cancelled.")

    @action(description="Retry", permissions=["control"])
    def retry_chosen(self, request: HttpRequest, jobs: QuerySet[RenderJob]) -> None:
        """Queue what the chosen jobs did not finish; say why where that is not possible."""
        queued = 0
        for job in jobs:
            try:
                retry(job)
                queued += 1
            except RetryRefusedError as error:
                self.message_user(request, f"{str(job.pk)[:8]}: {error}", messages.WARNING)
        if queued:
            self.message_user(request, f"{queued} jobs were queued again.")

    @action(description="Render before bulk work", permissions=["control"])
    def make_interactive(self, request: HttpRequest, jobs: QuerySet[RenderJob]) -> None:
        """Give the chosen unfinished jobs the interactive class."""
        self._reprioritise(request, jobs, RenderJob.Priority.INTERACTIVE)

    @action(description="Render as bulk work", permissions=["control"])
    def make_bulk(self, request: HttpRequest, jobs: QuerySet[RenderJob]) -> None:
        """Give the chosen unfinished jobs the bulk class."""
        self._reprioritise(request, jobs, RenderJob.Priority.BULK)

    def _reprioritise(
        self, request: HttpRequest, jobs: QuerySet[RenderJob], priority: RenderJob.Priority
    ) -> None:
        moved = 0
        for job in jobs:
            try:
                moved += change_job(job.pk, {"priority": priority})
            except ChangeRefusedError as error:
                self.message_user(request, f"{str(job.pk)[:8]}: {error}", messages.WARNING)
        if moved:
            self.message_user(request, f"{moved} jobs are {priority.label.lower()} now.")

    @action(
        description="Cancel",
        permissions=["control"],
        dialog={
            "title": "Cancel this job",
            "description": "What is rendered already is kept; the rest can be retried.",
            "form_submit_text": "Cancel the job",
        },
    )
    def cancel_this(
        self, request: HttpRequest, form: BaseDialogForm, object_id: str
    ) -> HttpResponse:
        """Cancel the job of this page."""
        return self._apply(self.cancel_chosen, request, object_id)

    @action(
        description="Retry",
        permissions=["control"],
        dialog={
            "title": "Retry this job",
            "description": "What failed or was cancelled is queued again.",
            "form_submit_text": "Retry",
        },
    )
    def retry_this(
        self, request: HttpRequest, form: BaseDialogForm, object_id: str
    ) -> HttpResponse:
        """Retry the job of this page."""
        return self._apply(self.retry_chosen, request, object_id)

    def _apply(
        self, work: Callable[..., None], request: HttpRequest, object_id: str
    ) -> HttpResponse:
        """Do a list's action for one job and show its page again."""
        work(request, visible_jobs(request.user).filter(pk=object_id))
        url = reverse("admin:synth_renderjob_change", args=[object_id])
        return HttpResponse(headers={"HX-Redirect": url})

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what a person is told before deleting."""
        names = [f"{str(job).capitalize()}: its segments and its files" for job in objs]
        allowed = self.has_delete_permission(request)
        return names, {"jobs": len(names)}, set() if allowed else {"job"}, []

    def delete_model(self, request: HttpRequest, obj: RenderJob) -> None:
        """Delete a job and its files."""
        delete_job(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RenderJob]) -> None:
        """Delete the chosen jobs, each in the same way."""
        for job in queryset:
            delete_job(job)
