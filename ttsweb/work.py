"""The kinds of work, each named here alone, and the messages that wake workers for them.

A message says that rows of a kind wait, not which: a lost or failed one costs a moment, never a
row. What a worker does with a kind stands in `workers/kinds.py`.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from celery import current_app
from django.apps import apps
from django.db import transaction
from kombu.exceptions import OperationalError

from ttsweb import leases
from ttsweb.leases import LeasedModel

logger = logging.getLogger(__name__)

ENCODE, RENDER, CPU = "encode", "synth", "cpu"
ROLES = {"gpu": (ENCODE, RENDER), "cpu": (CPU,), "all": (ENCODE, RENDER, CPU)}  # their queues
FILL_LIVE = "workers.fill_live"
ADVANCE_BOOK_BATCH = "workers.advance_book_batch"
SWEEP = "workers.sweep"
SEGMENTS_PER_MESSAGE = 8  # of all other kinds each row has one
MOST_MESSAGES = 8  # enough to wake the workers; their pumps find the rest


class Kind(enum.Enum):
    """A kind of leased work.

    Attributes:
        label: what logs and threads call one of its rows, `plural` what they call many.
        task: the name of the message for its rows, "" where none is sent.
        queue: of that message, which also says which workers take the work.
    """

    VERSION = "version", "clips", "voices.VoiceVersion", "workers.encode_voice_version", ENCODE
    TRANSCRIPT = (
        "transcript", "transcripts", "voices.Transcript", "workers.propose_transcript", ENCODE
    )  # fmt: skip
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
        found: type[LeasedModel] = apps.get_model(self._model)
        return found

    @property
    def needs_engine(self) -> bool:
        return self.queue != CPU

    @property
    def may_kill(self) -> bool:
        """Return whether it may end a worker, so that a suspect row of it runs beside no other."""
        return bool(self.task) and self is not Kind.DELIVERY


def enqueue(kind: Kind, pks: Sequence[Any]) -> None:
    """Wake workers for rows that wait, once the current transaction has committed.

    That a message was sent is written with the rows themselves: a commit of its own would cost
    every request and every file a further wait for the disk. What could not be sent is noted
    afterwards, and what a killed process did not send, the sweep sends again as any message that
    nobody heard.
    """
    if pks:
        kind.model._default_manager.filter(pk__in=pks).update(sent_at=leases.database_now())
        transaction.on_commit(partial(_send_or_note, kind, list(pks)))


def _send_or_note(kind: Kind, pks: Sequence[Any]) -> None:
    if not send(kind, len(pks)):
        kind.model._default_manager.filter(pk__in=pks).update(sent_at=None)


def send(kind: Kind, rows: int) -> bool:
    """Wake workers for so many rows of a kind at once; return whether the broker took it all."""
    share = SEGMENTS_PER_MESSAGE if kind is Kind.SEGMENT else 1
    messages = min(MOST_MESSAGES, -(-rows // share))
    return all(_send(kind.task, kind.queue) for _ in range(messages))


def enqueue_task(task: str, *arguments: str) -> None:
    """Have a CPU worker do what has no lease, once the current transaction has committed."""
    transaction.on_commit(partial(_send, task, CPU, *arguments), robust=True)


def _send(task: str, queue: str, *arguments: str) -> bool:
    try:
        current_app.send_task(task, args=arguments, queue=queue, ignore_result=True)
    except (OperationalError, OSError) as error:
        logger.warning("message not sent: task=%s error=%s", task, type(error).__name__)
        return False
    return True
