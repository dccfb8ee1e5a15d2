"""Every route, asked by another user and by nobody: nothing of the first user's is there for them.

A route without a case here fails a test, so that whoever adds one has to say whose it is.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.models import ApiKey, AuditEntry
from synth.webhooks import secret_of
from tests.answers import refusal_of
from tests.api.routes import (
    PUBLIC,
    ROUTES,
    SECRET,
    SOCKETS,
    USERS,
    Ids,
    Route,
    ask,
    client_with,
    described_operations,
    other_pages,
    rows_of,
    served_operations,
    things_of,
    undone,
)
from tests.factories import RIGHTS_OF_PEOPLE, make_job, make_lexicon, make_user, make_voice

pytestmark = pytest.mark.django_db

# Pages without a log-in: they say nothing of anybody's things.
OPEN_TO_ALL = {"about", "licences", "healthz", "readyz"}
LEADING_TO_LOG_IN = {"", "studio", "account"}
ASKING_FOR_A_KEY = {"metrics"}
LOG_IN = {"admin/login/", "admin/login/code", "admin/logout/"}
# What is refused to others, by what stands first in the path.
HIDDEN = {
    "batch_id": "batch_not_found",
    "book_batch_id": "book_batch_not_found",
    "book_id": "book_not_found",
    "delivery_id": "delivery_not_found",
    "endpoint_id": "endpoint_not_found",
    "group_id": "superuser_required",
    "job_id": "job_not_found",
    "key_id": "key_not_found",
    "lexicon_id": "lexicon_not_found",
    "model_id": "voice_not_found",
    "segment_id": "segment_not_found",
    "transcript_id": "transcript_not_found",
    "user_id": "superuser_required",
    "voice_id": "voice_not_found",
}
# A list shows what is one's own, whatever the filter.
LISTS: dict[str, tuple[str, ...]] = {
    "batches": ("status=queued,succeeded",),
    "book-batches": (),
    "books": ("ids={book_id}", "batch={book_batch_id}", "status=planned,running,succeeded"),
    "jobs": (
        *("ids={job_id}", "batch={batch_id}", "voice={voice_id}", "voice=Private"),
        "status=queued,running,succeeded,failed",
    ),
    "keys": (),
    "lexicons": ("name=mine", "scope=named"),
    "review": ("job={job_id}", "book={book_id}", "status=failed,done"),
    "webhook-deliveries": ("job={job_id}",),
    "webhook-endpoints": (),
}
# Something new is made for whoever asks, or what every user has one of.
OWN = {
    *(("batches", "POST"), ("book-batches", "POST"), ("books", "POST"), ("jobs", "POST")),
    *(("keys", "POST"), ("lexicons", "POST"), ("lexicons-preview", "POST"), ("preview", "POST")),
    ("voice-transcripts", "POST"),
    *(("v1-speeches", "POST"), ("fish-speeches", "POST"), *SOCKETS),
    *(("v1-voices", "POST"), ("voices", "POST")),
    *(("voices-import", "POST"), ("voices-import-codes", "POST"), ("webhook-endpoints", "POST")),
    *(("review-approve-all", "POST"), ("webhook-secret", "GET"), ("webhook-secret-rotate", "POST")),
}
# All see how busy the service is, and the voices that are everybody's.
SHARED = {
    ("audit", "GET"),  # refused to who does not see the installation; it has tests of its own
    *(("overview", "GET"), ("stats", "GET"), ("voices", "GET")),
    *(("v1-voices", "GET"), ("v1-models", "GET"), ("v1-audio-models", "GET")),
    *(("elevenlabs-voices", "GET"), ("fish-models", "GET")),
}
ABOUT_ONE = {route: names for route, names in ROUTES.items() if names and names[0] in HIDDEN}
# Nothing is stored of the private voice and of this take; files and covers are made elsewhere.
NEVER_GOOD = {
    *(("voice-audio", "GET"), ("voice-export", "GET"), ("job-segment-audio", "GET")),
    *(("book-cover", "GET"), ("book-cover", "PUT"), ("book-sample", "GET")),
    *(("book-approve", "POST"), ("book-batch-report", "GET"), ("book-batch-approve", "POST")),
    *(("book-batch-retry", "POST"), ("lexicon-import", "POST")),
}


@pytest.fixture
def first(job_services: None) -> User:
    return make_user("first")


@pytest.fixture
def things(first: User) -> list[Ids]:
    """What the first user has."""
    return things_of(first)


@pytest.fixture
def owner(first: User) -> APIClient:
    return client_with(first, "read", "jobs", "voices")


@pytest.fixture
def second() -> APIClient:
    """Another user, whose key has all rights that a user has."""
    return client_with(make_user("second"), *RIGHTS_OF_PEOPLE)


def of_states(things: list[Ids], route: Route) -> list[Ids]:
    """Return the things to ask a route for: of jobs, batches and books those of each state."""
    has_states = ROUTES[route][0] in ("job_id", "batch_id", "book_id")
    return things if has_states else things[-2:]


def listed(client: APIClient, name: str, query: str = "") -> list[dict[str, Any]]:
    answer = client.get(f"{reverse(name)}?{query}")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_routes_are_those_of_the_description_and_the_pages_that_are_named() -> None:
    """A new route of the API is in all these tests by its description, a page is named here."""
    served, described = served_operations(), described_operations()

    assert described - served.keys() == set()
    undescribed = {served[operation] for operation in served.keys() - described}
    # What workers elsewhere call has tests of its own, in tests/workers/remote.
    elsewhere = {("worker-call", "POST")}
    assert undescribed == {("schema", "GET"), ("docs", "GET"), *elsewhere}
    assert set(served.values()) - elsewhere == {
        route for route in ROUTES if route in set(served.values())
    }
    pages = {path for path in other_pages() if not path.startswith("admin/")}
    assert pages == OPEN_TO_ALL | LEADING_TO_LOG_IN | ASKING_FOR_A_KEY
    assert other_pages() >= LOG_IN


def test_every_route_has_a_case_and_every_case_a_route() -> None:
    alone = [route for route in ROUTES if not ROUTES[route] and route[0] not in USERS]
    cases = [*OWN, *SHARED, *PUBLIC, *((name, "GET") for name in LISTS)]

    assert sorted(alone) == sorted(cases)
    assert {names[0] for names in ROUTES.values() if names} == {*HIDDEN, "name"}
    assert len(ABOUT_ONE) > 60 and ABOUT_ONE.keys() > NEVER_GOOD


def answers_that_show(
    client: APIClient, routes: Iterable[Route], things: list[Ids]
) -> dict[Route, set[tuple[int, str]]]:
    """Return by route the answers from which somebody learns that these things are there."""
    wrong = {}
    for route in routes:
        expected = (403 if route[0] in USERS else 404, HIDDEN[ROUTES[route][0]])
        found = {refusal_of(ask(client, route, ids)) for ids in of_states(things, route)}
        if route[1] == "GET" and ask(client, route, things[0], "HEAD").status_code != expected[0]:
            found.add((0, "HEAD"))
        if found != {expected}:
            wrong[route] = found
    return wrong


def test_thing_of_another_user_does_not_exist(
    first: User, things: list[Ids], second: APIClient
) -> None:
    before = rows_of(first)

    assert answers_that_show(second, ABOUT_ONE, things) == {}
    assert rows_of(first) == before


def test_webhooks_of_another_user_do_not_exist_for_a_superuser_either(
    first: User, things: list[Ids]
) -> None:
    """A superuser sees the other things of all users."""
    boss = client_with(make_user("boss", is_superuser=True), *RIGHTS_OF_PEOPLE)
    routes = [route for route in ABOUT_ONE if route[0].startswith("webhook")]
    before = rows_of(first)

    assert len(routes) >= 5
    assert answers_that_show(boss, routes, things) == {}
    assert listed(boss, "webhook-endpoints") == []
    assert listed(boss, "webhook-deliveries") == []
    assert rows_of(first) == before


def test_what_another_user_is_refused_its_owner_gets(owner: APIClient, things: list[Ids]) -> None:
    refused = {}

    for route in ABOUT_ONE:
        answers = []
        for ids in of_states(things, route):
            with undone():
                answers.append(ask(owner, route, ids).status_code)
            if answers[-1] < 300:
                break
        else:
            refused[route] = answers

    assert refused.keys() == NEVER_GOOD | {route for route in ABOUT_ONE if route[0] in USERS}


@pytest.mark.parametrize("name", LISTS)
def test_list_holds_nothing_of_another_user_whatever_the_filter(
    name: str, owner: APIClient, second: APIClient, things: list[Ids]
) -> None:
    own = owner.get(reverse(name), {"limit": 1}).json()
    assert own["results"]
    mine = {one["id"] for one in listed(second, name)}
    num_own = 1 if name == "keys" else 0  # the key that asks
    assert len(mine) == num_own
    queries = [query.format(**ids) for query in LISTS[name] for ids in things[-2:]]
    queries += [own["next"].partition("?")[2]] if own["next"] else []

    for query in queries:
        assert {one["id"] for one in listed(second, name, query)} <= mine, query
    assert mine.isdisjoint(one["id"] for one in listed(owner, name, "limit=100"))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("jobs", {"text": "Something else.", "voice": "Ada"}),
        ("batches", {"items": [{"text": "Hello."}], "defaults": {"voice": "Ada"}}),
        ("books", {}),
        ("book-batches", {"entries": []}),
    ],
)
def test_same_idempotency_key_of_another_user_makes_a_thing_of_his_own(
    name: str, body: dict[str, Any], owner: APIClient, second: APIClient
) -> None:
    make_voice("Ada", shared=True)

    def send(client: APIClient) -> Any:
        headers = {"Idempotency-Key": "a-key-that-both-use"}
        if name != "books":
            return client.post(reverse(name), body, format="json", headers=headers)
        form = {"file": SimpleUploadedFile("a.txt", b"Some words.")}
        return client.post(reverse(name), form, format="multipart", headers=headers)

    answers = [send(client) for client in (owner, second)]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] != answers[1].json()["id"]


def test_what_all_users_share_tells_nothing_of_ones_jobs(
    first: User, things: list[Ids], second: APIClient
) -> None:
    voice = make_voice("Ada", shared=True)
    jobs = [make_job(owner=first, voice=voice, text=SECRET).pk, *(ids["job_id"] for ids in things)]
    shared = {"voice_id": voice.pk, "name": "tts-1"}
    routes = [*SHARED, ("voice", "GET"), ("voice-audio", "GET"), ("voice-export", "GET")]
    routes.remove(("audit", "GET"))

    for route in routes:
        answer = ask(second, route, shared)
        text = "" if answer.streaming else json.dumps(answer.json())
        assert not [job for job in [SECRET, *jobs] if str(job) in text], route


def test_nothing_is_there_without_a_key(first: User, things: list[Ids]) -> None:
    before = rows_of(first)

    nobody, routes = APIClient(), ROUTES.keys() - PUBLIC
    answers = {route: refusal_of(ask(nobody, route, things[-1])) for route in routes}

    assert set(answers.values()) == {(401, "not_authenticated")}, answers
    assert rows_of(first) == before


@pytest.mark.parametrize("state", ["expired", "revoked"])
def test_nothing_is_there_with_a_key_that_is_over(
    state: str, first: User, things: list[Ids]
) -> None:
    """It is the owner's own, with all rights, and so would open everything."""
    first.is_superuser = True
    first.save()
    row, key = create_key(first, "over", scopes=RIGHTS_OF_PEOPLE)
    now = timezone.now()
    over = {"expires_at": now} if state == "expired" else {"revoked_at": now}
    ApiKey.objects.filter(pk=row.pk).update(**over)
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")
    before, log = rows_of(first), AuditEntry.objects.count()

    routes = ROUTES.keys() - PUBLIC
    answers = {route: refusal_of(ask(client, route, things[-1])) for route in routes}

    assert set(answers.values()) == {(401, f"key_{state}")}, answers
    assert (rows_of(first), AuditEntry.objects.count()) == (before, log)


