"""Serve the site's own pages: Studio, about this server, licences, the API to try; lead to all.

"Built with Fish Audio" is owed to those who listen, not to operators alone; the page of licences
names parts and licences and no versions.
"""

from __future__ import annotations

import datetime as dt
import json
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, NamedTuple

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.db.models import F
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.views import SpectacularSwaggerSplitView

from synth.accounts.access import visible_jobs, with_voices
from synth.admin.jobs import cell_context, render_cell, voices_of
from synth.card import CARD_NAME, Card, CardError, read_card
from synth.formats import FORMATS
from synth.models import RenderJob, WorkerStatus
from synth.transitions.jobs import UNFINISHED
from ttsweb.configuration.library import ADMIN_CONTENT_POLICY, CONTENT_POLICY_HEADER
from voices.access import visible_voices
from voices.models import VoiceVersion

JOBS_SHOWN = 5
FIRST_FORMAT = "mp3"  # what every player and messenger takes
_TITLE_CHARS = 60
_ANY = "00000000-0000-0000-0000-000000000000"
# Of each way to ask from a program: its name for the script, for people, and what it needs.
_CODE = (("curl", "curl", "needs curl and jq"), ("python", "Python", "needs no packages"))
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
    newest = with_voices(own).first()
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
    # It has the admin's frame, and so its scripts.
    page[CONTENT_POLICY_HEADER] = ADMIN_CONTENT_POLICY
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
    jobs = with_voices(jobs)
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


PUBLISHER = "fish audio"
PUBLISHED_MODEL_TYPE = "fish_qwen3_omni"
MAX_CONFIG_BYTES = 1_000_000
MAX_LICENCE_CHARS = 80


class Part(NamedTuple):
    """A part that a package carries inside, and what follows from its licence."""

    name: str
    licence: str
    inside: str
    note: str = ""


INNER_PARTS = (
    Part(
        "FFmpeg with x264 and x265",
        "GPL-2.0-or-later",
        "av (PyAV)",
        "Running the service is not affected; anyone who distributes an image with it must "
        "follow the GPL.",
    ),
    Part("LAME, GnuTLS, Nettle, GMP, libunistring", "LGPL (several versions)", "av (PyAV)"),
    Part("Opus, libvpx, dav1d, SVT-AV1, libwebp", "BSD", "av (PyAV)"),
    Part("OpenCORE AMR", "Apache-2.0", "av (PyAV)"),
    Part("libsndfile", "LGPL-2.1-or-later", "soundfile"),
    Part("libpq, OpenSSL, MIT Kerberos, OpenLDAP", "PostgreSQL, Apache-2.0, MIT, OLDAP", "psycopg"),
    Part("Alpine.js, Chart.js, simplebar", "MIT", "django-unfold"),
    Part("htmx", "0BSD", "django-unfold"),
    Part("Inter", "OFL-1.1", "django-unfold"),
    Part("Material Symbols", "Apache-2.0", "django-unfold"),
    Part("Swagger UI", "Apache-2.0", "drf-spectacular-sidecar"),
    Part("CUDA libraries", "NVIDIA's own", "PyTorch's CUDA build", "Only where that is installed."),
)


@require_safe
def licence_page(request: HttpRequest) -> HttpResponse:
    context = {**_model(), "parts": INNER_PARTS, "packages": installed_packages()}
    return render(request, "ttsweb/licences.html", context)


@require_safe
def about_page(request: HttpRequest) -> HttpResponse:
    context = {**_model(), "folder": settings.CHECKPOINT.name}
    return render(request, "ttsweb/about.html", context)


def _model() -> dict[str, Any]:
    folder = settings.CHECKPOINT
    return {"card": _card(folder), "is_fish_audio": is_fish_audio(folder)}


def is_fish_audio(folder: Path) -> bool:
    """Say whether a checkpoint folder holds Fish Audio's weights, or ones made from them.

    The card says so; a folder without a usable one is taken for theirs if its config.json names
    their type of model. The built-in model has that type too, and a card of its own.
    """
    card = _card(folder)
    if card is not None and (folder / CARD_NAME).exists():
        return PUBLISHER in f"{card.name}\n{card.licence}".lower()
    path = folder / "config.json"
    try:
        is_short = path.stat().st_size <= MAX_CONFIG_BYTES
        config = json.loads(path.read_text(encoding="utf-8")) if is_short else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and config.get("model_type") == PUBLISHED_MODEL_TYPE


