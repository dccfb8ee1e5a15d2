"""Users over REST: for superusers, whose keys need the scope `admin`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import Group, User
from rest_framework.test import APIClient

from tests.factories import make_user
from tests.synth.test_key_views import anything, client_with, post

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    """A user without rights."""
    return make_user("ada")


USERS = "/api/v1/users"


@pytest.fixture
def boss() -> APIClient:
    return client_with(make_user("boss", is_superuser=True), "admin")


def test_superuser_makes_changes_and_deletes_users(
    boss: APIClient, login: Callable[[str, str], bool]
) -> None:
    Group.objects.create(name="editors")
    made = boss.post(USERS, {"username": "eve", "password": "a-long-pass-9", "groups": ["editors"]})
    body = made.json()

    assert (made.status_code, body["groups"], body["is_staff"]) == (201, ["editors"], False)
    assert "password" not in body and body["has_password"] is True
    assert login("eve", "a-long-pass-9")
    path = made["Location"]
    changed = boss.patch(path, {"is_staff": True, "groups": [], "password": "another-pass-9"})
    assert (changed.json()["is_staff"], changed.json()["groups"]) == (True, [])
    assert login("eve", "another-pass-9") and not login("eve", "a-long-pass-9")
    assert boss.patch(path, {"is_active": False}).json()["is_active"] is False
    assert not login("eve", "another-pass-9")
    assert [one["username"] for one in boss.get(USERS).json()["results"]] == ["boss", "eve"]
    assert boss.delete(path).status_code == 204
    assert boss.get(path).status_code == 404


@pytest.fixture
def login() -> Callable[[str, str], bool]:
    return lambda name, password: authenticate(username=name, password=password) is not None


def test_user_without_a_password_has_keys_alone(
    boss: APIClient, login: Callable[[str, str], bool]
) -> None:
    body = boss.post(USERS, {"username": "robot"}).json()

    assert body["has_password"] is False
    assert not login("robot", "")


def test_users_are_for_superusers_with_the_scope_admin(user: User) -> None:
    boss = make_user("boss", is_superuser=True)
    page = APIClient()
    page.force_login(user)

    for client, code in (
        (client_with(boss), "scope_missing"),
        (client_with(user, "read", "admin"), "superuser_required"),
        (page, "superuser_required"),
    ):
        for answer in (
            client.get(USERS),
            client.post(USERS, {"username": "eve"}),
            client.get(f"{USERS}/{user.pk}"),
            client.patch(f"{USERS}/{user.pk}", {"is_superuser": True}),
            client.delete(f"{USERS}/{boss.pk}"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, code)
    assert User.objects.count() == 2


def test_nobody_takes_the_own_rights_away(boss: APIClient) -> None:
    path = f"{USERS}/{User.objects.get().pk}"

    for answer in (
        boss.delete(path),
        *(boss.patch(path, {right: False}) for right in ("is_active", "is_superuser", "is_staff")),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "own_account")


def test_name_that_is_taken_is_refused(boss: APIClient, user: User) -> None:
    for answer in (
        boss.post(USERS, {"username": "ada"}),
        boss.patch(f"{USERS}/{make_user('bob').pk}", {"username": "ada"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "username_taken")


@pytest.mark.parametrize(
    ("fields", "attr"),
    [
        *(
            ({"username": one}, "username")
            for one in anything(None, 3, "", "a b", "x" * 151, [], "\0", "\ud800")
        ),
        *(
            ({"password": one}, "password")
            for one in anything(None, 3, "short", "12345678901", [], "a\0" * 9)
        ),
        *(({"is_staff": one}, "is_staff") for one in anything(None, "true", 1, [], {})),
        *(
            ({"groups": one}, "groups")
            for one in anything(None, "editors", ["none"], [3], [[]], {})
        ),
        ({"id": 3}, "id"),
        *(({"email": one}, "email") for one in anything(None, 3, "none", "a@b", [], "a@b.c\0")),
        *(({"permissions": one}, "permissions") for one in anything(None, "a", ["auth.none"], {})),
        ({"date_joined": "2026-01-31T12:00:00Z"}, "date_joined"),
    ],
)
def test_user_field_that_is_none_is_named(
    boss: APIClient, fields: dict[str, Any], attr: str
) -> None:
    answer = post(boss, USERS, {"username": "eve"} | fields)

    assert answer.status_code == 400
    assert answer.json()["errors"][0]["attr"].split(".")[0] == attr
    assert User.objects.count() == 1


@pytest.mark.parametrize("number", [0, 2**31, 2**63, 10**40])
def test_number_of_no_user_is_not_found(boss: APIClient, number: int) -> None:
    assert boss.get(f"{USERS}/{number}").json()["code"] == "user_not_found"
