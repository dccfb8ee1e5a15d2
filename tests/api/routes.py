"""Every route of both APIs, read from the URL conf, and what one user has behind each."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import yaml
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.audiobooks.plans import load_plan
from synth.dialects.openai_catalogue import ModelsView
from synth.dialects.urls import list_models
from synth.dialects.views import UnknownRouteView
from synth.models import ApiKey, AuditEntry
from synth.webhooks import secret_of
from tests.factories import (
    make_batch,
    make_book_batch,
    make_book_file,
    make_delivery,
    make_ended_job,
    make_endpoint,
    make_job,
    make_lexicon,
    make_take,
    make_transcript,
    make_voice,
)
from tests.sources import PROJECT
from tests.synth.books_api.shelf import store_book

Route = tuple[str, str]  # name, method
Ids = dict[str, Any]  # by the names of paths' parameters
BEHIND: dict[str, Any] = {"v1-models": ModelsView}  # one of two that a function chooses from
APIS = ("api/", "v1/", "openai/", "model", "^(?:v1|openai)/")
METHODS = ("get", "post", "put", "patch", "delete")
SECRET = "A secret sentence of the owner."
STATES = ("queued", "running", "cancelled", "failed", "succeeded")
# Without a key as well.
PUBLIC = {
    *(("schema", "GET"), ("docs", "GET"), ("v1-test", "GET")),
    *(("fish-health", "GET"), ("fish-health", "POST")),
}
# Handshakes are judged here; plain requests are told what to send.
SOCKETS = {("v1-speech-socket", "GET"), ("fish-socket", "GET")}
# Superusers alone manage them, with the scope `admin`.
USERS = {"users", "user", "groups", "group", "permissions"}
# What is read before the thing is looked for, and what it takes to be done.
BODIES: dict[Route, dict[str, Any]] = {
    ("book-plan", "PATCH"): {"edits": []},
    ("book", "PATCH"): {"metadata": {"title": "Other"}},
    ("book-pauses", "PATCH"): {"heading": 10},
    ("book-priority", "POST"): {"priority": "bulk"},
    ("book-files", "POST"): {"kind": "m4b"},
    ("book-batch-priority", "POST"): {"priority": "bulk"},
    ("book-batch-entries", "POST"): {"entries": []},
    ("lexicon-entries", "POST"): {"find": "GIF", "say": "jif"},
    ("elevenlabs-speeches", "POST"): {"text": "."},  # a silence, for which nobody waits
    ("elevenlabs-streams", "POST"): {"text": "."},
}


def walk(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Yield the path of each route below some patterns."""
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from walk(pattern.url_patterns, path)
        else:
            yield path, pattern


def described_operations() -> set[tuple[str, str]]:
    """Return path and method of each operation of the API's description."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some wheels lack the fast one
    paths = yaml.load((PROJECT / "openapi.yaml").read_text(), Loader=loader)["paths"]
    return {
        (path, method.upper())
        for path, operations in paths.items()
        for method in operations
        if method in METHODS
    }


def served_operations() -> dict[tuple[str, str], Route]:
    """Return the route of each path and method below /api/v1 that the URL conf leads to."""
    return {
        ("/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path), name.upper()): (
            str(pattern.name), name.upper(),
        )
        for path, pattern in walk(get_resolver().url_patterns)
        if path.startswith("api/")
        for name in METHODS
        if hasattr(getattr(pattern.callback, "view_class", None), name)
    }  # fmt: skip


def other_pages() -> set[str]:
    """Return the paths outside of the APIs."""
    paths = [path for path, _ in walk(get_resolver().url_patterns)]
    return {path for path in paths if not path.startswith(APIS)}


def read_routes() -> dict[Route, tuple[str, ...]]:
    """Return the parameters of each route by its name and method; `ANY` is a plain function's."""
    found: dict[Route, tuple[str, ...]] = {}
    routes = [
        (pattern, BEHIND.get(str(pattern.name)) or getattr(pattern.callback, "view_class", None))
        for path, pattern in walk(get_resolver().url_patterns)
        if path.startswith(APIS) and not path.startswith("api/internal/")
    ]
    named = {view for pattern, view in routes if pattern.name} | {UnknownRouteView}
    for pattern, view in routes:
        if not pattern.name and (view in named or pattern.callback is list_models):
            continue  # another address of what is asked by its name
        methods = [name for name in METHODS if hasattr(view, name)] or ["any"]
        names = tuple(pattern.pattern.converters)
        if names and str(pattern.name).startswith("book-batch"):
            names = ("book_batch_id",)  # a batch of the other kind
        found |= {(str(pattern.name), method.upper()): names for method in methods}
    return dict(sorted(found.items()))


