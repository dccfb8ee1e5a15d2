"""Serve the public page about this server: where to go, and which model speaks here."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.views.decorators.http import require_safe

from ttsweb.pages.card import CardError, read_card
from ttsweb.pages.licence import is_fish_audio


@require_safe
def about_page(request: HttpRequest) -> HttpResponse:
    """Show links to the admin and the API, and the checkpoint's card."""
    context: dict[str, object] = {
        "folder": settings.CHECKPOINT.name,
        "is_fish_audio": is_fish_audio(settings.CHECKPOINT),
    }
    try:
        context["card"] = read_card(settings.CHECKPOINT)
    except CardError:
        context["card"] = None  # the worker and `./tts doctor` say what is wrong with the file
    return render(request, "ttsweb/about.html", context)


def site_icon(request: HttpRequest) -> str:
    """Return the address of the site's icon."""
    return static("ttsweb/icon.svg")


def admin_style(request: HttpRequest) -> str:
    """Return the address of our additions to the admin's style."""
    return static("ttsweb/admin.css")


def admin_script(request: HttpRequest) -> str:
    """Return the address of the script that all pages of the admin need."""
    return static("ttsweb/file_inputs.js")


def copy_script(request: HttpRequest) -> str:
    """Return the address of the script of the buttons that copy."""
    return static("ttsweb/copy.js")