def test_page_outside_of_the_apis_is_open_to_nobody(client: Client) -> None:
    places = other_pages() - OPEN_TO_ALL - LOG_IN
    assert len(places) > 100
    wrong = {}
    for place in places:
        path = "/" + re.sub(r"<(uuid|\w*):?\w*>", _value_of, place).removesuffix("(?P<url>.*)$")
        for method in ("get", "post"):
            answer = getattr(client, method)(path, HTTP_HOST="localhost")
            leads = answer.headers.get("Location", "").startswith(("/admin/login/", "/studio"))
            code = answer.status_code
            if not (leads if code == 302 else code in (401, 403, 404, 405)):
                wrong[place, method] = code

    assert wrong == {}


def _value_of(found: re.Match[str]) -> str:
    return str(uuid.UUID(int=1)) if found[1] == "uuid" else "1"


def test_page_outside_of_the_apis_shows_nothing_of_another_user(
    first: User, things: list[Ids], client: Client
) -> None:
    """Both may use every page of the admin but those of users."""
    clerk = make_user("clerk", is_staff=True)
    User.objects.filter(pk=first.pk).update(is_staff=True)
    pages = Permission.objects.filter(content_type__app_label__in=("synth", "voices"))
    for user in (first, clerk):
        user.user_permissions.set(pages)
    secret_of(clerk)
    marks = (SECRET, "Private", "dayta")  # not ids: who asks by one is told that it is not there

    def shown(*methods: str) -> set[str]:
        found = set()
        for place in sorted(other_pages() - LOG_IN):
            for pk in _rows_behind(place):
                path = "/" + re.sub(r"<[^>]*>", pk, place).removesuffix("(?P<url>.*)$")
                for method in methods:
                    answer = getattr(client, method)(path, {"post": "yes"}, HTTP_HOST="localhost")
                    page = b"" if answer.streaming else answer.content
                    if any(mark.encode() in page for mark in marks):
                        found.add(path)
        return found

    client.force_login(clerk)
    before = rows_of(first)
    assert shown("get", "post") == set()
    assert rows_of(first) == before
    client.force_login(first)
    assert len(shown("get")) > 20


