"""Messages are signed so that the library of Standard Webhooks takes them, and takes no others."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from standardwebhooks import Webhook, WebhookVerificationError

from synth.models import WebhookSecret
from synth.webhooks.endpoints import (
    forget_webhooks,
    new_secret,
    previous_until,
    rotate_secret,
    secret_of,
    signed_headers,
    signing_secrets,
)
from tests.factories import make_user

BODY = b'{"type": "test", "data": {"name": "\\u00fc"}}'


def signed(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    """Return the headers of a message that is sent now."""
    return signed_headers("some-id", timestamp=int(time.time()), body=body, signers=secrets)


@pytest.fixture
def user(db: None) -> User:
    """A user."""
    return make_user()


def test_message_is_taken_by_the_library_of_the_specification() -> None:
    secret = new_secret()

    assert Webhook(secret).verify(BODY.decode(), signed(secret))["type"] == "test"


def test_other_secret_body_or_id_is_not_taken() -> None:
    secret = new_secret()
    for headers in (
        signed(new_secret()),
        signed(secret, body=BODY + b" "),
        signed(secret) | {"webhook-id": "another"},
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(BODY.decode(), headers)


def test_user_keeps_ones_secret(user: User) -> None:
    first = secret_of(user)

    assert secret_of(user).secret == first.secret != secret_of(make_user()).secret
    assert first.secret.startswith("whsec_")
    assert signing_secrets(first) == [first.secret]


def test_both_secrets_sign_for_a_day_after_rotation(user: User) -> None:
    old = secret_of(user).secret
    row = rotate_secret(user)

    headers = signed(*signing_secrets(row))
    for secret in (row.secret, old):
        Webhook(secret).verify(BODY.decode(), headers)
    assert previous_until(row) == row.rotated_at + dt.timedelta(hours=24)

    row.rotated_at = timezone.now() - dt.timedelta(hours=24, seconds=1)
    assert signing_secrets(row) == [row.secret]
    assert previous_until(row) is None


def test_previous_secret_is_forgotten_after_its_day(user: User) -> None:
    secret_of(user)
    row = rotate_secret(user)
    forget_webhooks()
    row.refresh_from_db()
    assert row.previous

    WebhookSecret.objects.update(rotated_at=timezone.now() - dt.timedelta(hours=25))
    forget_webhooks()

    row.refresh_from_db()
    assert (row.previous, bool(row.secret)) == ("", True)
