"""Go on with `GET /api/v1/jobs/{id}/audio?live=1` outside Django, without a thread per listener.

Django's view decides who may listen and to what, and says so by a header. From there on the rows
say which objects follow each other, and their bytes are sent as fast as the client takes them:
nothing is decoded or queued. Without this wrapper the answer has no body.
"""

from __future__ import annotations

import asyncio
import enum
import re
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from synth.asgi_ask import Answer, AsgiApp, Receive, Scope, Send, ask, disconnected
from synth.live.answer import (
    BYTES_PER_SAMPLE,
    send_bytes,
    send_no_room,
    send_not_started,
    send_start,
)
from synth.live.place import Silence, Sound
from synth.live.reading import read_object
from synth.live.watcher import Listener, LiveWatcher

LIVE_HEADER = "TTS-Live"  # set by the view: the format; never sent on
SILENT_SECONDS = 600.0  # without any audio, or with a client that takes none
READERS = 4  # threads that read objects, for all listeners together
_PATH = re.compile(r"/api/v1/jobs/([0-9a-f-]{36})/audio", re.IGNORECASE)
_SILENCE = bytes(1 << 16)

ReadObject = Callable[[str], bytes | None]


class Outcome(enum.Enum):
    """Say how a stream went."""

    ENDED = "ended"
    NOTHING = "nothing"  # the job has ended, and there is no audio
    LATE = "late"  # there was no audio within the time


class LiveStreams:
    """Wrap an ASGI application; streams of audio that is being made are served by this.

    Args:
        max_streams: listeners at once; what comes on top is answered by a 503.
        start_seconds: how long a listener waits for the first audio.
        watcher: who looks for the listeners; its listeners are counted.
        read: returns an object's bytes; blocking, called in a few threads.
    """

    def __init__(
        self,
        app: AsgiApp,
        *,
        max_streams: int,
        start_seconds: float,
        watcher: LiveWatcher,
        read: ReadObject = read_object,
    ) -> None:
        self._app, self._max_streams = app, max_streams
        self._start_seconds = start_seconds
        self._watcher, self._read = watcher, read
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="live-read")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; everything but a live stream goes through untouched."""
        job_id = _listened_to(scope)
        if job_id is None:
            await self._app(scope, receive, send)
            return
        answer = await ask(self._app, scope, LIVE_HEADER)
        if answer.said is None:  # refused, or a finished file
            await _send_on(answer, send)
        elif not self.has_room:
            await send_no_room(send, self._max_streams)
        else:
            outcome = await self.stream(job_id, answer.said, receive, send)
            if outcome is Outcome.NOTHING:
                answer = await ask(self._app, scope, LIVE_HEADER)  # which says why
                if answer.said is None:
                    await _send_on(answer, send)
                    return
            if outcome in (Outcome.NOTHING, Outcome.LATE):
                await send_not_started(send, job_id, self._start_seconds)

    @property
    def has_room(self) -> bool:
        """Whether one more may listen."""
        return len(self._watcher.listeners) < self._max_streams

    async def stream(
        self, job_id: uuid.UUID, form: str, receive: Receive, send: Send
    ) -> Outcome | None:
        """Send a job's audio until the job ends; None when the client left before.

        Nothing has been sent unless the outcome is ENDED or None.
        """
        listener = self._watcher.open(job_id)
        told = asyncio.ensure_future(self._play(listener, form, send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({told, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._watcher.listeners.discard(listener)
            for future in (told, gone):
                future.cancel()
            results = await asyncio.gather(told, gone, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0] if isinstance(results[0], Outcome) else None

    async def _play(self, listener: Listener, form: str, send: Send) -> Outcome:
        has_begun = False
        while True:
            step = await self._next(listener, SILENT_SECONDS if has_begun else self._start_seconds)
            if isinstance(step, Outcome):
                if not has_begun:
                    return step
                await send_bytes(send, b"", more=False)
                return Outcome.ENDED
            if isinstance(step, Sound):
                if not has_begun:
                    has_begun = True
                    await send_start(send, form, listener.job_id, step.sample_rate)
                body = await asyncio.get_running_loop().run_in_executor(
                    self._readers, self._read, step.key
                )
                if body is None:  # the job was deleted
                    await send_bytes(send, b"", more=False)
                    return Outcome.ENDED
                await self._send(send, body[step.skip * BYTES_PER_SAMPLE :])
            else:
                left = step.num_samples * BYTES_PER_SAMPLE
                while left > 0:
                    await self._send(send, _SILENCE[: min(left, len(_SILENCE))])
                    left -= len(_SILENCE)

    async def _next(self, listener: Listener, seconds: float) -> Sound | Silence | Outcome:
        """Return what follows, waiting until it is there; an outcome where nothing does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            listener.changed.clear()
            place = listener.place
            if listener.is_gone or (place is not None and place.is_over):
                return Outcome.NOTHING
            if place is not None:
                step = place.step(listener.states)
                if step is not None:
                    return step
                if place.is_over:
                    return Outcome.NOTHING
                if place.window[0] not in listener.states:
                    self._watcher.hurry()
            try:
                await asyncio.wait_for(listener.changed.wait(), deadline - loop.time())
            except TimeoutError:
                return Outcome.LATE

    async def _send(self, send: Send, body: bytes) -> None:
        """Send a part; a client that takes nothing for long loses the stream.

        Raises:
            TimeoutError: it took nothing.
        """
        async with asyncio.timeout(SILENT_SECONDS):
            await send_bytes(send, body)


async def _send_on(answer: Answer, send: Send) -> None:
    for message in answer.messages:
        await send(message)


def _listened_to(scope: Scope) -> uuid.UUID | None:
    """Return the job whose audio this request may want to hear, if it is such a request."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    if b"live=" not in scope.get("query_string", b""):
        return None
    found = _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))
    try:
        return uuid.UUID(found[1]) if found else None
    except ValueError:
        return None
