"""Every route of both APIs, asked with keys that may do little.

The routes are read from the URL conf, so that a new one is asked as well.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.urls import get_resolver, reverse
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from synth.audiobooks.plans import load_plan
from synth.models import ApiKey, RenderJob
from tests.api.test_other_tenant import PUBLIC, Route, walk
from tests.factories import (
    make_batch,
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
from tests.synth.books_api.shelf import store_book
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)

Scope = ApiKey.Scope
READING = {"GET"}
CONFIDENTIAL = {("webhook-secret", "GET")}  # who reads it can forge messages
NO_ROUTE = "v1-unknown"
# Superusers alone manage them; test_user_views and test_group_views ask for that.
USERS = {"users", "user", "groups", "group", "permissions"}
KEYS = {"keys", "key"}  # any scope that writes is enough, and bounds what a new key may do


def all_routes() -> list[Route]:
    """Return name and method of each route that takes a key."""
    routes: set[Route] = set()
    for path, pattern in walk(get_resolver().url_patterns):
        if not path.startswith(("api/", "v1/")) or pattern.name == NO_ROUTE:
            continue
        view: Any = getattr(pattern.callback, "view_class", None)
        methods = [name for name in view.http_method_names if hasattr(view, name)]
        names = {name.upper() for name in methods} - {"OPTIONS", "HEAD"}
        routes |= {(str(pattern.name), name) for name in names}
    return sorted(route for route in routes - PUBLIC if route[0] not in USERS)


ROUTES = all_routes()
WRITING = [route for route in ROUTES if route[1] not in READING]


def client_with(user: User, *scopes: str) -> APIClient:
    """Return a client whose key has these scopes."""
    _, key = create_key(user, "scoped", scopes=scopes)
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")


@pytest.fixture
def owner(job_services: None) -> User:
    """The user of the keys."""
    return make_user("owner")


def path_of(name: str, owner: User) -> str:
    """Return the path of a route for something that is there."""
    if name in ("v1-model",):
        return reverse(name, args=["tts-1"])
    if name.startswith("job-segment") and name != "job-segments":
        job = make_ended_job(owner)
        return reverse(name, args=[job.pk, job.segments.get().pk])
    if name in ("review-segment", "review-approve"):
        return reverse(name, args=[make_ended_job(owner).segments.get().pk])
    if name in ("job", "v1-speech") or name.startswith("job-"):
        return reverse(name, args=[make_ended_job(owner).pk])
    if name.startswith("webhook-endpoint") and name != "webhook-endpoints":
        return reverse(name, args=[make_endpoint(owner).pk])
    if name.startswith("webhook-delivery"):
        return reverse(name, args=[make_delivery(owner).pk])
    if name.startswith("batch") and name != "batches":
        return reverse(name, args=[make_batch(owner, RenderJob.Status.SUCCEEDED).pk])
    if name.startswith("book-batch") and name != "book-batches":
        return reverse(name, args=[make_book_batch(owner).pk])
    if name.startswith("book-file") and name != "book-files":
        book = store_book(owner, job=make_ended_job(owner))
        return reverse(name, args=[book.pk, make_book_file(book).pk])
    if name == "book-chapter":
        book = store_book(owner)
        return reverse(name, args=[book.pk, load_plan(book).chapters[0].id])
    if name.startswith("book") and name not in ("books", "book-batches"):
        return reverse(name, args=[store_book(owner, job=make_ended_job(owner)).pk])
    if name.startswith("lexicon") and name not in ("lexicons", "lexicons-preview"):
        entry = make_lexicon(owner, ("data", "dayta")).entries.get()
        ids = [entry.lexicon_id, entry.pk] if name == "lexicon-entry" else [entry.lexicon_id]
        return reverse(name, args=ids)
    if name in ("voice", "v1-voice") or name.startswith("voice-"):
        return reverse(name, args=[make_voice(owner=owner).pk])
    if name == "key":
        return reverse(name, args=[create_key(owner, "other", scopes=[Scope.READ])[0].pk])
    return reverse(name)


def code_of(answer: Any) -> str:
    """Return the code of a refusal, in whichever form."""
    body = answer.json()
    return str(body.get("error", body)["code"])


def routes_of_users() -> list[Route]:
    """Return the routes of users, which `all_routes` leaves out."""
    found: list[Route] = []
    for path, pattern in walk(get_resolver().url_patterns):
        if path.startswith("api/") and pattern.name in USERS:
            view: Any = getattr(pattern.callback, "view_class", None)
            methods = [one for one in ("get", "post", "patch", "delete") if hasattr(view, one)]
            found += [(str(pattern.name), method.upper()) for method in methods]
    return found


@pytest.mark.parametrize("route", routes_of_users())
def test_users_take_the_scope_admin_of_a_superuser(route: Route, job_services: None) -> None:
    name, method = route
    boss = make_user("boss", is_superuser=True)
    ids = {"user": make_user("other").pk, "group": Group.objects.create(name="editors").pk}
    path = reverse(name, args=[ids[name]] if name in ids else [])

    lacking = client_with(boss, Scope.READ, Scope.JOBS, Scope.VOICES).generic(method, path)
    having = client_with(boss, Scope.ADMIN).generic(method, path)

    assert (lacking.status_code, code_of(lacking)) == (403, "scope_missing")
    assert having.status_code != 403


def test_routes_of_both_apis_are_found() -> None:
    assert {("jobs", "POST"), ("v1-speeches", "POST"), ("voice", "PATCH")} <= set(WRITING)
    assert ("v1-voices", "GET") in ROUTES


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route[1] in READING and route not in CONFIDENTIAL]
)
def test_key_that_may_read_reads(route: Route, owner: User) -> None:
    answer = client_with(owner, Scope.READ).get(path_of(route[0], owner))

    # The clip of this voice and the take of this segment were never stored; the book has no cover.
    not_stored = ("voice-audio", "voice-export", "job-segment-audio", "book-sample", "book-cover")
    assert answer.status_code in (200, 204) or route[0] in not_stored
    assert answer.status_code != 403


@pytest.mark.parametrize("route", sorted(CONFIDENTIAL))
def test_what_is_confidential_takes_more_than_reading(route: Route, owner: User) -> None:
    path = path_of(route[0], owner)

    assert client_with(owner, Scope.READ).get(path).status_code == 403
    assert client_with(owner, Scope.JOBS).get(path).status_code == 200


@pytest.mark.parametrize("route", WRITING)
def test_key_that_may_only_read_changes_nothing(route: Route, owner: User) -> None:
    name, method = route
    path = path_of(name, owner)
    before = [list(table.objects.order_by("pk").values()) for table in (RenderJob, Voice)]

    answer = client_with(owner, Scope.READ).generic(method, path)

    assert (answer.status_code, code_of(answer)) == (403, "scope_missing")
    needed = "voices" if "voice" in name else "jobs"
    assert f"lacks the scope '{needed}'; it has: read" in answer.content.decode()
    assert [list(t.objects.order_by("pk").values()) for t in (RenderJob, Voice)] == before


@pytest.mark.parametrize("route", ROUTES)
def test_key_without_any_scope_is_refused_everywhere(route: Route, owner: User) -> None:
    answer = client_with(owner).generic(route[1], path_of(route[0], owner))

    assert (answer.status_code, code_of(answer)) == (403, "scope_missing")


@pytest.mark.parametrize("route", [route for route in WRITING if route[0] not in KEYS])
def test_scope_of_the_other_kind_of_thing_is_not_enough(route: Route, owner: User) -> None:
    other = Scope.JOBS if "voice" in route[0] else Scope.VOICES
    client = client_with(owner, Scope.READ, other, Scope.ADMIN)

    assert client.generic(route[1], path_of(route[0], owner)).status_code == 403


@pytest.mark.parametrize("route", WRITING)
def test_key_as_it_is_made_may_write(route: Route, owner: User) -> None:
    _, key = create_key(owner, "plain")
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")

    assert client.generic(route[1], path_of(route[0], owner)).status_code != 403


def test_superusers_key_sees_jobs_of_others_with_admin_alone(job_services: None) -> None:
    boss = make_user("boss", is_superuser=True)
    job = make_job(owner=make_user())
    path = reverse("job", args=[job.pk])

    assert client_with(boss, Scope.READ).get(path).status_code == 404
    assert client_with(boss, Scope.READ, Scope.ADMIN).get(path).status_code == 200
    boss.refresh_from_db()
    assert boss.is_superuser


def test_admin_scope_gives_a_user_no_more_than_the_user_may(owner: User) -> None:
    path = reverse("job", args=[make_job(owner=make_user()).pk])

    assert client_with(owner, Scope.READ, Scope.ADMIN).get(path).status_code == 404


def test_session_of_a_user_needs_no_scope(owner: User) -> None:
    client = APIClient()
    client.force_login(owner)

    assert client.get(reverse("jobs")).status_code == 200
    answer = client.post(reverse("jobs"), {"text": "Hello.", "voice": make_voice("Ada").name})
    assert answer.status_code == 202
