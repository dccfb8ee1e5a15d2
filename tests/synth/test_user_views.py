"""Users, groups and permissions over REST: for superusers, whose keys need the scope `admin`."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import Group, User
from rest_framework.test import APIClient

from tests.answers import refusal_of
from tests.factories import make_user
from tests.synth.test_key_views import Wrong, cases_of, client_with, post

pytestmark = pytest.mark.django_db

USERS = "/api/v1/users"
GROUPS = "/api/v1/groups"
PERMISSIONS = "/api/v1/permissions"
VIEW_LEXICON = "synth.view_lexicon"


@pytest.fixture
def boss() -> APIClient:
    return client_with(make_user("boss", is_superuser=True), "admin")


def logs_in(name: str, password: str) -> bool:
    return authenticate(username=name, password=password) is not None


def test_superuser_makes_changes_and_deletes_users(boss: APIClient) -> None:
    Group.objects.create(name="editors")
    made = boss.post(USERS, {"username": "eve", "password": "a-long-pass-9", "groups": ["editors"]})
    body = made.json()

    assert (made.status_code, body["groups"], body["is_staff"]) == (201, ["editors"], False)
    assert "password" not in body and body["has_password"] is True
    assert logs_in("eve", "a-long-pass-9")
    path = made["Location"]
    changed = boss.patch(path, {"is_staff": True, "groups": [], "password": "another-pass-9"})
    assert (changed.json()["is_staff"], changed.json()["groups"]) == (True, [])
    assert logs_in("eve", "another-pass-9") and not logs_in("eve", "a-long-pass-9")
    assert boss.patch(path, {"is_active": False}).json()["is_active"] is False
    assert not logs_in("eve", "another-pass-9")
    assert [one["username"] for one in boss.get(USERS).json()["results"]] == ["boss", "eve"]
    assert boss.delete(path).status_code == 204
    assert boss.get(path).status_code == 404
    assert boss.post(USERS, {"username": "robot"}).json()["has_password"] is False
    assert not logs_in("robot", "")  # who has keys alone


def test_user_has_permissions_address_and_names_as_in_the_admin(boss: APIClient) -> None:
    fields = {
        "username": "eve", "email": "eve@example.org", "first_name": "Eve", "last_name": "Ardent",
        "permissions": ["synth.view_workerstatus"],
    }  # fmt: skip
    made = boss.post(USERS, fields)

    shown = made.json()
    assert {name: shown[name] for name in fields} == fields
    assert User.objects.get(username="eve").has_perm("synth.view_workerstatus")
    changed = boss.patch(made["Location"], {"permissions": [], "email": ""}).json()
    assert (changed["permissions"], changed["email"], changed["first_name"]) == ([], "", "Eve")


def test_group_is_made_read_changed_and_deleted(boss: APIClient) -> None:
    wanted = ["synth.view_renderjob", "voices.add_voice", "voices.add_voice"]
    made = boss.post(GROUPS, {"name": " editors ", "permissions": wanted})
    body, path = made.json(), made["Location"]

    assert made.status_code == 201
    assert body == {"id": body["id"], "name": "editors", "permissions": wanted[:2], "users": 0}
    assert boss.get(path).json() == body
    changed = boss.patch(path, {"name": "readers", "permissions": []}).json()
    assert changed == body | {"name": "readers", "permissions": []}
    assert boss.patch(path, {}).json() == changed
    assert boss.delete(path).status_code == 204
    assert refusal_of(boss.get(path)) == refusal_of(boss.delete(path)) == (404, "group_not_found")


def test_groups_permissions_are_their_users(boss: APIClient) -> None:
    eve = make_user("eve")

    def may_look() -> bool:
        return User.objects.get(pk=eve.pk).has_perm(VIEW_LEXICON)

    made = boss.post(GROUPS, {"name": "editors", "permissions": [VIEW_LEXICON]})
    assert not may_look()
    boss.patch(f"{USERS}/{eve.pk}", {"groups": ["editors"]})
    assert may_look()
    assert boss.get(made["Location"]).json()["users"] == 1
    boss.delete(made["Location"])
    assert not may_look()


def test_list_costs_the_same_however_many_groups_there_are(
    boss: APIClient, django_assert_num_queries: Any
) -> None:
    names = [VIEW_LEXICON, "voices.view_voice"]
    for number in range(3):
        boss.post(GROUPS, {"name": f"group {number}", "permissions": names})
    boss.get(GROUPS)  # notes the key's use once

    with django_assert_num_queries(4):  # the key, the groups, their permissions and the models
        page = boss.get(GROUPS, {"limit": 2}).json()

    rows = page["results"] + boss.get(page["next"]).json()["results"]
    assert [one["name"] for one in rows] == ["group 0", "group 1", "group 2"]


def test_every_permission_that_is_listed_is_taken(boss: APIClient) -> None:
    first = boss.get(PERMISSIONS, {"limit": 200}).json()
    rest = boss.get(first["next"]).json()["results"] if first["next"] else []
    names = [one["permission"] for one in first["results"] + rest]
    assert {"synth.add_renderjob", "voices.change_voice", "auth.view_user"} <= set(names)

    made = boss.post(GROUPS, {"name": "all", "permissions": names})

    assert made.json()["permissions"] == sorted(names)


def test_users_and_groups_are_for_superusers_with_the_scope_admin() -> None:
    boss, user = make_user("boss", is_superuser=True), make_user("ada", is_staff=True)
    group = Group.objects.create(name="editors")
    page = APIClient()
    page.force_login(user)

    for client, code in (
        (client_with(boss), "scope_missing"),
        (client_with(user, "read", "admin"), "superuser_required"),
        (page, "superuser_required"),
    ):
        for method, path, body in (
            ("get", USERS, {}),
            ("get", GROUPS, {}),
            ("get", PERMISSIONS, {}),
            ("post", USERS, {"username": "eve"}),
            ("get", f"{USERS}/{user.pk}", {}),
            ("patch", f"{USERS}/{user.pk}", {"is_superuser": True}),
            ("delete", f"{USERS}/{boss.pk}", {}),
            ("post", GROUPS, {"name": "others"}),
            ("get", f"{GROUPS}/{group.pk}", {}),
            ("patch", f"{GROUPS}/{group.pk}", {"name": "others"}),
            ("delete", f"{GROUPS}/{group.pk}", {}),
        ):
            answer = getattr(client, method)(path, body)
            assert refusal_of(answer) == (403, code), (method, path)
    assert list(Group.objects.values_list("name", flat=True)) == ["editors"]
    assert User.objects.count() == 2


def test_nobody_takes_the_own_rights_away(boss: APIClient) -> None:
    path = f"{USERS}/{User.objects.get().pk}"

    assert refusal_of(boss.delete(path)) == (409, "own_account")
    for right in ("is_active", "is_superuser", "is_staff"):
        assert refusal_of(boss.patch(path, {right: False})) == (409, "own_account"), right


def test_name_that_is_taken_is_refused_and_nothing_of_it_is_kept(boss: APIClient) -> None:
    make_user("ada")
    Group.objects.create(name="editors")
    other = Group.objects.create(name="readers")
    user, group = {"username": "ada"}, {"name": "editors", "permissions": [VIEW_LEXICON]}

    bob = make_user("bob")

    assert refusal_of(boss.post(USERS, user)) == (409, "username_taken")
    assert refusal_of(boss.patch(f"{USERS}/{bob.pk}", user)) == (409, "username_taken")
    assert refusal_of(boss.post(GROUPS, group)) == (409, "group_name_taken")
    assert refusal_of(boss.patch(f"{GROUPS}/{other.pk}", group)) == (409, "group_name_taken")
    assert (Group.objects.count(), other.permissions.count()) == (2, 0)


WRONG_GROUP: Wrong = {
    "name": [None, 3, "", "  ", "x" * 151, [], "\0", "\ud800"],
    "permissions": [
        None, VIEW_LEXICON, [3], [[]], {}, ["none"], ["synth.none"], [""], ["auth.view_lexicon"],
        [f"{VIEW_LEXICON}\0"], ["x"] * 501, ["\ud800.a"],
    ],
    "id": [3],
    "users": [3],
}  # fmt: skip
WRONG_USER: Wrong = {
    "username": [None, 3, "", "a b", "x" * 151, [], "\0", "\ud800"],
    "password": [None, 3, "short", "12345678901", [], "a\0" * 9],
    "is_staff": [None, "true", 1, [], {}],
    "groups": [None, "editors", ["none"], [3], [[]], {}],
    "id": [3],
    "email": [None, 3, "none", "a@b", [], "a@b.c\0"],
    "permissions": [None, "a", ["auth.none"], {}],
    "date_joined": ["2026-01-31T12:00:00Z"],
}


@pytest.mark.parametrize(
    ("path", "good", "wrong"),
    [(GROUPS, {"name": "editors"}, WRONG_GROUP), (USERS, {"username": "eve"}, WRONG_USER)],
    ids=["group", "user"],
)
def test_field_that_is_none_is_named(
    boss: APIClient, path: str, good: dict[str, Any], wrong: Wrong
) -> None:
    for attr, fields in cases_of(wrong):
        answer = post(boss, path, good | fields)
        assert answer.status_code == 400, fields
        assert answer.json()["errors"][0]["attr"].split(".")[0] == attr, fields
    assert (Group.objects.count(), User.objects.count()) == (0, 1)


def test_number_of_no_row_is_not_found(boss: APIClient) -> None:
    for number in (0, 2**31, 2**63, 10**40):
        group, user = boss.get(f"{GROUPS}/{number}"), boss.get(f"{USERS}/{number}")
        assert refusal_of(group) == (404, "group_not_found"), number
        assert refusal_of(user) == (404, "user_not_found"), number


def test_query_that_is_not_acted_on_is_refused(boss: APIClient) -> None:
    for path in (GROUPS, PERMISSIONS):
        assert boss.get(f"{path}?name=a").json()["code"] == "unknown_field", path
        assert boss.get(f"{path}?limit=1&limit=2").json()["code"] == "repeated", path
