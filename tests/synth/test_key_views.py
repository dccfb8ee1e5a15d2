"""API keys over REST: shown once, one's own, and never more than the one that asks for them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from synth.accounts.access import KeyRejectedError, create_key, find_key
from synth.models import ApiKey
from tests.factories import make_user

pytestmark = pytest.mark.django_db

URL = "/api/v1/keys"


def client_with(user: User, *scopes: str, **options: Any) -> APIClient:
    """Return a client whose key has these scopes, or those of a key as it is made."""
    _, key = create_key(user, "asking", scopes=scopes or None, **options)
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")


Wrong = dict[str, list[Any]]  # values that a field does not take, by its name


def cases_of(wrong: Wrong) -> list[tuple[str, dict[str, Any]]]:
    """Return each field's name with each of its wrong values."""
    return [(name, {name: value}) for name, values in wrong.items() for value in values]


def post(client: APIClient, path: str, body: dict[str, Any]) -> Any:
    """Send a body that may hold halves of surrogate pairs, which UTF-8 cannot write."""
    return client.generic("POST", path, json.dumps(body), content_type="application/json")


@pytest.fixture
def user() -> User:
    return make_user("ada")


@pytest.fixture
def client(user: User) -> APIClient:
    return client_with(user)


def test_key_is_made_shown_once_and_opens_the_service(client: APIClient, user: User) -> None:
    made = client.post(URL, {"name": " laptop ", "scopes": ["jobs", "read", "read"]})

    body = made.json()
    assert (made.status_code, made["Cache-Control"]) == (201, "no-store")
    row = find_key(body["key"])
    assert (row.user, row.name, row.scopes) == (user, "laptop", ["read", "jobs"])
    assert made["Location"] == f"{URL}/{row.pk}"
    shown = client.get(f"{URL}/{row.pk}").json()
    assert shown | {"key": body["key"], "last_used_at": None} == body
    assert body["key"] not in client.get(URL).content.decode()
    assert row.digest not in client.get(URL).content.decode()


def test_key_has_the_limits_and_the_expiry_that_were_asked_for(client: APIClient) -> None:
    later = timezone.now() + dt.timedelta(days=3)
    limits = {
        "max_queued_chars": 10, "max_unfinished_jobs": 0,
        "max_requests_per_minute": None, "max_stored_bytes": 2**62,
    }  # fmt: skip
    body = client.post(URL, {"name": "a", "expires_at": later.isoformat(), **limits}).json()

    assert {name: body[name] for name in limits} == limits
    assert dt.datetime.fromisoformat(body["expires_at"]) == later
    assert (body["state"], body["revoked_at"]) == ("active", None)


def test_superuser_with_the_scope_admin_manages_keys_of_all(user: User) -> None:
    boss = make_user("boss", is_superuser=True)
    theirs, _ = create_key(user, "theirs")
    plain, admin = client_with(boss), client_with(boss, "read", "jobs", "voices", "admin")

    assert plain.get(f"{URL}/{theirs.pk}").status_code == 404
    refused = plain.post(URL, {"name": "a", "user": "ada"})
    assert (refused.status_code, refused.json()["code"]) == (403, "superuser_required")
    assert admin.get(f"{URL}/{theirs.pk}").json()["user"] == "ada"
    made = admin.post(URL, {"name": "a", "user": "ada"})
    assert (made.status_code, find_key(made.json()["key"]).user) == (201, user)
    assert admin.post(URL, {"name": "a", "user": "nobody"}).status_code == 404
    assert admin.delete(f"{URL}/{theirs.pk}").status_code == 204


def test_key_gives_no_scope_that_it_lacks_and_touches_none_that_may_more(user: User) -> None:
    client = client_with(user, "read", "jobs")
    weak, _ = create_key(user, "other", scopes=["read"])
    strong, secret = create_key(user, "stronger", scopes=["read", "jobs", "admin"])

    for code, answer in (
        ("scope_not_yours", client.post(URL, {"name": "a", "scopes": ["read", "voices"]})),
        ("scope_not_yours", client.post(URL, {"name": "a", "scopes": ["admin"]})),
        ("scope_not_yours", client.patch(f"{URL}/{weak.pk}", {"scopes": ["read", "voices"]})),
        ("key_may_more", client.patch(f"{URL}/{strong.pk}", {"scopes": ["read"]})),
        ("key_may_more", client.delete(f"{URL}/{strong.pk}")),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, code)
    assert client.post(URL, {"name": "a"}).json()["scopes"] == ["read", "jobs"]
    assert find_key(secret).scopes == ["read", "jobs", "admin"]


