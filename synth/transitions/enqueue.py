"""Send messages for rows after their transaction has committed, and note when.

That a message is sent is written with the row itself: a commit of its own would cost every request
and every file a further wait for the disk. What could not be sent is noted afterwards, and what a
killed process did not send, the sweep sends again as any message that nobody heard.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from synth.jobs import work
from synth.jobs.work import Kind
from synth.models import Export, Segment, WebhookDelivery
from ttsweb import leases

MOST_FILE_MESSAGES = 8  # enough to wake the workers; their pumps find the rest


def enqueue_segments(segment_ids: Sequence[int]) -> None:
    """Send the segments' messages once the current transaction has committed."""
    ids = list(segment_ids)
    if ids:
        _enqueue(Segment.objects.filter(pk__in=ids), partial(work.send_segments, ids))


def enqueue_export(export_id: uuid.UUID) -> None:
    """Send the export's message once the current transaction has committed."""
    enqueue_exports([export_id])


def enqueue_exports(export_ids: Sequence[uuid.UUID]) -> None:
    """Wake workers for exports once the current transaction has committed."""
    named = list(export_ids[:MOST_FILE_MESSAGES])
    if named:
        rows = Export.objects.filter(pk__in=list(export_ids))
        _enqueue(rows, lambda: all(work.send(Kind.EXPORT, one) for one in named))


def enqueue(kind: Kind, pk: uuid.UUID) -> None:
    """Send a row's message once the current transaction has committed."""
    _enqueue(kind.model._default_manager.filter(pk=pk), partial(work.send, kind, pk))


def enqueue_delivery(delivery_id: uuid.UUID) -> None:
    """Send a webhook delivery's message once the current transaction has committed."""
    transaction.on_commit(partial(_send_delivery, delivery_id))


def _send_delivery(delivery_id: uuid.UUID) -> None:
    if work.send(Kind.DELIVERY, delivery_id):
        WebhookDelivery.objects.filter(pk=delivery_id).update(sent_at=leases.database_now())


def _enqueue(rows: QuerySet[Any], send: Callable[[], bool]) -> None:
    rows.update(sent_at=leases.database_now())
    transaction.on_commit(partial(_send, rows, send))


def _send(rows: QuerySet[Any], send: Callable[[], bool]) -> None:
    if not send():
        rows.update(sent_at=None)
