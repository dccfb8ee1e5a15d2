"""Serve the Studio: write a text, choose a voice, hear it; and the way there from the root."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import F
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from synth.accounts.access import visible_jobs
from synth.admin.jobs import cell_context, render_cell, voices_of
from synth.formats import FORMATS
from synth.models import RenderJob, WorkerStatus
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.csp import ADMIN_POLICY, HEADER
from voices.access import visible_voices
from voices.models import VoiceVersion

JOBS_SHOWN = 5
FIRST_FORMAT = "mp3"  # what every player and messenger takes
_TITLE_CHARS = 60
_ANY = "00000000-0000-0000-0000-000000000000"
# Of each way to ask from a program: its name for the script, for people, and what it needs.
_CODE = (("curl", "curl", "needs curl and jq"), ("python", "Python", "needs nothing else"))
_CELLS = ("state", "audio", "progress")  # of a job's row, as the list of jobs shows them
_RENDERS, _WRITES_FILES = ("all", "gpu"), ("all", "cpu")
_STARTS = (WorkerStatus.State.STARTING, WorkerStatus.State.WARMING)


@require_safe
def front_page(request: HttpRequest) -> HttpResponse:
    """Lead to the Studio, which asks those to log in who have not."""
    return redirect("studio")


@require_safe
def studio_page(request: HttpRequest) -> HttpResponse:
    """Show the form, the first steps while there is nothing yet, and the user's newest jobs."""
    own = visible_jobs(request.user).filter(owner_id=request.user.pk, kind=RenderJob.Kind.SPEECH)
    newest = own.prefetch_related("voices__version__voice").first()
    pinned = newest.voices.all() if newest is not None else ()
    context = {
        **admin.site.each_context(request),
        **first_steps(request),
        "title": "Studio",
        "formats": [name for name, one in FORMATS.items() if one.is_played],
        "first_format": FIRST_FORMAT,
        "last_voice": next((row.version.voice for row in pinned), None),  # to begin with
        "max_chars": settings.MAX_TEXT_CHARS,
        "jobs": _newest_jobs(request),
        "any_job": _ANY,
        "code": _CODE,
    }
    page = TemplateResponse(request, "ttsweb/studio.html", context)
    page[HEADER] = ADMIN_POLICY  # it has the admin's frame, and so its scripts
    return page


def first_steps(request: HttpRequest) -> dict[str, Any]:
    """Return what a newcomer has done of the steps to a first job, and what is in the way."""
    voices = visible_voices(request.user).filter(archived=False)
    ready = list(voices.filter(versions__encoded_at__isnull=False).distinct())
    has_job = visible_jobs(request.user).exists()
    return {
        "voices": ready,
        "coming_voices": [] if ready else _coming(voices.prefetch_related("versions")),
        "worker_notice": _worker_notice(),
        "has_job": has_job,
        "is_new": not (ready and has_job),
        "may_add_voice": request.user.has_perm("voices.add_voice"),
        "may_add_key": request.user.has_perm("synth.add_apikey"),
        "may_see_jobs": request.user.has_perm("synth.view_renderjob"),
    }


def _coming(voices: Any) -> list[dict[str, str]]:
    found = []
    for voice in voices[:JOBS_SHOWN]:
        if (version := voice.current_version) is not None:
            has_failed = version.status == VoiceVersion.Status.FAILED
            error = version.error_message or "Its clips could not be encoded."
            url = reverse("admin:voices_voice_change", args=[voice.pk])
            found.append({"name": voice.name, "url": url, "error": error if has_failed else ""})
    return found


def _worker_notice() -> str:
    """Return what keeps jobs from being rendered now and what to do, or an empty text."""
    heard_since = timezone.now() - dt.timedelta(seconds=settings.LEASE_SECONDS)
    workers = list(WorkerStatus.objects.filter(last_seen_at__gte=heard_since))
    ready = {worker.role for worker in workers if worker.state in WorkerStatus.SERVING}
    if ready & set(_RENDERS) and ready & set(_WRITES_FILES):
        return ""
    if any(worker.state in _STARTS for worker in workers):
        return "A worker is starting and loads the model. Jobs wait until it is ready."
    for worker in workers:
        if worker.state == WorkerStatus.State.FAILED:
            return f"The worker {worker.name} could not start: {worker.detail}"
    if ready:
        missing = "GPU" if not ready & set(_RENDERS) else "CPU"
        return f"No {missing} worker is running, so jobs wait. Start one with ./tts worker."
    return (
        "No worker is running, so jobs wait. ./tts serve starts the site with a worker, "
        "./tts worker starts a worker alone."
    )


def _newest_jobs(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the rows of the jobs that go on, then of the last ones that have ended."""
    jobs = visible_jobs(request.user).filter(batch__isnull=True).defer("text")
    jobs = jobs.annotate(start=Left("text", _TITLE_CHARS), book_title=F("book__title"))
    jobs = jobs.prefetch_related("voices__version__voice")
    going = list(jobs.filter(status__in=UNFINISHED)[:JOBS_SHOWN])
    ended = jobs.exclude(status__in=UNFINISHED)[: JOBS_SHOWN - len(going)]
    return [
        {
            "id": job.pk,
            "title": start,
            "voices": voices_of(job),
            "url": reverse("admin:synth_renderjob_change", args=[job.pk]),
            **{part: render_cell("job", part, job, cells) for part in _CELLS},
        }
        for job in (*going, *ended)
        for start, cells in [(_start_of(job), cell_context(job))]
    ]


def _start_of(job: Any) -> str:
    start: str = job.start.strip() or job.book_title or str(job)
    return f"{start}…" if len(start) == _TITLE_CHARS else start
