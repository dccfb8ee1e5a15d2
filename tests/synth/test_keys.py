"""Which API keys open the service, and what is kept of them."""

from __future__ import annotations

import datetime as dt
import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from synth.accounts.keys import KeyRejectedError, create_key, find_key, revoke_key
from synth.models import ApiKey
from tests.factories import make_user
from ttsweb.commands.base import CommandError
from ttsweb.rights import SCOPES

pytestmark = pytest.mark.django_db


def code_of(key: str) -> str:
    """Return why a key is rejected."""
    with pytest.raises(KeyRejectedError) as caught:
        find_key(key)
    return caught.value.code


def test_a_key_finds_its_row_and_user() -> None:
    user = make_user()

    row, key = create_key(user, "laptop")

    assert find_key(key) == row
    assert find_key(key).user == user
    assert key.startswith(f"tts_{row.prefix}_")


def test_no_column_holds_the_secret() -> None:
    _, key = create_key(make_user(), "laptop")
    secret = key.split("_", 2)[2]

    kept = [str(value) for value in ApiKey.objects.values().get().values()]

    assert len(secret) >= 43  # 256 bits
    assert not any(secret in value for value in kept)


def test_two_keys_of_a_user_differ_and_both_open() -> None:
    user = make_user()

    (first, first_key), (second, second_key) = create_key(user, "a"), create_key(user, "b")

    assert find_key(first_key) == first
    assert find_key(second_key) == second


def test_a_wrong_secret_and_a_wrong_prefix_are_told_alike() -> None:
    row, key = create_key(make_user(), "laptop")
    wrong_secret = key[:-1] + ("a" if key[-1] != "a" else "b")
    wrong_prefix = key.replace(row.prefix, "0" * 12)

    sentences = set()
    for wrong in (wrong_secret, wrong_prefix):
        with pytest.raises(KeyRejectedError) as caught:
            find_key(wrong)
        sentences.add((caught.value.code, str(caught.value)))

    assert len(sentences) == 1
    assert sentences.pop()[0] == "key_invalid"


@pytest.mark.parametrize(
    "text", ["", "tts_", "tts__", "tts_abc", "tts_abc_", "abc", "tts_é_é", "tts_\0_x", "x" * 9999]
)
def test_what_is_no_key_is_invalid(text: str) -> None:
    assert code_of(text) == "key_invalid"


def test_a_revoked_key_opens_nothing_and_is_revoked_once() -> None:
    row, key = create_key(make_user(), "laptop")

    assert revoke_key(row)
    assert not revoke_key(row)

    assert code_of(key) == "key_revoked"


def test_a_key_expires_at_its_moment() -> None:
    now = timezone.now()
    _, old = create_key(make_user(), "old", expires_at=now)
    _, young = create_key(make_user(), "young", expires_at=now + dt.timedelta(minutes=1))

    assert code_of(old) == "key_expired"
    assert find_key(young).name == "young"


def test_the_key_of_a_user_who_was_switched_off_opens_nothing() -> None:
    _, key = create_key(make_user(is_active=False), "laptop")

    assert code_of(key) == "user_inactive"


def test_use_is_noted_at_most_once_a_minute(django_assert_num_queries: Any) -> None:
    row, key = create_key(make_user(), "laptop")

    with django_assert_num_queries(2):
        find_key(key)
    with django_assert_num_queries(1):
        find_key(key)
    ApiKey.objects.update(last_used_at=timezone.now() - dt.timedelta(seconds=61))
    with django_assert_num_queries(2):
        find_key(key)

    row.refresh_from_db()
    assert row.last_used_at is not None
    assert timezone.now() - row.last_used_at < dt.timedelta(seconds=10)


@pytest.mark.parametrize(
    ("header", "status", "code"),
    [
        ("Bearer {key}", 200, None),
        ("bearer {key}", 200, None),
        ("Bearer wrong", 401, "key_invalid"),
        ("Bearer \xe9", 401, "key_invalid"),
        ("Bearer", 401, "key_invalid"),
        ("Token {key}", 401, "not_authenticated"),
        ("{key}", 401, "not_authenticated"),
    ],
)
def test_a_request_is_opened_by_a_bearer_key_alone(
    header: str, status: int, code: str | None
) -> None:
    _, key = create_key(make_user(), "laptop")

    response = APIClient().get("/api/v1/stats", HTTP_AUTHORIZATION=header.format(key=key))

    assert response.status_code == status
    if code:
        assert response.json()["code"] == code
        assert response["WWW-Authenticate"].startswith("Bearer")


def test_a_session_that_writes_needs_the_csrf_token() -> None:
    make_user("boss")
    client = APIClient(enforce_csrf_checks=True)
    client.login(username="boss", password="password")

    assert client.get("/api/v1/stats").status_code == 200
    response = client.post("/api/v1/voices", {}, format="multipart")

    assert (response.status_code, response.json()["code"]) == (403, "permission_denied")


