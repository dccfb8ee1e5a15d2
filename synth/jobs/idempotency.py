"""Make once what a request with an Idempotency-Key asks for."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import IntegrityError
from django.db.models import QuerySet

from synth.models import Batch, BookSource, RenderJob
from ttsweb.refusals import SubmitRejectedError

Row = TypeVar("Row", RenderJob, Batch, BookSource)
_COLUMN = "idempotency_key"  # the constraints' names hold it, and so do the columns


def make_once(
    rows: QuerySet[Row],
    make: Callable[[], Row],
    *,
    owner: AbstractBaseUser | None,
    key: str,
    digest: str,
) -> tuple[Row, bool]:
    """Return the row that this owner's key has made, or what `make` makes; and whether it did.

    Args:
        rows: those among which a key of an owner is used once.
        make: writes the row with the key and the digest.
        key: at most 255 characters; empty makes a new row in any case.
        digest: of the request, which must be the same for the same key.

    Raises:
        SubmitRejectedError: idempotency_key_reused, and whatever `make` raises.
    """
    if (known := find_made(rows, owner=owner, key=key, digest=digest)) is not None:
        return known, False
    try:
        return make(), True
    except IntegrityError as error:  # another request with the key was faster
        if _COLUMN not in str(error):
            raise
        if (known := find_made(rows, owner=owner, key=key, digest=digest)) is None:
            raise
        return known, False


def find_made(
    rows: QuerySet[Row], *, owner: AbstractBaseUser | AnonymousUser | None, key: str, digest: str
) -> Row | None:
    """Return the row that this owner's key has made.

    Raises:
        SubmitRejectedError: idempotency_key_reused, the key came with another body.
    """
    if not key:
        return None
    owner_id = owner.pk if owner else None
    row = rows.filter(owner_id=owner_id, idempotency_key=key).first()
    if row is not None:
        noun = str(rows.model._meta.verbose_name)
        check_digest(row.body_digest, digest, noun=noun, pk=row.pk)
    return row


def check_digest(known: str, digest: str, *, noun: str, pk: uuid.UUID) -> None:
    """Refuse a key that came with another body than the first time.

    Raises:
        SubmitRejectedError: idempotency_key_reused.
    """
    if known != digest:
        raise SubmitRejectedError(
            "idempotency_key_reused",
            f"This Idempotency-Key was used with another body, for the {noun} {pk}. Use a new "
            f"key for a new {noun}.",
        )
