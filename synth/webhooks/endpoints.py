"""Make, change and delete endpoints; check their URLs, keep their secrets, sign messages.

What waits for an endpoint that is off is not sent any more. Messages are signed as Standard
Webhooks 1.0 has it, so that receivers can use any of its libraries.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from synth.models import WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.transitions.webhooks import fail_deliveries_to
from ttsweb import leases
from ttsweb.encryption import SecretUnreadableError, encrypt, reencrypt
from ttsweb.http.guarded_url import FetchError, check_url
from ttsweb.refusals import RefusedError, SubmitRejectedError

MOST_ENDPOINTS = 20


class TooManyEndpointsError(RefusedError):
    """A user has as many endpoints as a user may have."""


def create_endpoint(owner: AbstractBaseUser, values: Mapping[str, Any]) -> WebhookEndpoint:
    """Make an endpoint of checked values.

    Raises:
        TooManyEndpointsError: there are MOST_ENDPOINTS.
    """
    if WebhookEndpoint.objects.filter(owner_id=owner.pk).count() >= MOST_ENDPOINTS:
        raise TooManyEndpointsError(
            "too_many_endpoints",
            f"There are {MOST_ENDPOINTS} endpoints already, which is the limit for each "
            "user; delete one.",
        )
    return WebhookEndpoint.objects.create(owner_id=owner.pk, **values)


def change_endpoint(endpoint: WebhookEndpoint, values: Mapping[str, Any]) -> None:
    """Set checked values; what waits for the old URL, or for one that is now off, fails."""
    before = WebhookEndpoint(owner_id=endpoint.owner_id, url=endpoint.url)
    with transaction.atomic():
        for name, value in values.items():
            setattr(endpoint, name, value)
        if values:
            endpoint.save(update_fields=list(values))
        if not endpoint.enabled or endpoint.url != before.url:
            fail_deliveries_to(before)


def delete_endpoint(endpoint: WebhookEndpoint) -> None:
    """Delete an endpoint; what waits for it fails and stays in the list of deliveries."""
    with transaction.atomic():
        fail_deliveries_to(endpoint)
        endpoint.delete()


KEPT_FOR = dt.timedelta(days=30)


def forget_webhooks() -> int:
    """Delete deliveries that ended KEPT_FOR ago, and previous secrets; return how many of both."""
    now = leases.database_now()
    ended = WebhookDelivery.objects.filter(finished_at__lt=now - KEPT_FOR)
    deleted, _ = ended.delete()
    rotated = WebhookSecret.objects.filter(rotated_at__lt=now - PREVIOUS_SIGNS_FOR)
    return deleted + rotated.exclude(encrypted_previous="").update(encrypted_previous="")


def check_webhook_url(url: str) -> None:
    """Return if messages may be sent to a URL as it is written.

    No name server is asked here: a name may lead elsewhere tomorrow, so its addresses are checked
    at each delivery.

    Raises:
        SubmitRejectedError: url_invalid, url_scheme, or url_private_address in whatever spelling.
    """
    try:
        check_url(url, allow_private=settings.ALLOW_PRIVATE_URLS)
    except FetchError as error:
        raise SubmitRejectedError(error.code, str(error), attr="webhook") from error


SECRET_START = "whsec_"
SECRET_BYTES = 32
PREVIOUS_SIGNS_FOR = dt.timedelta(hours=24)


def secret_of(user: AbstractBaseUser) -> WebhookSecret:
    """Return a user's secret; it is made when it is first asked for."""
    made = {"encrypted_secret": encrypt(new_secret())}
    row, _ = WebhookSecret.objects.get_or_create(user_id=user.pk, defaults=made)
    return row


def rotate_secret(user: AbstractBaseUser) -> WebhookSecret:
    """Give a user another secret; the one before it signs too for PREVIOUS_SIGNS_FOR."""
    with transaction.atomic():
        secret_of(user)
        row = WebhookSecret.objects.select_for_update(of=("self",)).get(user_id=user.pk)
        try:
            row.encrypted_previous = reencrypt(row.encrypted_secret, what="The webhook secret")
        except SecretUnreadableError:  # of no use, as no key reads it any more
            row.encrypted_previous = ""
        row.secret = new_secret()
        row.rotated_at = leases.database_now()
        row.save(update_fields=["encrypted_previous", "encrypted_secret", "rotated_at"])
    return row


@transaction.atomic
def reencrypt_secrets() -> int:
    """Encrypt all users' secrets with the current key; return how many users these are.

    Raises:
        SecretUnreadableError: a secret was kept with a key that is not known; nothing has changed.
    """
    rows = list(WebhookSecret.objects.select_for_update(of=("self",)).order_by("pk"))
    for row in rows:
        try:
            row.encrypted_secret = reencrypt(row.encrypted_secret, what="A webhook secret")
            row.encrypted_previous = reencrypt(row.encrypted_previous, what="A previous secret")
        except SecretUnreadableError as error:
            raise SecretUnreadableError(error.code, f"{error} (user {row.user_id})") from error
        row.save(update_fields=["encrypted_secret", "encrypted_previous"])
    return len(rows)


def new_secret() -> str:
    """Return a secret nobody had before: `whsec_` and base64 of 32 random bytes."""
    return SECRET_START + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def previous_until(row: WebhookSecret) -> dt.datetime | None:
    """Return until when the secret before this one signs too; None when it does not any more."""
    end = row.rotated_at + PREVIOUS_SIGNS_FOR
    return end if row.encrypted_previous and leases.database_now() < end else None


def signing_secrets(row: WebhookSecret) -> list[str]:
    """Return the secrets that sign a message sent now, the newest first.

    Raises:
        SecretUnreadableError: this process has another key than the one that they were kept with.
    """
    return [row.secret, row.previous] if previous_until(row) else [row.secret]


def signed_headers(
    message_id: str, *, timestamp: int, body: bytes, signers: Sequence[str]
) -> dict[str, str]:
    """Return the headers by which a receiver knows a message, its age and its sender.

    Args:
        timestamp: of this attempt, in seconds since 1970.
        signers: secrets, of each of which the signature is added.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    keys = [base64.b64decode(secret.removeprefix(SECRET_START)) for secret in signers]
    digests = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{digest.decode()}" for digest in digests),
    }