@lru_cache(maxsize=1)
def installed_packages() -> tuple[tuple[str, str], ...]:
    """Return name and licence of the Python packages that are installed here."""
    found = {d.metadata["Name"]: _licence_of(d) for d in distributions() if d.metadata["Name"]}
    return tuple(sorted(found.items(), key=lambda item: item[0].lower()))


def _licence_of(distribution: Distribution) -> str:
    """Return what a package declares: its expression, its classifiers, or a short text."""
    metadata = distribution.metadata
    for expression in metadata.get_all("License-Expression") or []:
        return str(expression)
    marks = [mark for mark in metadata.get_all("Classifier") or [] if mark.startswith("License")]
    if marks:
        return ", ".join(mark.split(" :: ")[-1] for mark in marks)
    text = "".join(metadata.get_all("License") or []).strip()
    return text if text and len(text) <= MAX_LICENCE_CHARS else "see the package"


def _card(folder: Path) -> Card | None:
    try:
        return read_card(folder)
    except CardError:
        return None  # the worker and `./tts doctor` say what is wrong with the file


class DocsView(SpectacularSwaggerSplitView):
    """Swagger UI from the installed package; script and style in files, for the strict policy."""

    template_name = "ttsweb/docs.html"
    title = "ttsweb API"


# Of each link its words, its symbol, and the model whose list it leads to, or a page's name.
_Page = tuple[str, str, str]
_GROUPS: dict[str, tuple[_Page, ...]] = {
    "Speech": (
        ("Voices", "record_voice_over", "voices.Voice"),
        ("Voice names", "badge", "voices.VoiceAlias"),
        ("Jobs", "graphic_eq", "synth.RenderJob"),
        ("Batches", "stacks", "synth.TextBatch"),
        ("Review", "hearing", "synth.Segment"),
        ("Lexicons", "dictionary", "synth.Lexicon"),
    ),
    "Books": (
        ("Books", "menu_book", "synth.BookSource"),
        ("Book batches", "library_books", "synth.BookBatch"),
    ),
    "Operation": (
        ("Workers", "memory", "synth.WorkerStatus"),
        ("Webhook deliveries", "outgoing_mail", "synth.WebhookDelivery"),
        ("Webhook endpoints", "webhook", "synth.WebhookEndpoint"),
        ("Webhook secret", "signature", "synth.WebhookSecret"),
    ),
    "Access": (
        ("API keys", "key", "synth.ApiKey"),
        ("Users", "person", "auth.User"),
        ("Groups", "group", "auth.Group"),
        ("Audit log", "history", "synth.AuditEntry"),
    ),
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of links that a user may follow, as Unfold takes them."""
    first = [("Studio", "mic", "studio"), ("Overview", "dashboard", "admin:index")]
    last = [
        ("REST API", "api", "docs"),
        ("About this server", "info", "about"),
        ("Licences", "license", "licences"),
    ]
    groups: list[dict[str, Any]] = [{"items": [_to_page(*page) for page in first]}]
    for title, pages in _GROUPS.items():
        if links := [link for page in pages if (link := _to_list(*page, request)) is not None]:
            groups.append({"title": title, "separator": True, "items": links})
    items = [_to_page(*page) for page in last]
    return [*groups, {"title": "Help", "separator": True, "items": items}]


def _to_page(title: str, icon: str, name: str) -> dict[str, str]:
    return {"title": title, "icon": icon, "link": reverse(name)}


def _to_list(title: str, icon: str, label: str, request: HttpRequest) -> dict[str, str] | None:
    model = apps.get_model(label)
    site_admin = admin.site._registry.get(model)
    if site_admin is None or not site_admin.has_view_permission(request):
        return None
    options = model._meta
    link = _to_page(title, icon, f"admin:{options.app_label}_{options.model_name}_changelist")
    if model is RenderJob:
        queued = visible_jobs(request.user).filter(status=RenderJob.Status.QUEUED).count()
        if queued:
            link |= {"badge": str(queued), "badge_variant": "info"}
    return link
