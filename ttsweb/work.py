"""The kinds of work, each named here alone, and the messages that wake workers for them.

A message says that rows of a kind wait, not which: a lost or failed one costs a moment, never a
row. Without Redis messages are files, whose readers never see one that is half written. What a
worker does with a kind stands in `workers/kinds.py`.
"""

from __future__ import annotations

import enum
import logging
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery, current_app
from django.apps import apps
from django.conf import settings
from django.db import transaction
from kombu import Queue
from kombu.exceptions import ChannelError, OperationalError
from kombu.transport import filesystem
from kombu.utils.json import dumps

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


def make_app() -> Celery:
    """Return the configured app; the file transport's folders are made, for this user alone."""
    options = settings.CELERY["broker_transport_options"]
    for name in ("data_folder_in", "control_folder"):
        if name in options:
            Path(options[name]).mkdir(parents=True, exist_ok=True, mode=0o700)
    celery_app = Celery("ttsweb")
    celery_app.conf.update(settings.CELERY)
    celery_app.conf.update(
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        result_accept_content=["json"],
        task_acks_late=False,  # the lease owns the work, not the acknowledgement
        task_reject_on_worker_lost=False,
        worker_prefetch_multiplier=1,
        # Off, together with gossip and mingle, a busy worker never came back after a Redis restart.
        worker_enable_remote_control=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_soft_shutdown_timeout=0,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_publish_retry_policy={
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.1,
        },
        task_create_missing_queues=False,
        task_queues=[Queue(name) for name in ROLES["all"]],
        task_default_queue=CPU,
        imports=("workers.process.claiming",),
    )
    return celery_app


class Channel(filesystem.Channel):
    """Kombu's queue of messages as files, each of which gets its own name when it is complete.

    Kombu opens the file under its name, locks it and writes: a reader that looks in between finds
    it empty, and its worker then loses the connection.
    """

    def _put(self, queue: str, message: Any, **_: Any) -> None:  # type: ignore[override]
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        path = Path(self.data_folder_out, name)
        partial = path.with_name(f"{name}.partial")  # no queue has messages of this name
        try:
            partial.write_bytes(dumps(message).encode())
            partial.replace(path)
        except OSError as error:
            raise ChannelError(f"Cannot add file {str(path)!r} to directory") from error


class Transport(filesystem.Transport):
    Channel = Channel
