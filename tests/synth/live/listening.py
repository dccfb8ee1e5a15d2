"""Rows and objects that a test holds, and listeners who keep what they are sent."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import numpy as np
from django.db import OperationalError

from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER
from synth.live.watcher import Chunk, LiveRows, SegmentState
from tests.synth.audio.received import speech_like

JOB = uuid.UUID("7b6b1de4-6f2c-4a3c-9e0a-111111111111")
TAKE = uuid.UUID(int=7)
URL = f"/api/v1/jobs/{JOB}/audio"
RATE = 8000


class Rows:
    """Stand for the database, the storage, and the view that answers first."""

    def __init__(self, form: str | None) -> None:
        self.form = form
        self.states: dict[int, SegmentState] = {1: SegmentState("claimed", None, 0)}
        self.objects: dict[str, bytes] = {}
        self.num_reads = 0
        self.num_looks = 0
        self.noted: list[Collection[uuid.UUID]] = []
        self.failing = False

    def write(self, *pieces: bytes, is_whole: bool = False, status: str = "claimed") -> None:
        self.objects |= {f"key{index}": piece for index, piece in enumerate(pieces)}
        last = len(pieces) - 1 if is_whole else None
        chunks = [
            Chunk(index, f"key{index}", len(piece) // 2, RATE, index == last)
            for index, piece in enumerate(pieces)
        ]
        take = TAKE if status == "done" else None
        self.states[1] = SegmentState(status, take, 0, {TAKE: chunks})

    def look_up(self, new: Collection[uuid.UUID], wanted: Collection[int]) -> LiveRows:
        self.num_looks += 1
        if self.failing:
            raise OperationalError("away")
        order = [*self.states]
        return LiveRows(
            dict.fromkeys(new, order), {pk: self.states[pk] for pk in wanted if pk in self.states}
        )

    def read(self, key: str) -> bytes | None:
        self.num_reads += 1
        return self.objects.get(key)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"audio/pcm")]
        if self.form is not None:
            options = LiveOptions(self.form, sample_rate=RATE).to_header()
            headers.append((LIVE_HEADER.lower().encode(), options.encode()))
        status = 200 if self.form is not None else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"the view's"})


class Client:
    """A listener: it keeps what it is sent, can leave, and can stop taking."""

    def __init__(
        self,
        app: Callable[[Any, Any, Any], Coroutine[Any, Any, None]],
        *,
        query: bytes = b"live=1",
        method: str = "GET",
        **more: Any,
    ) -> None:
        self.sent: list[dict[str, Any]] = []
        self.may_take = asyncio.Event()
        self.may_take.set()
        self.messages = asyncio.Queue[dict[str, Any]]()
        scope = {
            "type": "http",
            "method": method,
            "path": URL,
            "query_string": query,
            "headers": [],
        }
        self.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.serving = asyncio.create_task(app(scope | more, self.messages.get, self._keep))

    async def _keep(self, message: Any) -> None:
        await self.may_take.wait()
        self.sent.append(dict(message))

    @property
    def status(self) -> int:
        code: int = self.sent[0]["status"]
        return code

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def until(self, body: bytes) -> None:
        """Return once exactly this was sent."""
        async with asyncio.timeout(180):
            while self.body != body:
                await asyncio.sleep(0.005)

    async def until_sent(self, least: int) -> None:
        """Return once so many bytes were sent."""
        async with asyncio.timeout(180):
            while len(self.body) < least:
                await asyncio.sleep(0.005)

    async def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})
        await self.end()

    async def end(self) -> None:
        await asyncio.wait_for(self.serving, 180)


TRAILERS: dict[str, Any] = {
    "extensions": {"http.response.trailers": {}}, "headers": [(b"te", b"trailers")],
}  # fmt: skip


class Failing(dict[str, bytes]):
    """A storage that is away."""

    def get(self, *_: Any) -> Any:
        raise OSError("the storage is away")


def pieces_of(seconds: float) -> list[bytes]:
    """Return samples as a worker cuts them."""
    samples = np.rint(speech_like(seconds, RATE) * 2**15).astype("<i2").tobytes()
    size = 2 * RATE // 10
    return [samples[start : start + size] for start in range(0, len(samples), size)]
