"""Change what is shown of a book at any time: what is said of it, and its cover."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from synth.models import BookSource
from ttsweb import leases
from voices.objects import delete_objects_on_commit


def change_metadata(book_id: uuid.UUID, changes: Mapping[str, Any]) -> bool:
    """Say something else of a book; null takes back what was said. False: there is none."""
    with transaction.atomic():
        book = BookSource.objects.select_for_update(of=("self",)).filter(pk=book_id).first()
        if book is None:
            return False
        merged = {**book.metadata, **changes}
        return bool(
            BookSource.objects.filter(pk=book_id).update(
                metadata={name: value for name, value in merged.items() if value is not None},
                updated_at=leases.database_now(),
            )
        )


def replace_cover(book_id: uuid.UUID, *, key: str, media_type: str) -> bool:
    """Give a book another cover, or none by an empty key; the one so far goes."""
    with transaction.atomic():
        book = BookSource.objects.select_for_update(of=("self",)).filter(pk=book_id).first()
        if book is None:
            return False
        delete_objects_on_commit([book.cover_key] if book.cover_key else [])
        return bool(
            BookSource.objects.filter(pk=book_id).update(
                cover_key=key, cover_type=media_type, updated_at=leases.database_now()
            )
        )
