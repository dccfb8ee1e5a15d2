"""Receive messages; what is claimed, and whether, the rows decide."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from celery import shared_task

from synth.batches.turns import advance_batch
from ttsweb.work import ADVANCE_BOOK_BATCH, FILL_LIVE, SWEEP, Kind
from workers.process import claiming, worker_process
from workers.sweep import sweep_if_due

logger = logging.getLogger(__name__)


def look(kind: Kind) -> None:
    """Take rows of a kind that wait, as far as this worker has room.

    For segments its pump looks, with the few queries that many messages cost as well as one.
    """
    process = worker_process.current_process()
    if process is None:
        return
    if kind is Kind.SEGMENT:
        process.look_for_work(kind)
    else:
        claiming.take(process, kind)


def _declare(kind: Kind) -> None:
    @shared_task(name=kind.task)
    def receive() -> None:
        look(kind)


for _kind in Kind:
    if _kind.task:
        _declare(_kind)


@shared_task(name=ADVANCE_BOOK_BATCH)
def advance_book_batch(batch_id: Any) -> None:
    """Begin what of a batch of books has its turn, or end it."""
    try:
        found = uuid.UUID(batch_id)
    except (ValueError, TypeError, AttributeError):
        logger.warning("message dropped, its argument is not an id: %.80r", batch_id)
        return
    advance_batch(found)


@shared_task(name=FILL_LIVE)
def fill_live() -> None:
    """Have this worker look at once for audio that listeners of some job miss."""
    process = worker_process.current_process()
    if process is not None:
        process.fill_due.set()


@shared_task(name=SWEEP)
def sweep() -> None:
    sweep_if_due()
