"""Messages are signed as Standard Webhooks has it; URLs are refused by their spelling."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings
from standardwebhooks import Webhook, WebhookVerificationError

from synth.models import WebhookSecret
from synth.webhooks import (
    check_webhook_url,
    forget_webhooks,
    new_secret,
    previous_until,
    rotate_secret,
    secret_of,
    signed_headers,
    signing_secrets,
)
from tests.factories import make_user
from ttsweb.refusals import SubmitRejectedError

BODY = b'{"type": "test", "data": {"name": "\\u00fc"}}'


def signed(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    """Return the headers of a message that is sent now."""
    return signed_headers("some-id", timestamp=int(time.time()), body=body, signers=secrets)


@pytest.fixture
def user(db: None) -> User:
    """A user."""
    return make_user()


def test_message_is_taken_by_the_library_of_the_specification_and_no_other_is() -> None:
    secret = new_secret()
    assert Webhook(secret).verify(BODY.decode(), signed(secret))["type"] == "test"
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
    for hours, is_kept in ((0, True), (25, False)):
        WebhookSecret.objects.update(rotated_at=timezone.now() - dt.timedelta(hours=hours))
        forget_webhooks()
        row.refresh_from_db()
        assert (bool(row.previous), bool(row.secret)) == (is_kept, True)


def test_url_that_is_refused() -> None:
    for url, code in (
        ("http://127.0.0.1:8000/hook", "url_private_address"),
        ("https://localhost/hook", "url_private_address"),
        ("http://2130706433/", "url_private_address"),
        ("http://[::ffff:127.0.0.1]/", "url_private_address"),
        ("http://169.254.169.254/latest/meta-data/", "url_private_address"),
        ("ftp://hooks.example/", "url_scheme"),
        ("hooks.example", "url_scheme"),
        ("https://user:word@hooks.example/", "url_invalid"),
        ("https://hooks.example/\x00", "url_invalid"),
        ("https://hooks.example/\ud800", "url_invalid"),
        ("", "url_scheme"),
    ):
        with pytest.raises(SubmitRejectedError) as caught:
            check_webhook_url(url)
        assert caught.value.code == code, url
        assert str(caught.value).endswith("."), url


def test_name_is_not_looked_up_and_a_private_address_taken_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr("ttsweb.http.guarded_fetch._look_up", None)
    check_webhook_url("https://hooks.example/in?a=b")

    settings.ALLOW_PRIVATE_URLS = True
    check_webhook_url("http://127.0.0.1:8000/hook")
