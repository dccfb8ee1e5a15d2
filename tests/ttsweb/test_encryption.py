"""Secrets are kept encrypted, read with the current key and former ones, and with no other."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from pytest_django import Settings

from synth.accounts.access import create_key
from synth.webhooks import rotate_secret, secret_of, signing_secrets
from tests.factories import logged_in, make_user
from ttsweb.commands.base import CommandError
from ttsweb.encryption import SecretUnreadableError, decrypt, encrypt


@pytest.fixture
def user(db: None) -> User:
    return make_user()


def change_key(settings: Settings, *, keep: bool) -> None:
    """Give the installation another key; the former one stays known or not."""
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY] if keep else []
    settings.SECRET_KEY = "another key of this installation, which is long enough"


def stored(user: User) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT encrypted_secret, encrypted_previous FROM synth_webhooksecret "
            "WHERE user_id = %s", [user.pk],
        )  # fmt: skip
        return " ".join(cursor.fetchone())


def test_text_comes_back_and_two_tokens_of_it_differ() -> None:
    first, second = encrypt("whsec_ü"), encrypt("whsec_ü")
    assert first != second
    assert {decrypt(first, what="It"), decrypt(second, what="It")} == {"whsec_ü"}
    assert (encrypt(""), decrypt("", what="It")) == ("", "")
    for token in ("whsec_in_clear", "gAAAAA", "ü"):
        with pytest.raises(SecretUnreadableError, match=r"^The secret was encrypted with another"):
            decrypt(token, what="The secret")


def test_database_has_no_secret_in_clear(user: User) -> None:
    first = secret_of(user).secret
    row = rotate_secret(user)
    assert row.previous == first
    for secret in (first, row.secret):
        assert secret.removeprefix("whsec_") not in stored(user)


def test_former_key_still_reads_until_the_secrets_are_encrypted_anew(
    user: User, settings: Settings
) -> None:
    secret_of(user)
    before = signing_secrets(rotate_secret(user))
    change_key(settings, keep=True)
    assert signing_secrets(secret_of(user)) == before

    call_command("reencrypt")
    settings.SECRET_KEY_FALLBACKS = []

    assert signing_secrets(secret_of(user)) == before


def test_lost_key_is_a_problem_with_a_code_and_rotating_makes_a_new_secret(
    user: User, settings: Settings
) -> None:
    row = secret_of(user)
    lost = row.secret
    change_key(settings, keep=False)
    client = Client(headers={"Authorization": f"Bearer {create_key(user, 'test')[1]}"})
    answer = client.get("/api/v1/webhooks/secret")
    assert (answer.status_code, answer.json()["code"]) == (503, "secret_unreadable")
    assert "TTS_SECRET_KEY_FALLBACKS" in answer.json()["detail"]
    with pytest.raises(CommandError, match="secret_unreadable: "):
        call_command("reencrypt")
    User.objects.update(is_staff=True, is_superuser=True)
    page = logged_in(user).get(f"/admin/synth/webhooksecret/{row.pk}/change/")
    assert page.status_code == 200
    assert "encrypted with another TTS_SECRET_KEY" in page.content.decode()

    rotated = client.post("/api/v1/webhooks/secret/rotate", content_type="application/json")

    assert rotated.status_code == 200
    assert rotated.json()["secret"] not in ("", lost)
    assert signing_secrets(secret_of(user)) == [rotated.json()["secret"]]
