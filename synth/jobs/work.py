"""The kinds of leased work, each named here alone, and the messages that wake workers for them.

A lost or failed message costs a moment, never a row: rows decide. What a worker does with a kind
stands in `workers/kinds.py`.
"""

from __future__ import annotations

import enum
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from celery import current_app
from django.apps import apps
from kombu.exceptions import OperationalError

if TYPE_CHECKING:
    from ttsweb.leases import LeasedModel

logger = logging.getLogger(__name__)

ENCODE, RENDER, CPU = "encode", "synth", "cpu"
ROLES = {"gpu": (ENCODE, RENDER), "cpu": (CPU,), "all": (ENCODE, RENDER, CPU)}  # their queues
FILL_LIVE = "workers.fill_live"
ADVANCE_BOOK_BATCH = "workers.advance_book_batch"
SWEEP = "workers.upkeep.sweep"
SEGMENTS_PER_MESSAGE = 8
MOST_MESSAGES = 8  # enough to wake the workers; their pumps find the rest


class Kind(enum.Enum):
    """A kind of leased work.

    Attributes:
        label: what logs and threads call one of its rows, `plural` what they call many.
        task: the name of the message for its rows, "" where none is sent.
        queue: of that message, which also says which workers take the work.
    """

    VERSION = "version", "clips", "voices.VoiceVersion", "workers.encode_voice_version", ENCODE
    CODES = "codes", "codes", "voices.ClipCodes", "", ENCODE  # held within a version
    SEGMENT = "segment", "segments", "synth.Segment", "workers.render_segments", RENDER
    EXPORT = "export", "exports", "synth.Export", "workers.assemble", CPU
    DELIVERY = "delivery", "webhooks", "synth.WebhookDelivery", "workers.deliver", CPU
    BOOK = "book", "books", "synth.BookSource", "workers.import_book", CPU
    BOOK_FILE = "book_file", "book_files", "synth.BookFile", "workers.make_book_file", CPU

    def __init__(self, label: str, plural: str, model: str, task: str, queue: str) -> None:
        self.label, self.plural, self.task, self.queue = label, plural, task, queue
        self._model = model

    @property
    def model(self) -> type[LeasedModel]:
        """Return the model of its rows."""
        found: type[LeasedModel] = apps.get_model(self._model)
        return found

    @property
    def needs_engine(self) -> bool:
        """Return whether only workers with an engine do it."""
        return self.queue != CPU

    @property
    def may_kill(self) -> bool:
        """Return whether it may end a worker, so that a suspect row of it runs beside no other."""
        return bool(self.task) and self is not Kind.DELIVERY


def send(kind: Kind, pk: uuid.UUID) -> bool:
    """Ask a worker to look at a row; return whether the broker took the message."""
    return _send(kind.task, str(pk), queue=kind.queue)


def send_segments(segment_ids: Sequence[int]) -> bool:
    """Wake GPU workers with the first of these segments; stop at the first failed message."""
    named = segment_ids[: MOST_MESSAGES * SEGMENTS_PER_MESSAGE]
    return all(
        _send(
            Kind.SEGMENT.task,
            list(named[start : start + SEGMENTS_PER_MESSAGE]),
            queue=Kind.SEGMENT.queue,
        )
        for start in range(0, len(named), SEGMENTS_PER_MESSAGE)
    )


def send_to_cpu(task: str, pk: uuid.UUID) -> bool:
    """Ask a CPU worker for what has no lease; return whether the broker took the message."""
    return _send(task, str(pk), queue=CPU)


def _send(name: str, argument: str | list[int], *, queue: str) -> bool:
    """Publish one message; a broker that is away is logged: the row waits for a pump."""
    try:
        current_app.send_task(name, args=[argument], queue=queue, ignore_result=True)
    except (OperationalError, OSError) as error:
        logger.warning("message not sent: task=%s error=%s", name, type(error).__name__)
        return False
    return True
