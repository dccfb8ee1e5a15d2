"""Make API keys and recognise them. A key is shown once; the database knows only its digest."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from hmac import compare_digest

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q
from django.utils import timezone

from synth.models import ApiKey, default_scopes
from ttsweb.rights import LIMITS

KEY_START = "tts_"  # lets secret scanners find a key that leaked
_KEY = re.compile(rf"{KEY_START}(?P<prefix>[0-9a-f]{{12}})_[A-Za-z0-9_-]{{43}}")
USE_IS_NOTED_EVERY = dt.timedelta(minutes=1)


class KeyRejectedError(Exception):
    """A key opens nothing: `code` is key_invalid, key_revoked, key_expired or user_inactive."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def create_key(
    user: AbstractBaseUser,
    name: str,
    expires_at: dt.datetime | None = None,
    *,
    scopes: Collection[str] | None = None,
    limits: Mapping[str, int | None] | None = None,
) -> tuple[ApiKey, str]:
    """Make a key of a user and return its row and the key itself, which cannot be read again.

    The key is `tts_<prefix>_<secret>`; the prefix finds the row, the secret has 256 random bits.

    Args:
        scopes: what it may do, of `ApiKey.Scope`; None is all but `admin`.
        limits: any of LIMITS; what is left out or None does not limit.
    """
    chosen = default_scopes() if scopes is None else list(scopes)
    unknown = (set(chosen) - set(ApiKey.Scope.values)) | (set(limits or {}) - set(LIMITS))
    if unknown:
        raise ValueError(f"no scope or limit of a key: {', '.join(sorted(unknown))}")
    prefix = secrets.token_hex(6)
    key = f"{KEY_START}{prefix}_{secrets.token_urlsafe(32)}"
    row = ApiKey.objects.create(
        user_id=user.pk,
        name=name,
        prefix=prefix,
        digest=digest_of(key),
        expires_at=expires_at,
        scopes=[scope for scope in ApiKey.Scope.values if scope in chosen],
        **(limits or {}),
    )
    return row, key


def digest_of(key: str) -> str:
    """Return what is stored of a key: its sha256 in hex; 256 random bits need no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


def find_key(key: str) -> ApiKey:
    """Return the row of a key that may be used now, with its user, and note the use.

    Raises:
        KeyRejectedError: no such key, or it is revoked or expired, or its user is switched off.
    """
    row = _row_of(key)
    # The same sentence for a wrong prefix and a wrong secret: which prefixes exist is not told.
    if row is None or not compare_digest(row.digest, digest_of(key)):
        raise KeyRejectedError(
            "key_invalid",
            "This API key does not exist. Check the key; API keys are made in the admin at “API "
            "keys”, or by `./tts create_key`.",
        )
    now = timezone.now()
    if row.revoked_at is not None:
        raise KeyRejectedError(
            "key_revoked", "This API key was revoked; ask your administrator for another one."
        )
    if row.expires_at is not None and row.expires_at <= now:
        raise KeyRejectedError(
            "key_expired", "This API key has expired; ask your administrator for another one."
        )
    if not row.user.is_active:
        raise KeyRejectedError(
            "user_inactive", "The user of this API key is deactivated; ask your administrator."
        )
    _note_use(row, now)
    return row


def revoke_key(row: ApiKey) -> bool:
    """Make a key useless at once; False when it was revoked already."""
    unrevoked = ApiKey.objects.filter(pk=row.pk, revoked_at__isnull=True)
    return bool(unrevoked.update(revoked_at=timezone.now()))


def _row_of(key: str) -> ApiKey | None:
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    return ApiKey.objects.select_related("user").filter(prefix=match["prefix"]).first()


def _note_use(row: ApiKey, now: dt.datetime) -> None:
    """Write `last_used_at`, at most once a minute, so that a poll does not cost a write."""
    before = now - USE_IS_NOTED_EVERY
    if row.last_used_at is not None and row.last_used_at > before:
        return
    unnoted = Q(last_used_at__isnull=True) | Q(last_used_at__lte=before)
    ApiKey.objects.filter(unnoted, pk=row.pk).update(last_used_at=now)
