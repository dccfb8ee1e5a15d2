"""Which API keys open the service, and what is kept of them."""

from __future__ import annotations

import datetime as dt
import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from synth.accounts.access import KeyRejectedError, create_key, find_key, revoke_key
from synth.models import ApiKey
from tests.factories import logged_in, make_staff, make_user
from ttsweb.commands.base import CommandError
from ttsweb.rights import SCOPES

pytestmark = pytest.mark.django_db
LIST = "/admin/synth/apikey/"
ADD = f"{LIST}add/"


@pytest.fixture
def boss() -> User:
    return make_user("boss", is_superuser=True)


@pytest.fixture
def page(boss: User) -> Client:
    """A client that is logged in as the boss."""
    return logged_in(boss)


def rejection(key: str) -> tuple[str, str]:
    """Return why a key is rejected: a code and a sentence."""
    with pytest.raises(KeyRejectedError) as caught:
        find_key(key)
    return caught.value.code, str(caught.value)


def run_command(*options: str, name: str = "x") -> str:
    output = StringIO()
    call_command("create_key", "--user", "boss", "--name", name, *options, stdout=output)
    return output.getvalue().strip()


def test_keys_find_their_rows_and_no_column_holds_a_secret() -> None:
    user = make_user()
    made = [create_key(user, name) for name in ("laptop", "phone")]

    kept = [str(value) for row in ApiKey.objects.values() for value in row.values()]
    for row, key in made:
        assert (find_key(key), find_key(key).user) == (row, user)
        assert key.startswith(f"tts_{row.prefix}_")
        secret = key.split("_", 2)[2]
        assert len(secret) >= 43  # 256 bits
        assert not any(secret in value for value in kept)


def test_a_wrong_secret_and_a_wrong_prefix_are_told_alike() -> None:
    row, key = create_key(make_user(), "laptop")
    wrong_secret = key[:-1] + ("a" if key[-1] != "a" else "b")
    wrong_prefix = key.replace(row.prefix, "0" * 12)

    assert rejection(wrong_secret) == rejection(wrong_prefix)
    assert rejection(wrong_secret)[0] == "key_invalid"


def test_what_is_no_key_is_invalid() -> None:
    texts = ("", "tts_", "tts__", "tts_abc", "tts_abc_", "abc", "tts_é_é", "tts_\0_x", "x" * 9999)
    assert {rejection(text)[0] for text in texts} == {"key_invalid"}


def test_a_key_that_was_revoked_expired_or_whose_user_was_switched_off_opens_nothing() -> None:
    now = timezone.now()
    row, revoked = create_key(make_user(), "laptop")
    _, old = create_key(make_user(), "old", expires_at=now)
    _, young = create_key(make_user(), "young", expires_at=now + dt.timedelta(minutes=1))
    _, orphan = create_key(make_user(is_active=False), "laptop")

    assert [revoke_key(row), revoke_key(row)] == [True, False]  # once
    codes = [rejection(key)[0] for key in (revoked, old, orphan)]
    assert codes == ["key_revoked", "key_expired", "user_inactive"]
    assert find_key(young).name == "young"


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


def test_a_request_is_opened_by_a_bearer_key_alone() -> None:
    _, key = create_key(make_user(), "laptop")
    for header, status, code in (
        (f"Bearer {key}", 200, None),
        (f"bearer {key}", 200, None),
        ("Bearer wrong", 401, "key_invalid"),
        ("Bearer \xe9", 401, "key_invalid"),
        ("Bearer", 401, "key_invalid"),
        (f"Token {key}", 401, "not_authenticated"),
        (key, 401, "not_authenticated"),
    ):
        response = APIClient().get("/api/v1/stats", HTTP_AUTHORIZATION=header)
        assert response.status_code == status, header
        if code:
            assert response.json()["code"] == code, header
            assert response["WWW-Authenticate"].startswith("Bearer"), header


def test_a_session_that_writes_needs_the_csrf_token(boss: User) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(boss)

    assert client.get("/api/v1/stats").status_code == 200
    response = client.post("/api/v1/voices", {}, format="multipart")

    assert (response.status_code, response.json()["code"]) == (403, "permission_denied")


