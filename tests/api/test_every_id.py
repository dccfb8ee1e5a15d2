"""Every route with an id in it, read from the URL conf, asked for what belongs to another user.

A route whose parameter is not known here fails: whoever adds one says what it stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.urls import get_resolver, reverse
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from tests.api.test_other_tenant import Route, walk
from tests.factories import (
    make_batch,
    make_book,
    make_book_batch,
    make_book_file,
    make_delivery,
    make_ended_job,
    make_endpoint,
    make_job,
    make_lexicon,
    make_user,
    make_voice,
)

pytestmark = pytest.mark.django_db(transaction=True)

PUBLIC = {"v1-model"}  # names of models, which are nobody's
HIDDEN = {404}
USERS = {"user", "group"}  # superusers alone manage them, whoever is asked for
REFUSED = {403}
# What is read before the thing is looked for, the same whoever asks.
BODIES = {
    ("job-segment-choose", "POST"): {"take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299"},
    ("review-approve", "POST"): {"take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299"},
    ("book-plan", "PATCH"): {"edits": []},
}


def routes_with_ids() -> dict[Route, tuple[str, ...]]:
    """Return the parameters of each route that has some, by name and method."""
    found: dict[Route, tuple[str, ...]] = {}
    for path, pattern in walk(get_resolver().url_patterns):
        names = tuple(pattern.pattern.converters)
        if not path.startswith(("api/", "v1/")) or not names or pattern.name in PUBLIC:
            continue
        view: Any = pattern.callback.view_class  # type: ignore[attr-defined]  # of `as_view`
        for method in {"get", "post", "put", "patch", "delete"}:
            if hasattr(view, method):
                found[str(pattern.name), method.upper()] = names
    return found


ROUTES = routes_with_ids()


def ids_of(owner: User) -> dict[str, Any]:
    """Return an id of each kind, all of things that are this user's alone."""
    job = make_ended_job(owner)
    entry = make_lexicon(owner, ("data", "dayta")).entries.get()
    book = make_book(owner, job=make_job(owner=owner))
    return {
        "job_id": job.pk,
        "segment_id": job.segments.get().pk,
        "batch_id": make_batch(owner).pk,
        "book_id": book.pk,
        "chapter": "c0",  # of a plan
        "file_id": make_book_file(book).pk,
        "voice_id": make_voice("Private", owner=owner).pk,
        "key_id": create_key(owner, "other")[0].pk,
        "user_id": owner.pk,
        "group_id": Group.objects.create(name="editors").pk,
        "lexicon_id": entry.lexicon_id,
        "entry_id": entry.pk,
        "endpoint_id": make_endpoint(owner).pk,
        "delivery_id": make_delivery(owner).pk,
    }


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_thing_of_another_user_is_not_there(
    route: Route, job_services: None, client_of: Callable[[User], APIClient]
) -> None:
    name, method = route
    ids = ids_of(make_user("first"))
    if name.startswith("book-batch"):
        ids["batch_id"] = make_book_batch(User.objects.get(username="first")).pk
    path = reverse(name, args=[ids[parameter] for parameter in ROUTES[route]])

    answer = client_of(make_user("second")).generic(
        method, path, json.dumps(BODIES.get(route, {})), content_type="application/json"
    )

    assert answer.status_code in (REFUSED if name in USERS else HIDDEN), answer.content


def test_routes_with_ids_are_found() -> None:
    assert {("job", "GET"), ("voice", "DELETE"), ("v1-voice", "DELETE")} <= set(ROUTES)
    assert len(ROUTES) > 50
