"""Go on with `GET /api/v1/jobs/{id}/audio?live=1` outside Django, without a thread per listener.

Django's view decides who may listen and to what, and says so by a header. From there on the rows
say which objects follow each other, and their bytes are sent as fast as the client takes them:
nothing is decoded or queued. Without this wrapper the answer has no body.
"""

from __future__ import annotations

import asyncio
import enum
import re
import struct
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from synth.formats import FORMATS
from synth.live.watcher import Listener, LiveWatcher, Silence, Sound, read_object
from ttsweb.http.asgi_ask import AsgiApp, Receive, Scope, Send, ask, find_row, until_left
from ttsweb.http.csp import HEADER as CSP_HEADER
from ttsweb.http.problems import send_problem

RATE_HEADER = "TTS-Sample-Rate"
BYTES_PER_SAMPLE = 2
RETRY_SECONDS = 5
_UNKNOWN = 0xFFFFFFFF  # as a length: players take it for "until the end"


def wav_head(sample_rate: int) -> bytes:
    """Return the head of a mono 16-bit WAV file whose length nobody knows yet."""
    rate = sample_rate * BYTES_PER_SAMPLE
    form = struct.pack("<IHHIIHH", 16, 1, 1, sample_rate, rate, BYTES_PER_SAMPLE, 16)
    riff = b"RIFF" + struct.pack("<I", _UNKNOWN) + b"WAVE"
    return riff + b"fmt " + form + b"data" + struct.pack("<I", _UNKNOWN)


def live_headers(form: str, job_id: uuid.UUID) -> dict[str, str]:
    """Return the headers that do not depend on the audio."""
    return {
        "Content-Type": FORMATS[form].content_type,
        "Content-Disposition": f'inline; filename="speech-{str(job_id)[:8]}.{form}"',
        "Cache-Control": "private, no-store",
        "Accept-Ranges": "none",
        "X-Accel-Buffering": "no",  # nginx would keep audio back
        "X-Content-Type-Options": "nosniff",
        CSP_HEADER: "default-src 'none'; sandbox",
        "TTS-Job-Id": str(job_id),
    }


async def send_start(send: Send, form: str, job_id: uuid.UUID, sample_rate: int) -> None:
    """Begin the answer; what follows are samples, s16le, mono, at `sample_rate`."""
    headers = live_headers(form, job_id) | {RATE_HEADER: str(sample_rate)}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": pairs})
    if form == "wav":
        await send_bytes(send, wav_head(sample_rate))


async def send_bytes(send: Send, body: bytes, *, more: bool = True) -> None:
    """Send a part of the answer; waits while the client does not keep up."""
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def send_not_started(send: Send, job_id: uuid.UUID, seconds: float) -> None:
    """Answer that there is no audio yet, and that it may be asked for again."""
    sentence = (
        f"The job {job_id} had no audio within {seconds:g} s: other jobs are before it, or "
        "no worker is running. The job continues; try again later."
    )
    await _send_problem(send, "live_not_started", sentence)


async def send_no_room(send: Send, max_streams: int) -> None:
    """Answer that there are too many listeners."""
    sentence = (
        f"This server has {max_streams} live listeners, which is its limit. "
        "Try again later, or fetch the file when the job has ended."
    )
    await _send_problem(send, "too_many_live_streams", sentence)


async def _send_problem(send: Send, code: str, detail: str) -> None:
    headers = {"retry-after": str(RETRY_SECONDS), "cache-control": "private, no-store"}
    await send_problem(send, 503, code, detail, headers)


SILENT_SECONDS = 600.0  # without any audio, or with a client that takes none
READERS = 4  # threads that read objects, for all listeners together
_SILENCE = bytes(1 << 16)

ReadObject = Callable[[str], bytes | None]


class Outcome(enum.Enum):
    """Say how a stream went."""

    ENDED = "ended"  # all of the job was sent
    BROKEN = "broken"  # something is missing: the answer was begun and is not to be completed
    NOTHING = "nothing"  # nothing was sent: the job has ended, and there is no audio
    LATE = "late"  # nothing was sent: there was no audio within the time
    LEFT = "left"  # the client has gone


