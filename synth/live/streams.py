"""Go on with `GET /api/v1/jobs/{id}/audio?live=1` outside Django, without a thread per listener.

Django's view decides who may listen and to what, and says so by a header. From there on the rows
say which objects follow each other. They go through the listener's own pipeline, a piece at a time,
in one of a few threads, and are sent as fast as the client takes them; no thread waits for a
client. Without this wrapper the answer has no body.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from synth.formats import FORMATS
from synth.live.pipeline import BYTES_PER_SAMPLE, LiveOptions, Pipeline
from synth.live.watcher import Listener, LiveWatcher, Pause, Sound, read_object
from ttsweb.configuration.library import CONTENT_POLICY_HEADER
from ttsweb.http.asgi_ask import AsgiApp, Receive, Scope, Send, ask, find_row, until_left
from ttsweb.http.problems import send_problem

logger = logging.getLogger(__name__)

RATE_HEADER = "TTS-Sample-Rate"
ERROR_TRAILER = "TTS-Error"
RETRY_SECONDS = 5
SILENT_SECONDS = 600.0  # without any audio, or with a client that takes none
THREADS = 4  # that read objects and encode, for all listeners together

ReadObject = Callable[[str], bytes | None]


def live_headers(form: str, job_id: uuid.UUID) -> dict[str, str]:
    """Return the headers that do not depend on the audio."""
    return {
        "Content-Type": FORMATS[form].content_type,
        "Content-Disposition": f'inline; filename="speech-{str(job_id)[:8]}.{form}"',
        "Cache-Control": "private, no-store",
        "Accept-Ranges": "none",
        "X-Accel-Buffering": "no",  # nginx would keep audio back
        "X-Content-Type-Options": "nosniff",
        CONTENT_POLICY_HEADER: "default-src 'none'; sandbox",
        "TTS-Job-Id": str(job_id),
    }


class LiveAnswer:
    """Send audio as the body of one answer while it is made.

    An answer from which something is missing is not completed, unless the client takes trailers
    and the server sends them: then one names the error.

    Args:
        headers: those that do not depend on the audio.
    """

    def __init__(self, scope: Scope, send: Send, headers: Mapping[str, str]) -> None:
        self._send, self._headers = send, headers
        self._has_trailers = _takes_trailers(scope)
        self.has_begun = False

    async def begin(self, sample_rate: int) -> None:
        """Send the headers, once; what follows was encoded at `sample_rate`."""
        if self.has_begun:
            return
        self.has_begun = True
        headers = {**self._headers, RATE_HEADER: str(sample_rate)}
        if self._has_trailers:
            headers["Trailer"] = ERROR_TRAILER
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        start = {"type": "http.response.start", "status": 200, "headers": pairs}
        await self._send({**start, "trailers": True} if self._has_trailers else start)

    async def part(self, audio: bytes) -> None:
        """Send what follows.

        Raises:
            TimeoutError: the client took nothing for long.
        """
        await self._send_body(audio)

    async def finish(self) -> None:
        """Complete the answer: nothing is missing."""
        await self._complete()

    async def fail(self, code: str, sentence: str) -> None:
        """End the answer behind its beginning: something is missing."""
        if self._has_trailers:
            await self._complete(error=code)

    async def _send_body(self, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(SILENT_SECONDS):
            await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def _complete(self, *, error: str = "") -> None:
        await self._send_body(b"", more=False)
        if self._has_trailers:
            pairs = [(ERROR_TRAILER.lower().encode(), error.encode())] if error else []
            await self._send({"type": "http.response.trailers", "headers": pairs})


def _takes_trailers(scope: Scope) -> bool:
    """Say whether the server can send trailers and the client asks for them."""
    if "http.response.trailers" not in (scope.get("extensions") or {}):
        return False
    asked = [value.lower() for name, value in scope["headers"] if name.lower() == b"te"]
    return any(b"trailers" in value for value in asked)


class Outcome(enum.Enum):
    """Say why nothing of a job was sent."""

    NOTHING = "nothing"  # the job has ended, and there is no audio
    LATE = "late"  # there was no audio within the time


class BrokenOffError(Exception):
    """A job's audio cannot be gone on with."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


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
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="live-encode")

    @property
    def has_room(self) -> bool:
        return len(self._watcher.listeners) < self.max_streams

    async def stream(
        self,
        job_id: uuid.UUID,
        options: LiveOptions,
        receive: Receive,
        answer: LiveAnswer,
        *,
        start_seconds: float,
    ) -> Outcome | None:
        """Send a job's audio until the job ends.

        Args:
            start_seconds: how long the first audio is waited for.

        Returns:
            Why nothing was sent, so that the caller has to answer. None where an answer was begun,
            or the client has left.

        Raises:
            TimeoutError: the client took nothing for too long.
        """
        listener = self._watcher.open(job_id)
        work = self._play(listener, options, answer, start_seconds)
        return await until_left(work, receive, lambda: self._watcher.listeners.discard(listener))

    async def _play(
        self, listener: Listener, options: LiveOptions, answer: LiveAnswer, start_seconds: float
    ) -> Outcome | None:
        pipeline: Pipeline | None = None
        while True:
            seconds = start_seconds if pipeline is None else SILENT_SECONDS
            step = await self._next(listener, seconds)
            if isinstance(step, Outcome):
                return await self._end(listener, step, pipeline, answer)
            if pipeline is None:
                if isinstance(step, Pause):
                    continue  # behind a segment that has no samples
                pipeline = await self._run(Pipeline, options, step.sample_rate)
            pieces = self._pieces(pipeline, step)
            try:
                while (piece := await self._run(next, pieces, None)) is not None:
                    await _send_piece(answer, piece, pipeline)
            except BrokenOffError as error:
                if not answer.has_begun:
                    return Outcome.NOTHING
                await answer.fail(error.code, str(error))
                return None

    def _run(self, work: Callable[..., Any], *given: Any) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def _pieces(self, pipeline: Pipeline, step: Sound | Pause) -> Iterator[bytes]:
        """Yield what a listener gets next; blocking.

        Raises:
            BrokenOffError: nothing can follow.
        """
        if isinstance(step, Pause):
            yield from pipeline.pause(step.num_samples)
            return
        try:
            content = self._read(step.key)
        except OSError as error:
            logger.warning("live audio breaks off: object=%s %s", step.key, error)
            sentence = "The audio that follows cannot be read at the moment."
            raise BrokenOffError("live_interrupted", sentence) from error
        if content is None:  # as with a deleted job
            raise BrokenOffError("audio_gone", "The audio that follows is no longer stored.")
        yield pipeline.sound(content[step.skip * BYTES_PER_SAMPLE :])

    async def _end(
        self, listener: Listener, why: Outcome, pipeline: Pipeline | None, answer: LiveAnswer
    ) -> Outcome | None:
        """End the answer, or return why there is none."""
        place = listener.place
        is_over = not listener.is_gone and place is not None and place.is_over
        if pipeline is not None and is_over and place is not None and place.is_whole:
            await _send_piece(answer, await self._run(pipeline.end), pipeline)
            await answer.finish()
        elif not answer.has_begun:
            return why
        elif listener.is_gone:
            await answer.fail("job_not_found", "The job was deleted while it was heard.")
        elif is_over:
            sentence = "Some of the text has no audio; look at the job's segments."
            await answer.fail("segment_without_audio", sentence)
        else:
            sentence = f"No audio came for {SILENT_SECONDS:g} s. The job continues."
            await answer.fail("live_interrupted", sentence)
        return None

    async def _next(self, listener: Listener, seconds: float) -> Sound | Pause | Outcome:
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
                    self._watcher.soon.set()
            try:
                # Python 3.11's wait_for may lose a cancellation, and nothing would wake this again.
                async with asyncio.timeout_at(deadline):
                    await listener.changed.wait()
            except TimeoutError:
                return Outcome.LATE