def test_key_that_may_everything_makes_and_revokes_those_of_workers_and_no_other_does() -> None:
    boss, clerk = make_user("boss", is_superuser=True, is_staff=True), make_user(is_staff=True)
    scopes, home = ("read", "jobs", "voices", "admin"), {"name": "home", "scopes": ["worker"]}
    own, secret = create_key(clerk, "own", scopes=["worker"])

    refused = [
        client.post(URL, home).json()["code"]
        for client in (client_with(clerk, *scopes), client_with(boss, *scopes[:3]))
    ]
    late = client_with(clerk, *scopes).delete(f"{URL}/{own.pk}")
    admin = client_with(boss, *scopes)
    made = admin.post(URL, home).json()

    assert refused == ["scope_not_yours"] * 2
    assert (late.status_code, late.json()["code"]) == (403, "key_may_more")
    assert find_key(made["key"]).scopes == ["worker"] == find_key(secret).scopes
    assert admin.delete(f"{URL}/{own.pk}").status_code == 204
    with pytest.raises(KeyRejectedError, match="revoked"):
        find_key(secret)


def test_limited_key_cannot_get_rid_of_its_limits(user: User) -> None:
    client = client_with(user, limits={"max_unfinished_jobs": 1})
    own = ApiKey.objects.get()

    for answer in (
        client.post(URL, {"name": "a"}),
        client.patch(f"{URL}/{own.pk}", {"max_unfinished_jobs": None}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "key_has_limits")
    assert client.patch(f"{URL}/{own.pk}", {"name": "b"}).json()["name"] == "b"


def test_key_that_expires_makes_none_that_lives_longer(user: User) -> None:
    soon = timezone.now() + dt.timedelta(hours=1)
    client = client_with(user, expires_at=soon)
    own = ApiKey.objects.get()

    for answer in (
        client.post(URL, {"name": "a"}),
        client.post(URL, {"name": "a", "expires_at": (soon + dt.timedelta(days=1)).isoformat()}),
        client.patch(f"{URL}/{own.pk}", {"expires_at": None}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "expiry_not_yours")
    assert client.post(URL, {"name": "a", "expires_at": soon.isoformat()}).status_code == 201


def test_change_holds_from_the_next_request_on(client: APIClient, user: User) -> None:
    row, secret = create_key(user, "other")

    body = client.patch(f"{URL}/{row.pk}", {"scopes": ["read"], "max_queued_chars": 5}).json()

    assert (body["scopes"], body["max_queued_chars"], body["name"]) == (["read"], 5, "other")
    answer = APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}").post("/api/v1/jobs", {})
    assert answer.json()["code"] == "scope_missing"


def test_revoked_key_opens_nothing_and_stays_to_be_seen(client: APIClient, user: User) -> None:
    row, secret = create_key(user, "lost")

    assert [client.delete(f"{URL}/{row.pk}").status_code for _ in range(2)] == [204, 204]

    shown = client.get(f"{URL}/{row.pk}").json()
    assert shown["state"] == "revoked"
    assert APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}").get(URL).status_code == 401
    answer = client.patch(f"{URL}/{row.pk}", {"name": "found"})
    assert (answer.status_code, answer.json()["code"]) == (409, "key_revoked")


def test_session_manages_keys_without_scopes(user: User) -> None:
    page = APIClient()
    page.force_login(user)

    made = page.post(URL, {"name": "a", "scopes": ["admin"]})

    assert (made.status_code, made.json()["scopes"]) == (201, ["admin"])


WRONG: Wrong = {
    "name": [None, 3, "", "  ", "x" * 101, [], {}, "a\0b", "\ud800"],
    "scopes": [None, "read", [], ["write"], [3], [[]], {}, [None]],
    "expires_at": ["soon", 3, [], {}, "2020-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"],
    "max_queued_chars": [-1, 1.5, "many", True, [], {}, 2**63],
    "max_stored_bytes": [-1, 1.5, "many", True, [], {}, 2**63],
    "prefix": ["abc"],
    "user": [3],
    "revoked_at": [None],
}


def test_field_that_is_none_is_named(client: APIClient) -> None:
    before = ApiKey.objects.count()
    for attr, fields in cases_of(WRONG):
        answer = post(client, URL, {"name": "a"} | fields)
        assert answer.status_code == 400, fields
        assert answer.json()["errors"][0]["attr"].split(".")[0] == attr, fields
    assert ApiKey.objects.count() == before


def test_body_that_is_no_object_is_refused(client: APIClient) -> None:
    own = f"{URL}/{ApiKey.objects.get().pk}"
    bodies: list[Any] = [[], "text", 3, None]
    for body in bodies:
        for send, path in ((client.post, URL), (client.patch, own)):
            answer = send(path, body, format="json")
            assert answer.status_code == 400 or (body is None and answer.status_code == 200)


def test_list_is_paged(client: APIClient, user: User) -> None:
    for number in range(3):
        create_key(user, str(number))
    first = client.get(f"{URL}?limit=3").json()
    second = client.get(first["next"]).json()

    names = [one["name"] for page in (first, second) for one in page["results"]]
    assert names == ["2", "1", "0", "asking"]
    assert client.get(f"{URL}?user=ada").json()["code"] == "unknown_field"
