"""Say what the admin's sidebar holds, in the order in which people need it."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from synth.accounts.access import visible_jobs
from synth.models import RenderJob

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
