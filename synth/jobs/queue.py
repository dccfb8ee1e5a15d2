"""Publish work by task name and ids. A lost or failed message costs a moment, never a row."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence

from celery import current_app
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

ENCODE_VOICE_VERSION = "workers.encode_voice_version"
RENDER_SEGMENTS = "workers.render_segments"
ASSEMBLE = "workers.assemble"
DELIVER = "workers.deliver"
FILL_LIVE = "workers.fill_live"
IMPORT_BOOK = "workers.import_book"
ADVANCE_BOOK_BATCH = "workers.advance_book_batch"
MAKE_BOOK_FILE = "workers.make_book_file"
SEGMENTS_PER_MESSAGE = 8
MOST_DOORBELLS = 8  # enough to wake the workers; their pumps find the rest


def send_encode(version_id: uuid.UUID) -> bool:
    """Ask a GPU worker to encode a voice version; return whether the broker took the message."""
    return _send(ENCODE_VOICE_VERSION, str(version_id), queue="encode")


def send_segments(segment_ids: Sequence[int]) -> bool:
    """Wake GPU workers with the first of these segments; stop at the first failed message."""
    named = segment_ids[: MOST_DOORBELLS * SEGMENTS_PER_MESSAGE]
    chunks: Iterable[Sequence[int]] = (
        named[start : start + SEGMENTS_PER_MESSAGE]
        for start in range(0, len(named), SEGMENTS_PER_MESSAGE)
    )
    return all(_send(RENDER_SEGMENTS, list(chunk), queue="synth") for chunk in chunks)


def send_assemble(export_id: uuid.UUID) -> bool:
    """Ask a CPU worker to join a job's takes; return whether the broker took the message."""
    return _send(ASSEMBLE, str(export_id), queue="cpu")


def send_fill_live(job_id: uuid.UUID) -> bool:
    """Ask a CPU worker for the pieces of a job that is listened to; return whether it was sent."""
    return _send(FILL_LIVE, str(job_id), queue="cpu")


def send_deliver(delivery_id: uuid.UUID) -> bool:
    """Ask a CPU worker to deliver a webhook; return whether the broker took the message."""
    return _send(DELIVER, str(delivery_id), queue="cpu")


def send_import_book(book_id: uuid.UUID) -> bool:
    """Ask a CPU worker to read an uploaded book; return whether the broker took the message."""
    return _send(IMPORT_BOOK, str(book_id), queue="cpu")


def send_book_file(file_id: uuid.UUID) -> bool:
    """Ask a CPU worker to make a file of a book; return whether the broker took the message."""
    return _send(MAKE_BOOK_FILE, str(file_id), queue="cpu")


def send_advance_book_batch(batch_id: uuid.UUID) -> bool:
    """Ask a CPU worker to look after a batch of books; return whether the message was taken."""
    return _send(ADVANCE_BOOK_BATCH, str(batch_id), queue="cpu")


def _send(name: str, argument: str | list[int], *, queue: str) -> bool:
    """Publish one message; a broker that is away is logged: the row waits for a pump."""
    try:
        current_app.send_task(name, args=[argument], queue=queue, ignore_result=True)
    except (OperationalError, OSError) as error:
        logger.warning("message not sent: task=%s error=%s", name, type(error).__name__)
        return False
    return True
