"""Serve the public pages: about this server, the licences of model and parts, the API to try.

"Built with Fish Audio" is owed to those who listen, not to operators alone; the page of licences
names parts and licences and no versions.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.views import SpectacularSwaggerSplitView

from synth.card import CARD_NAME, Card, CardError, read_card

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
