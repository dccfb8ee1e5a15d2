"""Manage jobs in the admin: texts are queued, progress is seen, audio is played."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import F, Model, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display

from synth.accounts.access import visible_jobs
from synth.admin.batches import BatchAdmin, BatchItemsFilter
from synth.admin.book_batches import BookBatchAdmin
from synth.admin.books import BookAdmin
from synth.admin.job_cells import look_up, options_of, row_cell
from synth.admin.job_form import JobForm
from synth.admin.job_page import page_context
from synth.admin.lexicons import LexiconAdmin
from synth.admin.review import ReviewAdmin
from synth.admin.webhooks import WebhookDeliveryAdmin, WebhookEndpointAdmin, WebhookSecretAdmin
from synth.admin.workers import WorkerStatusAdmin
from synth.jobs.removal import delete_job
from synth.jobs.retry import RetryRefusedError, retry
from synth.jobs.submit import submit_job
from synth.models import RenderJob
from synth.transitions import cancel_job
from synth.transitions.changes import ChangeRefusedError, change_job

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

_FOLDED = {"classes": ("collapse",)}


class JobChangeList(ChangeList):
    """A page of jobs whose places in the queue and times are looked up together."""

    def get_results(self, request: HttpRequest) -> None:
        """Find the page's jobs, and how far they are."""
        super().get_results(request)
        self.result_list = list(self.result_list)
        look_up(self.result_list)


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
    change_form_outer_before_template = "synth/job_page.html"
    readonly_fields = ("id", "text", "voice", "format", "priority", "owner", "sampling", "options")
    fieldsets = (
        (None, {"fields": ("text",)}),
        (
            "Request",
            {"fields": (("voice", "format", "priority"), "options", ("sampling", "owner"), "id")},
        ),
    )

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
        first = JobForm.GROUPS[0]
        return tuple(
            (title, {"fields": fields} | ({} if (title, fields) == first else _FOLDED))
            for title, fields in JobForm.GROUPS
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Let nothing be changed once a job is there."""
        return self.readonly_fields if obj is not None else ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that looks a whole page up at once."""
        return JobChangeList

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a job: how far it is, what can be done, its sound and its segments."""
        job = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if job is not None:
            context = page_context(request, job, may_control=self.has_control_permission(request))
        shown: HttpResponse = super().change_view(
            request, object_id, form_url, {**context, **(extra_context or {})}
        )
        return shown

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

    @display(description="options")
    def options(self, job: RenderJob) -> str:
        """Return what was asked for beside the usual."""
        return options_of(job)

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

    def response_add(
        self, request: HttpRequest, obj: RenderJob, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Lead to the page of the job that was queued, where it is heard, or to the next form."""
        is_next = "_addanother" in request.POST
        if not is_next and not self.has_view_permission(request, obj):
            shown: HttpResponse = super().response_add(request, obj, post_url_continue)
            return shown
        self.message_user(request, f"{str(obj).capitalize()} is queued.", messages.SUCCESS)
        page = "admin:synth_renderjob_add" if is_next else "admin:synth_renderjob_change"
        return redirect(page, *(() if is_next else (obj.pk,)))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save nothing: a job has no rows that a person edits."""

    @action(description="Cancel", permissions=["control"])
    def cancel_chosen(self, request: HttpRequest, jobs: QuerySet[RenderJob]) -> None:
        """Cancel the chosen jobs that have not ended."""
        cancelled = sum(cancel_job(job.pk) for job in jobs)
        self.message_user(request, f"Jobs cancelled: {cancelled}.")

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
            self.message_user(request, f"Jobs queued again: {queued}.")

    @action(description="Set interactive priority", permissions=["control"])
    def make_interactive(self, request: HttpRequest, jobs: QuerySet[RenderJob]) -> None:
        """Give the chosen unfinished jobs the interactive class."""
        self._reprioritise(request, jobs, RenderJob.Priority.INTERACTIVE)

    @action(description="Set bulk priority", permissions=["control"])
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
            self.message_user(request, f"Jobs moved to {priority.label.lower()} priority: {moved}.")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what the page lists before deleting."""
        names = [f"{str(job).capitalize()}, with its segments and its files" for job in objs]
        allowed = self.has_delete_permission(request)
        return names, {"jobs": len(names)}, set() if allowed else {"job"}, []

    def delete_model(self, request: HttpRequest, obj: RenderJob) -> None:
        """Delete a job and its files."""
        delete_job(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RenderJob]) -> None:
        """Delete the chosen jobs, each in the same way."""
        for job in queryset:
            delete_job(job)
