"""Decide who may do and see what: keys and their scopes, and the rows that a user may see.

A key is shown once; the database knows only its digest. Every queryset of jobs, batches and books
that the API and its pages show starts here.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Collection, Mapping
from hmac import compare_digest
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Prefetch, Q, QuerySet
from django.utils import timezone

from synth.models import ApiKey, Batch, BookSource, JobVoice, RenderJob, default_scopes
from ttsweb.leases import DATABASE_AWAY
from ttsweb.refusals import RefusedError
from ttsweb.rights import LIMITS

logger = logging.getLogger(__name__)
Row = TypeVar("Row", RenderJob, Batch, BookSource)


def visible_jobs(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    """Return the jobs of this user, items of batches too; a superuser's are all."""
    return _visible(RenderJob.objects.all(), user)


def with_voices(jobs: QuerySet[RenderJob]) -> QuerySet[RenderJob]:
    """Have the voices of jobs read by one query for all jobs."""
    pinned = JobVoice.objects.select_related("version__voice")
    return jobs.prefetch_related(Prefetch("voices", pinned))


def visible_batches(user: AbstractBaseUser | AnonymousUser, kind: Batch.Kind) -> QuerySet[Batch]:
    """Return the batches of texts or of books of this user; a superuser's are all."""
    return _visible(Batch.objects.filter(kind=kind), user)


def visible_books(user: AbstractBaseUser | AnonymousUser) -> QuerySet[BookSource]:
    """Return the books of this user; a superuser's are all."""
    return _visible(BookSource.objects.all(), user)


def sees_installation(user: AbstractBaseUser | AnonymousUser, key: ApiKey | None = None) -> bool:
    """Say whether a user may see figures of the whole installation: workers, caches, storage.

    Superusers may, and staff who may view workers; a key needs the scope `admin` besides.
    """
    if key is not None and ApiKey.Scope.ADMIN not in key.scopes:
        return False
    person: Any = user
    if getattr(person, "is_superuser", False):
        return True
    is_staff = bool(getattr(person, "is_staff", False))
    return is_staff and bool(person.has_perm("synth.view_workerstatus"))


def _visible(rows: QuerySet[Row], user: AbstractBaseUser | AnonymousUser) -> QuerySet[Row]:
    if not user.is_authenticated:
        return rows.none()
    if getattr(user, "is_superuser", False):
        return rows
    return rows.filter(owner_id=user.pk)


KEY_START = "tts_"  # lets secret scanners find a key that leaked
_KEY = re.compile(rf"{KEY_START}(?P<prefix>[0-9a-f]{{12}})_[A-Za-z0-9_-]{{43}}")
USE_IS_NOTED_EVERY = dt.timedelta(minutes=1)


class KeyRejectedError(Exception):
    """A key opens nothing: `code` is key_invalid, key_revoked, key_expired or user_inactive."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ScopeError(RefusedError):
    """Scopes do not go together, or not with the user: code `scopes_unfit`."""

    field = "scopes"


def check_scopes(scopes: Collection[str], user: Any) -> None:
    """Pass scopes that a key of this user may have.

    Raises:
        ScopeError: `worker` beside others, or for somebody who is not staff.
    """
    if ApiKey.Scope.WORKER not in scopes:
        return
    if set(scopes) != {ApiKey.Scope.WORKER}:
        sentence = "A key with the scope `worker` may do nothing else; leave the other scopes out."
        raise ScopeError("scopes_unfit", sentence)
    if not user.is_staff:
        sentence = "Only the key of a user who is staff may have the scope `worker`."
        raise ScopeError("scopes_unfit", sentence)


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

    Raises:
        ScopeError: the scopes do not go together, or not with the user.
    """
    chosen = default_scopes() if scopes is None else list(scopes)
    unknown = (set(chosen) - set(ApiKey.Scope.values)) | (set(limits or {}) - set(LIMITS))
    if unknown:
        raise ValueError(f"no scope or limit of a key: {', '.join(sorted(unknown))}")
    check_scopes(chosen, user)
    prefix, key = _new_secret()
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


def renew_key(row: ApiKey) -> str:
    """Give a key's row another secret and return it; the one before opens nothing any more."""
    row.prefix, key = _new_secret()
    row.digest = digest_of(key)
    row.save(update_fields=["prefix", "digest"])
    return key


def _new_secret() -> tuple[str, str]:
    prefix = secrets.token_hex(6)
    return prefix, f"{KEY_START}{prefix}_{secrets.token_urlsafe(32)}"


def digest_of(key: str) -> str:
    """Return what is stored of a key: its sha256 in hex; 256 random bits need no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


def find_key(key: str) -> ApiKey:
    """Return the row of a key that may be used now, with its user, and note the use.

    Raises:
        KeyRejectedError: no such key, or it is revoked or expired, or its user is switched off.
    """
    match = _KEY.fullmatch(key)
    rows = ApiKey.objects.select_related("user")
    row = rows.filter(prefix=match["prefix"]).first() if match is not None else None
    # The same sentence for a wrong prefix and a wrong secret: which prefixes exist is not told.
    if row is None or not compare_digest(row.digest, digest_of(key)):
        sentence = (
            "This API key does not exist. Check the key; API keys are made in the admin at “API "
            "keys”, or by `./tts create_key`."
        )
        raise KeyRejectedError("key_invalid", sentence)
    now = timezone.now()
    if row.revoked_at is not None:
        sentence = "This API key was revoked; ask your administrator for another one."
        raise KeyRejectedError("key_revoked", sentence)
    if row.expires_at is not None and row.expires_at <= now:
        sentence = "This API key has expired; ask your administrator for another one."
        raise KeyRejectedError("key_expired", sentence)
    if not row.user.is_active:
        sentence = "The user of this API key is deactivated; ask your administrator."
        raise KeyRejectedError("user_inactive", sentence)
    _note_use(row, now)
    return row


_unnoted_until = 0.0  # monotonic


def _note_use(row: ApiKey, now: dt.datetime) -> None:
    """Write when a key was last used, at most once a minute: a poll is not to cost a write.

    Nor is it to wait for one: a database that takes no note now is asked again in a minute.
    """
    global _unnoted_until
    before = now - USE_IS_NOTED_EVERY
    is_noted = row.last_used_at is not None and row.last_used_at > before
    if is_noted or time.monotonic() < _unnoted_until:
        return
    unnoted = Q(last_used_at__isnull=True) | Q(last_used_at__lte=before)
    try:
        ApiKey.objects.filter(unnoted, pk=row.pk).update(last_used_at=now)
    except DATABASE_AWAY as error:
        logger.warning("the use of a key was not noted: %s", type(error).__name__)
        _unnoted_until = time.monotonic() + USE_IS_NOTED_EVERY.total_seconds()


def revoke_key(row: ApiKey) -> bool:
    """Make a key useless at once; False when it was revoked already."""
    unrevoked = ApiKey.objects.filter(pk=row.pk, revoked_at__isnull=True)
    return bool(unrevoked.update(revoked_at=timezone.now()))
