"""Groups and permissions over REST: for superusers, whose keys need the scope `admin`."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from rest_framework.test import APIClient

from tests.factories import make_user
from tests.synth.test_key_views import anything, client_with, post

pytestmark = pytest.mark.django_db

GROUPS = "/api/v1/groups"
USERS = "/api/v1/users"
PERMISSIONS = "/api/v1/permissions"


@pytest.fixture
def boss() -> APIClient:
    return client_with(make_user("boss", is_superuser=True), "admin")


def test_group_is_made_read_changed_and_deleted(boss: APIClient) -> None:
    wanted = ["synth.view_renderjob", "voices.add_voice", "voices.add_voice"]
    made = boss.post(GROUPS, {"name": " editors ", "permissions": wanted})
    body = made.json()

    assert made.status_code == 201
    assert body == {"id": body["id"], "name": "editors", "permissions": wanted[:2], "users": 0}
    path = made["Location"]
    assert boss.get(path).json() == body
    changed = boss.patch(path, {"name": "readers", "permissions": []}).json()
    assert changed == body | {"name": "readers", "permissions": []}
    assert boss.patch(path, {}).json() == changed
    assert boss.delete(path).status_code == 204
    assert (boss.get(path).status_code, boss.delete(path).json()["code"]) == (
        404,
        "group_not_found",
    )


def test_groups_permissions_are_their_users(boss: APIClient) -> None:
    eve = make_user("eve")
    made = boss.post(GROUPS, {"name": "editors", "permissions": ["synth.view_lexicon"]})
    assert not User.objects.get(pk=eve.pk).has_perm("synth.view_lexicon")

    boss.patch(f"{USERS}/{eve.pk}", {"groups": ["editors"]})

    assert User.objects.get(pk=eve.pk).has_perm("synth.view_lexicon")
    assert boss.get(made["Location"]).json()["users"] == 1
    boss.delete(made["Location"])
    assert not User.objects.get(pk=eve.pk).has_perm("synth.view_lexicon")


def test_list_costs_the_same_however_many_groups_there_are(
    boss: APIClient, django_assert_num_queries: Any
) -> None:
    names = ["synth.view_lexicon", "voices.view_voice"]
    for number in range(3):
        boss.post(GROUPS, {"name": f"group {number}", "permissions": names})
    boss.get(GROUPS)  # notes the key's use once

    with django_assert_num_queries(4):  # the key, the groups, their permissions and the models
        page = boss.get(GROUPS, {"limit": 2}).json()

    assert [one["name"] for one in page["results"]] == ["group 0", "group 1"]
    assert [one["name"] for one in boss.get(page["next"]).json()["results"]] == ["group 2"]


def test_every_permission_that_is_listed_is_taken(boss: APIClient) -> None:
    first = boss.get(PERMISSIONS, {"limit": 200}).json()
    rest = boss.get(first["next"]).json()["results"] if first["next"] else []
    names = [one["permission"] for one in first["results"] + rest]
    assert {"synth.add_renderjob", "voices.change_voice", "auth.view_user"} <= set(names)

    made = boss.post(GROUPS, {"name": "all", "permissions": names})

    assert made.json()["permissions"] == sorted(names)


def test_user_has_permissions_address_and_names_as_in_the_admin(boss: APIClient) -> None:
    fields = {
        "username": "eve", "email": "eve@example.org", "first_name": "Eve", "last_name": "Ardent",
        "permissions": ["synth.view_workerstatus"],
    }  # fmt: skip
    made = boss.post(USERS, fields)

    body = made.json()
    assert {name: body[name] for name in fields} == fields
    assert User.objects.get(username="eve").has_perm("synth.view_workerstatus")
    changed = boss.patch(made["Location"], {"permissions": [], "email": ""}).json()
    assert (changed["permissions"], changed["email"], changed["first_name"]) == ([], "", "Eve")


def test_groups_are_for_superusers_with_the_scope_admin() -> None:
    boss, user = make_user("boss", is_superuser=True), make_user("ada", is_staff=True)
    group = Group.objects.create(name="editors")
    page = APIClient()
    page.force_login(user)

    for client, code in (
        (client_with(boss), "scope_missing"),
        (client_with(user, "read", "admin"), "superuser_required"),
        (page, "superuser_required"),
    ):
        for answer in (
            client.get(GROUPS),
            client.get(PERMISSIONS),
            client.post(GROUPS, {"name": "others"}),
            client.get(f"{GROUPS}/{group.pk}"),
            client.patch(f"{GROUPS}/{group.pk}", {"name": "others"}),
            client.delete(f"{GROUPS}/{group.pk}"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, code)
    assert list(Group.objects.values_list("name", flat=True)) == ["editors"]


def test_name_that_is_taken_is_refused_and_nothing_of_it_is_kept(boss: APIClient) -> None:
    Group.objects.create(name="editors")
    other = Group.objects.create(name="readers")
    body = {"name": "editors", "permissions": ["synth.view_lexicon"]}

    for answer in (boss.post(GROUPS, body), boss.patch(f"{GROUPS}/{other.pk}", body)):
        assert (answer.status_code, answer.json()["code"]) == (409, "group_name_taken")
    assert Group.objects.count() == 2
    assert other.permissions.count() == 0


@pytest.mark.parametrize(
    ("fields", "attr"),
    [
        *(
            ({"name": one}, "name")
            for one in anything(None, 3, "", "  ", "x" * 151, [], "\0", "\ud800")
        ),
        *(
            ({"permissions": one}, "permissions")
            for one in anything(
                None, "synth.view_lexicon", [3], [[]], {}, ["none"], ["synth.none"], [""],
                ["auth.view_lexicon"], ["synth.view_lexicon\0"], ["x"] * 501, ["\ud800.a"],
            )
        ),
        ({"id": 3}, "id"),
        ({"users": 3}, "users"),
    ],
)  # fmt: skip
def test_group_field_that_is_none_is_named(
    boss: APIClient, fields: dict[str, Any], attr: str
) -> None:
    answer = post(boss, GROUPS, {"name": "editors"} | fields)

    assert answer.status_code == 400
    assert answer.json()["errors"][0]["attr"].split(".")[0] == attr
    assert Group.objects.count() == 0


@pytest.mark.parametrize("number", [0, 2**31, 2**63, 10**40])
def test_number_of_no_group_is_not_found(boss: APIClient, number: int) -> None:
    assert boss.get(f"{GROUPS}/{number}").json()["code"] == "group_not_found"


@pytest.mark.parametrize("path", [GROUPS, PERMISSIONS])
def test_query_that_is_not_acted_on_is_refused(boss: APIClient, path: str) -> None:
    assert boss.get(f"{path}?name=a").json()["code"] == "unknown_field"
    assert boss.get(f"{path}?limit=1&limit=2").json()["code"] == "repeated"
