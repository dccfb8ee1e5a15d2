"""Every route of both APIs, asked with keys that may do little."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.models import ApiKey
from tests.answers import refusal_of
from tests.api.routes import (
    PUBLIC,
    ROUTES,
    SOCKETS,
    USERS,
    Ids,
    ask,
    client_with,
    rows_of,
    things_of,
    undone,
)
from tests.factories import make_job, make_user, make_voice

pytestmark = pytest.mark.django_db

Scope = ApiKey.Scope
READ, JOBS, VOICES, ADMIN = Scope.READ, Scope.JOBS, Scope.VOICES, Scope.ADMIN
CONFIDENTIAL = ("webhook-secret", "GET")  # who reads it can forge messages
KEYED = [route for route in ROUTES if route[0] not in USERS and route not in PUBLIC]
READING = [route for route in KEYED if route[1] == "GET" and route not in (CONFIDENTIAL, *SOCKETS)]
WRITING = [route for route in KEYED if route[1] != "GET"]


@pytest.fixture
def owner(job_services: None) -> User:
    return make_user("owner")


@pytest.fixture
def ids(owner: User) -> Ids:
    """What the owner of the keys has, all of it done."""
    return things_of(owner, ["succeeded"])[0] | {"user_id": make_user("other").pk}


def test_routes_of_both_apis_are_found() -> None:
    assert {("jobs", "POST"), ("v1-speeches", "POST"), ("voice", "PATCH")} <= set(WRITING)
    assert ("v1-voices", "GET") in READING


def test_users_take_the_scope_admin_of_a_superuser(ids: Ids) -> None:
    boss = make_user("boss", is_superuser=True)
    lacking, having = client_with(boss, READ, JOBS, VOICES), client_with(boss, ADMIN)

    for route in (route for route in ROUTES if route[0] in USERS):
        assert refusal_of(ask(lacking, route, ids)) == (403, "scope_missing"), route
        with undone():
            assert ask(having, route, ids).status_code != 403, route


def test_key_that_may_read_reads(owner: User, ids: Ids) -> None:
    client = client_with(owner, READ)
    statuses = {route[0]: ask(client, route, ids).status_code for route in READING}

    # The clip of this voice and the take of this segment were never stored; the book has no
    # sample and no cover, and the batch of books goes on.
    not_stored = ("voice-audio", "voice-export", "job-segment-audio", "book-sample", "book-cover")
    bad = {name for name, status in statuses.items() if status not in (200, 204)}
    assert bad == {*not_stored, "book-batch-report", "audit"}
    assert {name for name, status in statuses.items() if status == 403} == {"audit"}  # of all users


def test_what_is_confidential_takes_more_than_reading(owner: User) -> None:
    answers = [ask(client_with(owner, scope), CONFIDENTIAL, {}) for scope in (READ, JOBS)]

    assert [answer.status_code for answer in answers] == [403, 200]


def test_key_that_may_only_read_changes_nothing(owner: User, ids: Ids) -> None:
    client, nobody = client_with(owner, READ), make_user()
    before = rows_of(nobody)

    for route in WRITING:
        answer = ask(client, route, ids)
        needed = "voices" if "voice" in route[0] else "jobs"
        assert refusal_of(answer) == (403, "scope_missing"), route
        assert f"lacks the scope '{needed}'; it has: read" in answer.content.decode(), route
    assert rows_of(nobody) == before


def test_scope_of_another_kind_of_thing_or_none_at_all_is_not_enough(owner: User, ids: Ids) -> None:
    none = client_with(owner)
    of_jobs, of_voices = (client_with(owner, READ, scope, ADMIN) for scope in (JOBS, VOICES))

    for route in KEYED:
        assert refusal_of(ask(none, route, ids)) == (403, "scope_missing"), route
    for route in WRITING:
        if route[0] not in ("keys", "key"):  # any scope that writes is enough for them
            other = of_jobs if "voice" in route[0] else of_voices
            assert ask(other, route, ids).status_code == 403, route


def test_key_of_a_worker_opens_no_route_of_the_apis_whatever_its_user_may(
    job_services: None,
) -> None:
    """The steps of workers, which it opens, are none of these; they have tests of their own."""
    boss = make_user("boss", is_superuser=True, is_staff=True)
    things, client, nobody = things_of(boss), client_with(boss, Scope.WORKER), make_user()
    before = rows_of(nobody)

    for route in ROUTES.keys() - PUBLIC:
        for ids in things:
            assert refusal_of(ask(client, route, ids)) == (403, "scope_missing"), route
    assert client.get("/metrics").status_code == 403
    assert rows_of(nobody) == before


def test_key_as_it_is_made_may_write(owner: User, ids: Ids) -> None:
    _, key = create_key(owner, "plain")
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")

    for route in WRITING:
        with undone():
            assert ask(client, route, ids).status_code != 403, route


def test_superusers_key_sees_jobs_of_others_with_admin_alone(job_services: None) -> None:
    boss = make_user("boss", is_superuser=True)
    path = reverse("job", args=[make_job(owner=make_user()).pk])

    answers = [client_with(boss, READ, *more).get(path) for more in ((), (ADMIN,))]

    assert [answer.status_code for answer in answers] == [404, 200]
    boss.refresh_from_db()
    assert boss.is_superuser


def test_admin_scope_gives_a_user_no_more_than_the_user_may(owner: User) -> None:
    path = reverse("job", args=[make_job(owner=make_user()).pk])
    assert client_with(owner, READ, ADMIN).get(path).status_code == 404


def test_session_of_a_user_needs_no_scope(owner: User) -> None:
    client = APIClient()
    client.force_login(owner)

    made = client.post(reverse("jobs"), {"text": "Hello.", "voice": make_voice("Ada").name})

    assert (client.get(reverse("jobs")).status_code, made.status_code) == (200, 202)