class LivePlayer:
    """Serve all live streams of this process.

    Args:
        max_streams: listeners at once; whoever asks looks at `has_room` first.
        watcher: who looks for the listeners; its listeners are counted.
        read: returns an object's bytes; blocking, called in a few threads.
    """

    def __init__(
        self, *, max_streams: int, watcher: LiveWatcher, read: ReadObject = read_object
    ) -> None:
        self.max_streams = max_streams
        self._watcher, self._read = watcher, read
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="live-read")

    @property
    def has_room(self) -> bool:
        return len(self._watcher.listeners) < self.max_streams

    async def stream(
        self, job_id: uuid.UUID, form: str, receive: Receive, send: Send, *, start_seconds: float
    ) -> Outcome:
        """Send a job's audio, s16le in the form `wav` or `pcm`, until the job ends.

        Args:
            start_seconds: how long the first audio is waited for.

        Raises:
            TimeoutError: the client took nothing for too long.
        """
        listener = self._watcher.open(job_id)
        work = self._play(listener, form, send, start_seconds)
        played = await until_left(work, receive, lambda: self._watcher.listeners.discard(listener))
        return Outcome.LEFT if played is None else played

    async def _play(
        self, listener: Listener, form: str, send: Send, start_seconds: float
    ) -> Outcome:
        has_begun = False
        while True:
            step = await self._next(listener, SILENT_SECONDS if has_begun else start_seconds)
            if isinstance(step, Outcome):
                if not has_begun:
                    return step
                place = listener.place
                if listener.is_gone or place is None or not (place.is_over and place.is_whole):
                    return Outcome.BROKEN
                await send_bytes(send, b"", more=False)
                return Outcome.ENDED
            if isinstance(step, Sound):
                if not has_begun:
                    has_begun = True
                    await send_start(send, form, listener.job_id, step.sample_rate)
                if not await self._send_sound(step, send):
                    return Outcome.BROKEN
            else:
                left = step.num_samples * BYTES_PER_SAMPLE
                while left > 0:
                    await _send_part(send, _SILENCE[: min(left, len(_SILENCE))])
                    left -= len(_SILENCE)

    async def _send_sound(self, sound: Sound, send: Send) -> bool:
        """Send a piece; False where its object is gone, as with a deleted job."""
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(self._readers, self._read, sound.key)
        if body is None:
            return False
        await _send_part(send, body[sound.skip * BYTES_PER_SAMPLE :])
        return True

    async def _next(self, listener: Listener, seconds: float) -> Sound | Silence | Outcome:
        """Return what follows, waiting until it is there; an outcome where nothing does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            listener.changed.clear()
            place = listener.place
            if listener.is_gone:
                return Outcome.NOTHING
            if place is not None:
                step = place.step(listener.states)
                if step is not None:
                    return step
                if place.is_over:
                    return Outcome.NOTHING
                if place.window[0] not in listener.states:
                    self._watcher.look_soon()
            try:
                # Python 3.11's wait_for may lose a cancellation, and nothing would wake this again.
                async with asyncio.timeout_at(deadline):
                    await listener.changed.wait()
            except TimeoutError:
                return Outcome.LATE


async def _send_part(send: Send, body: bytes) -> None:
    """Send a part; a client that takes nothing for long loses the stream.

    Raises:
        TimeoutError: it took nothing.
    """
    async with asyncio.timeout(SILENT_SECONDS):
        await send_bytes(send, body)


LIVE_HEADER = "TTS-Live"  # set by the view: the format; never sent on
_PATH = re.compile(r"/api/v1/(jobs)/([0-9a-f-]{36})/audio", re.IGNORECASE)


class LiveStreams:
    """Wrap an ASGI application; streams of audio that is being made are served by this.

    Args:
        start_seconds: how long a listener waits for the first audio.
    """

    def __init__(self, app: AsgiApp, player: LivePlayer, *, start_seconds: float) -> None:
        self._app, self._player = app, player
        self._start_seconds = start_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; everything but a live stream goes through untouched."""
        found = find_row(scope, _PATH, query=b"live=")
        if found is None:
            await self._app(scope, receive, send)
            return
        answer = await ask(self._app, scope, LIVE_HEADER)
        if answer.said is None:  # refused, or a finished file
            await answer.send_on(send)
            return
        if not self._player.has_room:
            await send_no_room(send, self._player.max_streams)
            return
        outcome = await self._player.stream(
            found[1], answer.said, receive, send, start_seconds=self._start_seconds
        )
        if outcome is Outcome.NOTHING:
            answer = await ask(self._app, scope, LIVE_HEADER)  # which says why
            if answer.said is None:
                await answer.send_on(send)
                return
        if outcome in (Outcome.NOTHING, Outcome.LATE):
            await send_not_started(send, found[1], self._start_seconds)
