"""Manage jobs in the admin, and what the pages of all work share: live cells, buttons, actions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import F
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from rest_framework import serializers

from synth.accounts.access import visible_jobs, with_voices
from synth.accounts.limits import KeyLimitError
from synth.admin.job_form import JobForm
from synth.api.jobs.serializers import file_name_of, has_audio, progress_of
from synth.jobs.eta import etas, hours, real_time_factor, without_eta
from synth.jobs.options import OPTIONS, Option, Value
from synth.jobs.queue import QueueState, queue_positions
from synth.jobs.removal import delete_job
from synth.jobs.retry import RetryRefusedError, may_retry, retry, silent_speakers
from synth.jobs.submit import Sender, submit_job
from synth.models import Export, ExportCues, RenderJob, Segment
from synth.transitions.files import pause_job, resume_job
from synth.transitions.jobs import UNFINISHED, ChangeRefusedError, cancel_job, change_job
from ttsweb.pages.admin_base import BatchFilter, NounAdmin, column, row_action
from ttsweb.refusals import SubmitRejectedError, counted

# The colours of badges, which are named after the states of voices; any other state is blue.
COLOURS = {
    **dict.fromkeys(("succeeded", "done", "ended"), "ready"),
    **dict.fromkeys(("failed", "deleted"), "failed"),
    **dict.fromkeys(
        ("running", "claimed", "partial", "paused", "sampling", "sampled", "to_approve"), "encoding"
    ),
}
_LABELS = {"pause": "Pause", "resume": "Resume", "close": "Take no more files"}


class WorkAdmin(NounAdmin):
    """The page of a kind of work: a job, a batch, a book, a batch of books."""

    refusals = (
        SubmitRejectedError,
        KeyLimitError,
        RetryRefusedError,
        ChangeRefusedError,
        serializers.ValidationError,
    )
    list_per_page = 50
    show_full_result_count = False
    noun = ""  # as the pages' scripts and the live parts call it
    cell_context: Callable[[Any], dict[str, Any]]  # what the cells and the state of a row show


def render_cell(noun: str, part: str, row: Any, context: dict[str, Any]) -> SafeString:
    """Return a part of `synth/cell.html`, which keeps itself up to date."""
    context = context | {"noun": noun, "part": part, "row": row}
    return SafeString(render_to_string("synth/cell.html", context).strip())


def live_cell(part: str, title: str = "", ordering: str | None = None) -> Any:
    @admin.display(description=title or part, ordering=ordering)
    def shown(page: WorkAdmin, row: Any) -> SafeString:
        return render_cell(page.noun, part, row, page.cell_context(row))

    return shown


def link_to(page: str, pk: Any, text: Any) -> SafeString:
    url = reverse(f"admin:synth_{page}_change", args=[pk])
    return format_html('<a href="{}" class="tts-link">{}</a>', url, text)


def state_context(status: str, share: float, words: list[str], *, is_open: bool) -> dict[str, Any]:
    """Return what `synth/state.html` shows: badge, bar and words."""
    return {
        "status": status.replace("_", " "),
        "colour": COLOURS.get(status, "pending"),
        "progress": f"{share:.3f}",  # as text: a page in another language would write a comma
        "percent": round(100 * share),
        "words": " · ".join(words),
        "is_open": is_open,
    }


def buttons(
    view: str,
    row: Any,
    names: Iterable[str],
    noun: str,
    missing: str = "segments",
    kept: str = "Rendered audio is kept",
) -> list[dict[str, str]]:
    """Return the buttons of a page: what each says, where it posts to, and what it asks before.

    `view` begins the names of the API's addresses, `missing` is what a retry renders, and `kept`
    what stays of a `noun` that is stopped.
    """
    labels = _LABELS | {
        "approve": "Approve all samples",
        "cancel": f"Stop the {noun}",
        "retry": f"Retry missing {missing}",
    }
    question = f"Stop rendering this {noun}? {kept}, and Retry continues from there."
    return [
        {
            "name": name,
            "label": labels[name],
            "url": reverse(f"{view}-{name}", args=[row.pk]),
            "question": question if name == "cancel" else "",
            "yes": labels["cancel"],
        }
        for name in names
    ]


# What can be done with the jobs of chosen rows: label, outcome in words, and the work.
_ON_JOBS: dict[str, tuple[str, str, Callable[[RenderJob], Any]]] = {
    "pause_chosen": ("Pause", "paused", lambda job: pause_job(job.pk)),
    "resume_chosen": ("Resume", "resumed", lambda job: resume_job(job.pk)),
    "cancel_chosen": ("Cancel", "cancelled", lambda job: cancel_job(job.pk)),
    "retry_chosen": ("Retry", "queued again", retry),
    "make_interactive": (
        "Set interactive priority", "moved to interactive priority",
        lambda job: change_job(job.pk, {"priority": RenderJob.Priority.INTERACTIVE}),
    ),
    "make_bulk": (
        "Set bulk priority", "moved to bulk priority",
        lambda job: change_job(job.pk, {"priority": RenderJob.Priority.BULK}),
    ),
}  # fmt: skip


def job_actions(
    *names: str, job_of: Callable[[Any], RenderJob] = lambda row: row
) -> tuple[Callable[..., None], ...]:
    """Return actions on the jobs of rows, which `job_of` finds."""

    def made(name: str) -> Callable[..., None]:
        label, done, work = _ON_JOBS[name]
        return row_action(name, label, done, lambda row: work(job_of(row)))

    return tuple(map(made, names))


SEGMENTS_PER_PAGE = 50  # a book has thousands
PAGE_PARAMETER = "segments-page"
SEGMENT_ORDER = ("chapter__index", "index")
MOST_MARKS = 2000
_START_CHARS = 60
_AGAIN = (Segment.Status.DONE, Segment.Status.FAILED)


def look_up(jobs: list[Any]) -> list[Any]:
    """Set on jobs where they stand in the queue and when they are done, by a few queries."""
    queue = QueueState(jobs)
    places, left = queue_positions(jobs, queue), etas(jobs, queue)
    for job in jobs:
        job.place, job.seconds_left = places.get(job.pk), left.get(job.pk)
    return jobs


def words_of(job: Any) -> list[str]:
    if not hasattr(job, "place"):
        look_up([job])
    total = job.segments_total
    words = [f"{job.segments_done} of {counted(total, 'segment')}"]
    if job.status not in UNFINISHED:
        factor = real_time_factor(job)
        return words if factor is None else [*words, f"{factor:.1f}x real time"]
    if job.place is not None:
        words.insert(0, f"position {job.place}")
    if job.cancel_requested:
        words.append("stopping")
    elif job.paused_at is not None:
        words.append("paused")
    elif job.seconds_left is not None:
        words.append(f"about {hours(job.seconds_left)} left")
    elif job.status == RenderJob.Status.RUNNING:
        words.append(without_eta(job))
    return words


def cell_context(job: RenderJob) -> dict[str, Any]:
    is_open = job.status in UNFINISHED
    return {
        **state_context(job.status, progress_of(job), words_of(job), is_open=is_open),
        "error_code": job.error_code,
        "error_message": job.error_message,
        "url": reverse("job-audio", args=[job.pk]) if has_audio(job) else "",
        "short_id": str(job.pk)[:8],
    }


def options_of(job: RenderJob) -> str:
    """Return what was asked for beside the usual."""
    asked = {one.listed: _words(one, job) for one in OPTIONS.values() if one.listed}
    asked["live"] = "yes" if job.live_requested_at else ""
    asked["deleted at"] = _words_of_time(job.expires_at)
    return " · ".join(f"{name} {words}" for name, words in asked.items() if words) or "-"


def _words(one: Option, job: RenderJob) -> str:
    """Return the value of an option in words; empty where it is the usual one."""
    value = getattr(job, one.column)
    if value == one.default or value in (None, [], {}):
        return ""
    if one.value == Value.PAUSES:
        return ", ".join(f"{name} {pause} ms" for name, pause in value.items())
    if one.value == Value.NAMES:
        return ", ".join(map(str, value))
    if one.value == Value.MOMENT:
        return _words_of_time(value)
    if one.value == Value.SWITCH:
        return "yes"
    if one.value == Value.ENTRIES:
        return str(len(value))
    return f"{value:g}{one.unit}" if isinstance(value, float) else f"{value}{one.unit}"


def _words_of_time(moment: dt.datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else ""


def text_start(text: str) -> str:
    """Return the beginning of a text, of which a list fetched a little more."""
    return f"{text[:_START_CHARS].rstrip()}…" if len(text) > _START_CHARS else text


def voices_of(job: RenderJob, without_voice: str = "own clip") -> str:
    """Return the names of the voices; `without_voice` stands for a clip without one."""
    voices = [pinned.version.voice for pinned in job.voices.all()]
    return ", ".join(voice.name if voice else without_voice for voice in voices)


class ItemsFilter(BatchFilter):
    """Leave the items of batches out of the list of jobs, unless they are asked for."""

    every, label = "all", "with items of batches"


@admin.register(RenderJob)
class RenderJobAdmin(WorkAdmin):
    """Jobs: a list with progress and players, a form that queues a text, cancel and retry."""

    noun = "job"
    allowed = ("view", "add", "delete")
    deletion = "{row}, with its segments and its files"
    deletes = staticmethod(delete_job)
    cell_context = staticmethod(cell_context)
    form = JobForm
    list_display = (
        "short_id", "start", "state", "progress", "voice", "owner", "created_at", "audio",
    )  # fmt: skip
    list_display_links = ("short_id", "start")
    list_filter = ("status", "priority", ItemsFilter, "format", "created_at")
    search_fields = ("id", "voices__version__voice__name", "owner__username")
    actions = job_actions("cancel_chosen", "retry_chosen", "make_interactive", "make_bulk")
    change_form_outer_before_template = "synth/job_page.html"
    add_fieldsets = tuple(
        (title, {"fields": fields, "classes": () if place == 0 else ("collapse",)})
        for place, (title, fields) in enumerate(JobForm.GROUPS)
    )
    fieldsets = (
        (None, {"fields": ("text",)}),
        ("Request", {"fields": (
            "voice", ("format", "priority"), "options", ("sampling", "owner"), "id",
        )}),
    )  # fmt: skip

    short_id = column("job", lambda job: str(job.pk)[:8], "created_at")
    start = column(  # or which book it is, or is a sample of
        "text",
        lambda job: text_start(
            job.text_start or job.book_title or f"Sample of {job.sample_title or 'a book'}"
        ),
    )
    state = live_cell("state", "status", "status")
    progress = live_cell("progress")
    audio = live_cell("audio")
    voice = column("voice", voices_of)
    options = column("options", options_of)
    sampling = column(
        "sampling",
        lambda job: (
            f"seed {job.seed} · temperature {job.temperature:g} · "
            f"top_p {job.top_p:g} · top_k {job.top_k}"
        ),
    )

    @staticmethod
    def visible(user: Any) -> Any:
        """Return the jobs that the user may see; their texts are long and read on demand."""
        jobs = visible_jobs(user).select_related("owner").defer("text")
        jobs = jobs.annotate(text_start=Left("text", 80), book_title=F("book__title"))
        jobs = jobs.annotate(sample_title=F("sampled_book__title"))
        return with_voices(jobs)

    def look_up(self, rows: list[Any]) -> list[Any]:
        return look_up(rows)

    def page_context(self, request: HttpRequest, row: RenderJob) -> dict[str, Any]:
        may_control = self.has_control_permission(request)
        silent = silent_speakers(row)
        segments = row.segments.select_related("take", "chapter").order_by(*SEGMENT_ORDER)
        page = Paginator(segments, SEGMENTS_PER_PAGE).get_page(request.GET.get(PAGE_PARAMETER))
        names = ["cancel"] if row.status in UNFINISHED and not row.cancel_requested else []
        names += ["retry"] if may_retry(row) else []
        return {
            **cell_context(row),
            "noun": self.noun,
            "job": row,
            "buttons": buttons("job", row, names, self.noun) if may_control else [],
            "page": page,
            "rows": [
                _row(row, one, may_render=may_control and one.speaker not in silent) for one in page
            ],
            "page_parameter": PAGE_PARAMETER,
            **_sound(row),
        }

    def save_model(self, request: HttpRequest, obj: RenderJob, form: Any, change: bool) -> None:
        sender = Sender(request.user)  # type: ignore[arg-type]  # logged in
        job, _ = submit_job(form.order, sender)
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


def _sound(job: RenderJob) -> dict[str, Any]:
    url = reverse("job-audio", args=[job.pk])
    if not has_audio(job):
        can_listen = job.status in UNFINISHED
        return {"live_url": f"{url}?live=1&format=wav" if can_listen else ""}
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    return {
        "file_url": url,
        "filename": file_name_of(job),
        "peaks": export.peaks if export else None,
        "file_seconds": f"{export.duration_seconds if export else job.audio_seconds:.3f}",
        "marks": _marks(job, export),
    }


def _marks(job: RenderJob, export: Export | None) -> list[list[float]]:
    """Return number, start and end of each segment in the file, in seconds."""
    found = ExportCues.objects.filter(export=export).first() if export is not None else None
    if found is None or len(found.cues) > MOST_MARKS:
        return []
    rows = job.segments.order_by(*SEGMENT_ORDER).values_list("pk", flat=True)
    numbers = {pk: number for number, pk in enumerate(rows, start=1)}
    rate = found.sample_rate
    return [
        [numbers[pk], round(start / rate, 3), round(end / rate, 3)]
        for pk, start, end in found.cues
        if pk in numbers
    ]


def _row(job: RenderJob, segment: Segment, *, may_render: bool) -> dict[str, Any]:
    may = may_render and segment.status in _AGAIN and job.status != RenderJob.Status.CANCELLED
    used = str(segment.take_id)
    takes = [one for one in segment.candidates if one.get("take") is not None]
    args = [job.pk, segment.pk]
    return {
        "segment": segment,
        "take": segment.take,
        "colour": COLOURS.get(segment.status, "pending"),
        "status": "rendering" if segment.status == "claimed" else segment.status,
        "url": reverse("job-segment-audio", args=args) if segment.take_id else "",
        "seed": str(segment.seed),
        "again_url": reverse("job-segment-render", args=args) if may else "",
        "choose_url": reverse("job-segment-choose", args=args),
        "others": [
            {"number": number, "body": f'{{"take": "{one["take"]}"}}', "seed": one["seed"]}
            for number, one in enumerate(takes, start=1)
            if may and one["take"] != used
        ],
    }