def _rows_behind(place: str) -> list[str]:
    """Return the keys of some rows that a page of the admin may be asked for."""
    found = re.match(r"admin/(\w+)/(\w+)/.*<", place)
    if found is None:
        return ["1"]
    try:
        rows = apps.get_model(found[1], found[2])._default_manager
    except LookupError:  # a page of another form
        return ["1"]
    return [str(quote(str(pk))) for pk in rows.values_list("pk", flat=True)[:5]] or ["1"]


def test_every_user_has_a_webhook_secret_of_his_own(owner: APIClient, second: APIClient) -> None:
    path = reverse("webhook-secret")
    secret = owner.get(path).json()["secret"]

    assert second.get(path).json()["secret"] != secret
    second.post(reverse("webhook-secret-rotate"))
    assert owner.get(path).json()["secret"] == secret


def test_everybodys_lexicon_is_read_by_all_and_changed_by_administrators_alone(
    first: User, second: APIClient
) -> None:
    entry = make_lexicon(None, ("data", "dayta")).entries.get()
    ids = {"lexicon_id": entry.lexicon_id, "entry_id": entry.pk}
    before = rows_of(first)

    for route in (route for route in ABOUT_ONE if route[0].startswith("lexicon")):
        answer = ask(second, route, ids)
        if route[1] == "GET":
            assert answer.status_code == 200, route
        else:
            assert refusal_of(answer) == (403, "lexicon_shared"), route
    assert rows_of(first) == before


