"""Send messages for rows after their transaction has committed, and note when."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial

from django.db import transaction

from synth import queue
from synth.models import BookSource, Export, Segment
from ttsweb import leases


def enqueue_segments(segment_ids: Sequence[int]) -> None:
    """Send the segments' messages once the current transaction has committed."""
    transaction.on_commit(partial(_send_segments, list(segment_ids)))


def _send_segments(segment_ids: list[int]) -> None:
    if segment_ids and queue.send_segments(segment_ids):
        Segment.objects.filter(pk__in=segment_ids).update(sent_at=leases.database_now())


def enqueue_export(export_id: uuid.UUID) -> None:
    """Send the export's message once the current transaction has committed."""
    transaction.on_commit(partial(_send_export, export_id))


def _send_export(export_id: uuid.UUID) -> None:
    if queue.send_assemble(export_id):
        Export.objects.filter(pk=export_id).update(sent_at=leases.database_now())


def enqueue_book(book_id: uuid.UUID) -> None:
    """Send the message that has a book read once the current transaction has committed."""
    transaction.on_commit(partial(_send_book, book_id))


def _send_book(book_id: uuid.UUID) -> None:
    if queue.send_import_book(book_id):
        BookSource.objects.filter(pk=book_id).update(sent_at=leases.database_now())
