"""Receive messages: each is a doorbell with ids; what is claimed, and whether, the rows decide."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from celery import shared_task

from synth.book_batches.advance import advance_batch
from synth.jobs import queue
from workers.process import claiming, running
from workers.upkeep.sweep import sweep_if_due
from workers.webhook import take_deliveries

logger = logging.getLogger(__name__)

MOST_IDS = 1000


@shared_task(name=queue.ENCODE_VOICE_VERSION)
def encode_voice_version(version_id: Any) -> None:
    """Encode a voice version if it waits and this worker has room."""
    found = _as_uuid(version_id)
    process = running.current()
    if found is not None and process is not None:
        claiming.take_versions(process, [found])


@shared_task(name=queue.RENDER_SEGMENTS)
def render_segments(segment_ids: Any) -> None:
    """Have this worker look at once for segments that wait: these or more urgent ones.

    Its pump claims, with the few queries that many messages cost as well as one.
    """
    found = _as_ids(segment_ids)
    process = running.current()
    if found and process is not None:
        process.look_around()


@shared_task(name=queue.ASSEMBLE)
def assemble(export_id: Any) -> None:
    """Make files that wait, this one or more urgent ones, if this worker has room."""
    found = _as_uuid(export_id)
    process = running.current()
    if found is not None and process is not None:
        claiming.take_exports(process)


@shared_task(name=queue.IMPORT_BOOK)
def import_book(book_id: Any) -> None:
    """Read an uploaded book if it waits and this worker has room."""
    found = _as_uuid(book_id)
    process = running.current()
    if found is not None and process is not None:
        claiming.take_books(process, [found])


@shared_task(name=queue.ADVANCE_BOOK_BATCH)
def advance_book_batch(batch_id: Any) -> None:
    """Begin what of a batch of books has its turn, or end it."""
    found = _as_uuid(batch_id)
    if found is not None:
        advance_batch(found)


@shared_task(name=queue.MAKE_BOOK_FILE)
def make_book_file(file_id: Any) -> None:
    """Make a file of a book if it waits and this worker has room."""
    found = _as_uuid(file_id)
    process = running.current()
    if found is not None and process is not None:
        claiming.take_book_files(process, [found])


@shared_task(name=queue.FILL_LIVE)
def fill_live(job_id: Any) -> None:
    """Have this worker look at once for audio that listeners of some job miss."""
    process = running.current()
    if _as_uuid(job_id) is not None and process is not None:
        process.live_filler.look()


@shared_task(name=queue.DELIVER)
def deliver(delivery_id: Any) -> None:
    """Send a webhook if it waits and this worker has room."""
    found = _as_uuid(delivery_id)
    process = running.current()
    if found is not None and process is not None:
        take_deliveries(process, [found])


@shared_task(name="workers.upkeep.sweep")
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