def test_lexicons_are_made_by_whoever_may(
    first: User, things: list[Ids], second: APIClient
) -> None:
    path, house = reverse("lexicons"), {"name": "House", "shared": True}
    boss = client_with(make_user(is_superuser=True), "jobs", "admin")

    own = second.post(path, {"name": "Mine"}).json()  # as another user calls one of his
    stranger = second.delete(reverse("lexicon-entry", args=[own["id"], things[0]["entry_id"]]))
    made = boss.post(path, house)

    assert refusal_of(stranger) == (404, "entry_not_found")
    assert refusal_of(second.post(path, house)) == (403, "lexicon_shared")
    assert (made.status_code, made.json()["shared"]) == (201, True)


@pytest.mark.parametrize("named", ["Mine", "id"])
@pytest.mark.parametrize("is_superuser", [False, True])
def test_lexicon_of_another_user_never_changes_what_is_spoken(
    named: str, is_superuser: bool, first: User
) -> None:
    """It is global, so that it would be heard by whoever it applied to."""
    said = "Unannounced"
    private = make_lexicon(first, ("data", said), name="Mine", scope="global")
    make_voice("Ada", shared=True)
    other = make_user("other", is_superuser=is_superuser)
    client = client_with(other, "read", "jobs", *["admin"] * is_superuser)
    text = {"text": "All of the data is here.", "voice": "Ada"}
    name = str(private.pk) if named == "id" else named

    plain, job = client.post(reverse("preview"), text), client.post(reverse("jobs"), text)
    asked = client.post(reverse("preview"), text | {"lexicons": [name]})
    alone = client.post(reverse("lexicons-preview"), {"text": text["text"], "name": name})

    assert (plain.status_code, job.status_code) == (200, 202)
    assert refusal_of(asked) == refusal_of(alone) == (404, "lexicon_not_found")
    segments = client.get(reverse("job-segments", args=[job.json()["id"]]))
    assert said not in plain.content.decode() + segments.content.decode()
