"""Send audio as events, as OpenAI's API does: of a finished file, or while it is rendered."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.files.base import File
from django.db import connection
from django.db.models import Sum
from django.db.models.functions import Length

from synth.live.streams import LiveAnswer
from synth.models import RenderJob, Segment
from ttsweb.http.asgi_ask import Scope, Send
from ttsweb.http.problems import error_body
from ttsweb.leases import DATABASE_AWAY

EVENTS_TYPE = "text/event-stream"
_EVENT_BYTES = 48 * 1024


class FileEvents:
    """Iterate over the events of a file, each of which can be decoded by itself.

    A class and not a generator: closing one that never started would leave the file open.
    """

    def __init__(self, file: File[bytes], usage: dict[str, int]) -> None:
        self._file, self._usage = file, usage
        self.close = file.close

    def __iter__(self) -> Iterator[bytes]:
        while part := self._file.read(_EVENT_BYTES):
            yield _delta(part)
        yield _done(self._usage)


class EventAnswer(LiveAnswer):
    """Send audio as events while it is rendered; the last one tells the usage, or the error."""

    def __init__(
        self, scope: Scope, send: Send, headers: dict[str, str], job_id: uuid.UUID
    ) -> None:
        super().__init__(scope, send, {**headers, "Content-Type": EVENTS_TYPE})
        self._has_trailers = False
        self._job_id = job_id

    async def part(self, audio: bytes) -> None:
        await self._send_body(_delta(audio))

    async def finish(self) -> None:
        try:
            usage = await sync_to_async(_read_usage_apart, thread_sensitive=False)(self._job_id)
        except DATABASE_AWAY:
            sentence = "All audio was sent, but the database does not tell the usage now."
            await self.fail("database_unavailable", sentence)
            return
        await self._send_body(_done(usage))
        await self._complete()

    async def fail(self, code: str, sentence: str) -> None:
        body = {"type": "error", **error_body(500, code, sentence)}
        await self._send_body(b"event: error\n" + _event(body))
        await self._complete()


def read_usage(job_id: uuid.UUID) -> dict[str, int]:
    """Return what a job took: characters in, frames of codes out.

    The web process has no tokenizer, so characters stand for the tokens of the text.
    """
    jobs = RenderJob.objects.filter(pk=job_id)
    characters = jobs.values_list(Length("text"), flat=True).first() or 0
    segments = Segment.objects.filter(job=job_id)
    frames = segments.aggregate(frames=Sum("take__frames"))["frames"] or 0
    return {
        "input_tokens": characters,
        "output_tokens": frames,
        "total_tokens": characters + frames,
    }


def _read_usage_apart(job_id: uuid.UUID) -> dict[str, int]:
    """Read the usage in a thread that keeps no connection."""
    try:
        return read_usage(job_id)
    finally:
        connection.close()


def _delta(audio: bytes) -> bytes:
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def _done(usage: dict[str, int]) -> bytes:
    return _event({"type": "speech.audio.done", "usage": usage})


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()