def test_a_key_has_no_scope_or_limit_of_another_name() -> None:
    user = make_user()
    with pytest.raises(ValueError, match="write"):
        create_key(user, "x", scopes=["write"])
    with pytest.raises(ValueError, match="digest"):
        create_key(user, "x", limits={"digest": 1})


def test_the_command_prints_a_key_that_opens_with_scopes_an_end_and_limits(boss: User) -> None:
    assert list(SCOPES) == ApiKey.Scope.values  # the command offers every scope
    assert find_key(run_command(name="curl")).name == "curl"

    options = ["--scopes", "jobs, read", "--days", "30", "--max-queued-chars", "1000", "--json"]
    answer = json.loads(run_command(*options, name="script"))

    row = find_key(answer["key"])
    assert (row.name, row.max_unfinished_jobs) == ("script", None)
    assert row.scopes == answer["scopes"] == ["read", "jobs"]
    assert row.max_queued_chars == answer["max_queued_chars"] == 1000
    assert row.expires_at is not None
    assert answer["expires_at"] == row.expires_at.isoformat()
    assert (row.expires_at - timezone.now()).days == 29


def test_the_command_refuses_what_a_key_cannot_have(boss: User) -> None:
    for option, value, words in (
        ("--user", "nobody", "no active user named 'nobody'"),
        ("--scopes", "jobs,write", "--scopes takes"),
        ("--scopes", ",", "--scopes takes"),
        ("--days", "0", "--days must"),
        ("--days", "9999999999", "--days must"),
        ("--max-unfinished-jobs", "-1", "--max-unfinished-jobs must"),
        ("--max-queued-chars", str(2**31), "--max-queued-chars must"),
        ("--max-stored-bytes", str(2**63), "--max-stored-bytes must"),
    ):
        with pytest.raises(CommandError, match=words):
            run_command(option, value)
    assert not ApiKey.objects.exists()


def test_the_admin_makes_no_key_that_may_do_nothing(page: Client, boss: User) -> None:
    assert page.post(ADD, {"name": "phone", "user": boss.pk}).status_code == 200
    assert not ApiKey.objects.exists()


def test_the_admin_shows_a_new_key_once_renames_and_revokes_it(page: Client, boss: User) -> None:
    fields = {"name": "phone", "user": boss.pk, "scopes": ["read", "jobs"]}
    text = page.post(ADD, fields | {"max_unfinished_jobs": "3"}, follow=True).content.decode()
    key = text.split("<code>")[1].split("</code>")[0]
    row = find_key(key)
    assert (row.name, row.scopes) == ("phone", ["read", "jobs"])
    assert (row.max_unfinished_jobs, row.max_stored_bytes) == (3, None)
    change = page.get(f"{LIST}{row.pk}/change/").content.decode()
    assert key not in change and row.digest not in change
    assert key not in page.get(LIST).content.decode()

    sent = {"name": "tablet", "scopes": "read", "max_requests_per_minute": "60"}
    page.post(f"{LIST}{row.pk}/change/", sent)
    changed = find_key(key)
    assert (changed.name, changed.scopes) == ("tablet", ["read"])
    assert changed.max_requests_per_minute == 60
    page.post(LIST, {"action": "revoke", "_selected_action": [str(row.pk)]})
    assert rejection(key)[0] == "key_revoked"


def test_staff_makes_no_key_of_a_superuser_and_sees_none(boss: User) -> None:
    clerk = make_staff(about="_apikey", username="clerk")
    row, _ = create_key(boss, "boss's own")
    page = logged_in(clerk)

    for user in (boss, clerk):
        page.post(ADD, {"name": "mine", "user": user.pk, "scopes": "read"})
    page.post(LIST, {"action": "revoke", "_selected_action": [str(row.pk)]})

    assert [key.user for key in ApiKey.objects.filter(name="mine")] == [clerk]
    row.refresh_from_db()
    assert row.revoked_at is None