async def _send_piece(answer: LiveAnswer, piece: bytes, pipeline: Pipeline) -> None:
    """Send a piece; an empty one, as an encoder still keeps all of it, begins nothing."""
    if piece:
        await answer.begin(pipeline.sample_rate)
        await answer.part(piece)


async def _send_problem(send: Send, code: str, detail: str) -> None:
    headers = {"retry-after": str(RETRY_SECONDS), "cache-control": "private, no-store"}
    await send_problem(send, 503, code, detail, headers)


LIVE_HEADER = "TTS-Live"  # set by the view: the options; never sent on
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
            sentence = (
                f"This server has {self._player.max_streams} live listeners, which is its limit. "
                "Try again later, or fetch the file when the job has ended."
            )
            await _send_problem(send, "too_many_live_streams", sentence)
            return
        options = LiveOptions.from_header(answer.said)
        outcome = await self._player.stream(
            found[1],
            options,
            receive,
            LiveAnswer(scope, send, live_headers(options.format, found[1])),
            start_seconds=self._start_seconds,
        )
        if outcome is Outcome.NOTHING:
            answer = await ask(self._app, scope, LIVE_HEADER)  # which says why
            if answer.said is None:
                await answer.send_on(send)
                return
        if outcome is not None:
            sentence = (
                f"The job {found[1]} had no audio within {self._start_seconds:g} s: other jobs "
                "are before it, or no worker is running. The job continues; try again later."
            )
            await _send_problem(send, "live_not_started", sentence)