def test_the_command_prints_a_key_that_opens() -> None:
    make_user("boss")
    plain, as_json = StringIO(), StringIO()

    call_command("create_key", "--user", "boss", "--name", "curl", stdout=plain)
    call_command("create_key", "--user", "boss", "--name", "script", "--json", stdout=as_json)

    assert find_key(plain.getvalue().strip()).name == "curl"
    assert find_key(json.loads(as_json.getvalue())["key"]).name == "script"


def test_the_command_sets_scopes_an_end_and_limits() -> None:
    make_user("boss")
    body = StringIO()
    options = ["--scopes", "jobs, read", "--days", "30", "--max-queued-chars", "1000", "--json"]

    call_command("create_key", "--user", "boss", "--name", "x", *options, stdout=body)

    answer = json.loads(body.getvalue())
    row = find_key(answer["key"])
    assert row.scopes == answer["scopes"] == ["read", "jobs"]
    assert (row.max_queued_chars, row.max_unfinished_jobs) == (1000, None)
    assert answer["max_queued_chars"] == 1000
    assert row.expires_at is not None
    assert answer["expires_at"] == row.expires_at.isoformat()
    assert (row.expires_at - timezone.now()).days == 29


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scopes", "jobs,write"], "--scopes takes"),
        (["--scopes", ","], "--scopes takes"),
        (["--days", "0"], "--days must"),
        (["--days", "9999999999"], "--days must"),
        (["--max-unfinished-jobs", "-1"], "--max-unfinished-jobs must"),
        (["--max-queued-chars", str(2**31)], "--max-queued-chars must"),
        (["--max-stored-bytes", str(2**63)], "--max-stored-bytes must"),
    ],
)
def test_the_command_refuses_what_a_key_cannot_have(options: list[str], words: str) -> None:
    make_user("boss")

    with pytest.raises(CommandError, match=words):
        call_command("create_key", "--user", "boss", "--name", "x", *options)

    assert not ApiKey.objects.exists()


def test_the_admin_makes_no_key_that_may_do_nothing() -> None:
    boss = make_user("boss", is_superuser=True)
    page = Client()
    page.force_login(boss)

    answer = page.post("/admin/synth/apikey/add/", {"name": "phone", "user": boss.pk})

    assert answer.status_code == 200
    assert not ApiKey.objects.exists()


def test_a_key_has_no_scope_or_limit_of_another_name() -> None:
    user = make_user()

    with pytest.raises(ValueError, match="write"):
        create_key(user, "x", scopes=["write"])
    with pytest.raises(ValueError, match="digest"):
        create_key(user, "x", limits={"digest": 1})


def test_the_command_names_a_user_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="no active user named 'nobody'"):
        call_command("create_key", "--user", "nobody", "--name", "curl")


def test_the_admin_shows_a_new_key_once_and_it_opens() -> None:
    boss = make_user("boss", is_superuser=True)
    page = Client()
    page.force_login(boss)
    add = "/admin/synth/apikey/add/"

    fields = {"name": "phone", "user": boss.pk, "scopes": ["read", "jobs"]}
    response = page.post(add, fields | {"max_unfinished_jobs": "3"}, follow=True)
    text = response.content.decode()
    key = text.split("<code>")[1].split("</code>")[0]
    row = find_key(key)

    assert row.name == "phone"
    assert (row.scopes, row.max_unfinished_jobs, row.max_stored_bytes) == (
        ["read", "jobs"],
        3,
        None,
    )
    change = page.get(f"/admin/synth/apikey/{row.pk}/change/").content.decode()
    assert key not in change
    assert row.digest not in change
    assert key not in page.get("/admin/synth/apikey/").content.decode()


def test_staff_makes_no_key_of_a_superuser_and_sees_none() -> None:
    boss, clerk = make_user("boss", is_superuser=True), make_user("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__endswith="_apikey"))
    row, _ = create_key(boss, "boss's own")
    page = Client()
    page.force_login(clerk)

    page.post("/admin/synth/apikey/add/", {"name": "mine", "user": boss.pk, "scopes": "read"})
    page.post("/admin/synth/apikey/add/", {"name": "mine", "user": clerk.pk, "scopes": "read"})
    revoke = {"action": "revoke", "_selected_action": [str(row.pk)]}
    page.post("/admin/synth/apikey/", revoke)

    assert [key.user for key in ApiKey.objects.filter(name="mine")] == [clerk]
    row.refresh_from_db()
    assert row.revoked_at is None


def test_the_admin_revokes_keys_and_renames_them() -> None:
    boss = make_user("boss", is_superuser=True)
    page = Client()
    page.force_login(boss)
    row, key = create_key(boss, "phone")

    change = {"name": "tablet", "scopes": "read", "max_requests_per_minute": "60"}
    page.post(f"/admin/synth/apikey/{row.pk}/change/", change)
    changed = find_key(key)
    assert (changed.name, changed.scopes) == ("tablet", ["read"])
    assert changed.max_requests_per_minute == 60
    page.post("/admin/synth/apikey/", {"action": "revoke", "_selected_action": [str(row.pk)]})

    assert code_of(key) == "key_revoked"


def test_command_line_offers_every_scope() -> None:
    assert list(SCOPES) == ApiKey.Scope.values
