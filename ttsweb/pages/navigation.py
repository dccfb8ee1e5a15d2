"""Say what the admin's sidebar holds, in the order in which people need it."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from synth.accounts.access import visible_jobs
from synth.models import RenderJob


class _Page(NamedTuple):
    """One link: its words, its symbol, and the model whose list it leads to."""

    title: str
    icon: str
    model: str


_GROUPS: dict[str, tuple[_Page, ...]] = {
    "Speech": (
        _Page("Voices", "record_voice_over", "voices.Voice"),
        _Page("Jobs", "graphic_eq", "synth.RenderJob"),
        _Page("Batches", "stacks", "synth.TextBatch"),
        _Page("Review", "hearing", "synth.Segment"),
        _Page("Lexicons", "dictionary", "synth.Lexicon"),
    ),
    "Books": (
        _Page("Books", "menu_book", "synth.BookSource"),
        _Page("Book batches", "library_books", "synth.BookBatch"),
    ),
    "Operation": (
        _Page("Workers", "memory", "synth.WorkerStatus"),
        _Page("Webhook deliveries", "outgoing_mail", "synth.WebhookDelivery"),
        _Page("Webhook endpoints", "webhook", "synth.WebhookEndpoint"),
        _Page("Webhook secret", "signature", "synth.WebhookSecret"),
    ),
    "Access": (
        _Page("API keys", "key", "synth.ApiKey"),
        _Page("Users", "person", "auth.User"),
        _Page("Groups", "group", "auth.Group"),
    ),
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of links that a user may follow, as Unfold takes them."""
    groups: list[dict[str, Any]] = [
        {
            "items": [
                {"title": "Studio", "icon": "mic", "link": reverse("studio")},
                {"title": "Overview", "icon": "dashboard", "link": reverse("admin:index")},
            ]
        }
    ]
    for title, pages in _GROUPS.items():
        links = [link for page in pages if (link := _link(page, request)) is not None]
        if links:
            groups.append({"title": title, "separator": True, "items": links})
    groups.append(
        {
            "title": "Help",
            "separator": True,
            "items": [
                {"title": "REST API", "icon": "api", "link": reverse("docs")},
                {"title": "About this server", "icon": "info", "link": reverse("about")},
                {"title": "Licences", "icon": "license", "link": reverse("licences")},
            ],
        }
    )
    return groups


def _link(page: _Page, request: HttpRequest) -> dict[str, Any] | None:
    shown = {model._meta.label: of_model for model, of_model in admin.site._registry.items()}
    site_admin = shown.get(page.model)
    if site_admin is None or not site_admin.has_view_permission(request):
        return None
    model = site_admin.model
    name = f"{model._meta.app_label}_{model._meta.model_name}"
    link = {"title": page.title, "icon": page.icon, "link": reverse(f"admin:{name}_changelist")}
    if model is RenderJob:
        queued = visible_jobs(request.user).filter(status=RenderJob.Status.QUEUED).count()
        if queued:
            link |= {"badge": str(queued), "badge_variant": "info"}
    return link
