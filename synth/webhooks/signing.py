"""Sign messages as Standard Webhooks 1.0 has it, so that receivers can use any of its libraries."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from synth.models import WebhookSecret
from ttsweb import leases
from ttsweb.encryption import SecretUnreadableError, encrypt, reencrypt

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
        row.encrypted_previous = _kept(row)
        row.secret = new_secret()
        row.rotated_at = leases.database_now()
        row.save(update_fields=["encrypted_previous", "encrypted_secret", "rotated_at"])
    return row


def _kept(row: WebhookSecret) -> str:
    """Return what is kept of a secret that is rotated: nothing, where no key reads it any more."""
    try:
        return reencrypt(row.encrypted_secret, what="The webhook secret")
    except SecretUnreadableError:
        return ""


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
    signatures = (_signature(secret, content) for secret in signers)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_START))
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
