"""Receive messages, each with ids of rows; what is claimed, and whether, the rows decide."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from celery import shared_task

from synth.batches.turns import advance_batch
from synth.jobs.work import ADVANCE_BOOK_BATCH, FILL_LIVE, SWEEP, Kind
from workers.process import claiming, worker_process
from workers.upkeep.sweep import sweep_if_due

logger = logging.getLogger(__name__)

MOST_IDS = 1000


def look(kind: Kind, argument: Any) -> None:
    """Take the row that a message names, or those that are more urgent, if this worker has room.

    For segments its pump looks, with the few queries that many messages cost as well as one.
    """
    found = _as_ids(argument) if kind is Kind.SEGMENT else _as_uuid(argument)
    process = worker_process.current_process()
    if not found or process is None:
        return
    if kind is Kind.SEGMENT:
        process.look_for_work()
    elif isinstance(found, uuid.UUID):
        claiming.take(process, kind, [found])


def _declare(kind: Kind) -> None:
    @shared_task(name=kind.task)
    def receive(argument: Any) -> None:
        look(kind, argument)


for _kind in Kind:
    if _kind.task:
        _declare(_kind)


@shared_task(name=ADVANCE_BOOK_BATCH)
def advance_book_batch(batch_id: Any) -> None:
    """Begin what of a batch of books has its turn, or end it."""
    found = _as_uuid(batch_id)
    if found is not None:
        advance_batch(found)


@shared_task(name=FILL_LIVE)
def fill_live(job_id: Any) -> None:
    """Have this worker look at once for audio that listeners of some job miss."""
    process = worker_process.current_process()
    if _as_uuid(job_id) is not None and process is not None:
        process.live_filler.look()


@shared_task(name=SWEEP)
def sweep() -> None:
    """Do a round of the sweep if it is due."""
    sweep_if_due()


def _as_uuid(value: Any) -> uuid.UUID | None:
    """Return the id in a message, or None, with a line in the log, for anything else."""
    try:
        return uuid.UUID(value)
    except (ValueError, TypeError, AttributeError):
        logger.warning("message dropped, its argument is not an id: %.80r", value)
        return None


def _as_ids(value: Any) -> list[int]:
    """Return the row ids in a message, or none, with a line in the log, for anything else."""
    is_list = isinstance(value, list) and len(value) <= MOST_IDS
    if is_list and all(type(one) is int and 0 < one < 2**63 for one in value):
        return list(value)
    logger.warning("message dropped, its argument is not a list of ids: %.80r", value)
    return []