ROUTES = read_routes()


def things_of(owner: User, states: Sequence[str] = STATES) -> list[Ids]:
    """Return ids of things that are this user's alone, of each state that they may be in."""
    voice, key = make_voice("Private", owner=owner), create_key(owner, "other", scopes=["read"])[0]
    entry = make_lexicon(owner, ("data", "dayta"), name="Mine").entries.get()
    secret_of(owner)
    always: Ids = {
        "voice_id": voice.pk,
        "model_id": voice.pk,  # Fish calls voices so
        "key_id": key.pk,
        "transcript_id": make_transcript(owner).pk,
        "user_id": owner.pk,
        "group_id": Group.objects.create(name="editors").pk,
        "lexicon_id": entry.lexicon_id,
        "entry_id": entry.pk,
        "endpoint_id": make_endpoint(owner).pk,
        "name": "tts-1",
    }
    return [always | _work_of(owner, status, voice=voice, text=SECRET) for status in states]


def _work_of(owner: User, status: str, **fields: Any) -> Ids:
    def make() -> Any:
        if status == "succeeded":
            return make_ended_job(owner, **fields)
        return make_job(
            owner=owner, status=status, segments_failed=int(status == "failed"), **fields
        )

    job = make()
    if status == "failed":
        job.segments.update(status=status)
    book = store_book(owner, voice="Private", job=None if status == "queued" else make())
    return {
        "status": status,
        "job_id": job.pk,
        "segment_id": job.segments.get().pk,
        "batch_id": make_batch(owner, status).pk,
        "book_batch_id": make_book_batch(owner, ended_at=None, closed_at=None).pk,
        "book_id": book.pk,
        "chapter": load_plan(book).chapters[0].id,
        "file_id": make_book_file(book).pk if book.job else uuid.uuid4(),
        "delivery_id": make_delivery(owner, job=job).pk,
        "take": job.segments.get().take_id or make_take().pk,
    }


def ask(client: APIClient, route: Route, ids: Ids, method: str = "") -> Any:
    """Ask a route for a thing, with a body that it takes."""
    path = reverse(route[0], args=[ids[name] for name in ROUTES[route]])
    body = BODIES.get(route, {})
    if route[0] in ("job-segment-choose", "review-approve"):
        body = {"take": str(ids["take"])}
    content = json.dumps(body) if method or route[1] != "GET" else ""
    return client.generic(method or route[1], path, content, content_type="application/json")


def rows_of(owner: User) -> list[Any]:
    """Return all that is stored, but for what notes requests: the keys of others, and the log."""
    models = [m for m in apps.get_models() if m._meta.app_label in ("synth", "voices", "auth")]
    tables = [model._default_manager.all() for model in models if model not in (ApiKey, AuditEntry)]
    tables.append(ApiKey.objects.filter(user=owner))
    return [list(table.order_by("pk").values()) for table in tables]


@contextmanager
def undone() -> Iterator[None]:
    """Take back what is written to the database inside."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def client_with(user: User, *scopes: str) -> APIClient:
    """Return a client whose key has these scopes."""
    _, key = create_key(user, "scoped", scopes=scopes)
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")
