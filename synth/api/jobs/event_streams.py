"""Go on with `GET /api/v1/jobs/{id}/events` outside Django, without a thread for each stream.

Those of batches, `/api/v1/batches/{id}/events` and `/api/v1/book-batches/{id}/events`, go on in the
same way.

Django's view decides who may listen, tells what is new so far, and says by a header what the client
has seen with that. From there on one query per round looks at all jobs of all streams of the
process. Without this wrapper an answer ends after what is new so far, and the client asks again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from django.db import close_old_connections, connection

from synth.api.jobs.serializers import has_audio, progress_of
from synth.batches.events import read_batches
from synth.jobs.events import (
    CLOSED,
    ENDED,
    ENTRY_STATES,
    ClosedSegment,
    JobState,
    Mark,
    Seen,
    SegmentKey,
    mark_of,
    news,
    write_event,
)
from synth.models import RenderJob, Segment
from ttsweb.http.asgi_ask import Answer, AsgiApp, Receive, Scope, Send, ask, find_row, until_left
from ttsweb.http.problems import send_problem


def read_changed(known: Mapping[uuid.UUID, Collection[Mark | None]]) -> dict[uuid.UUID, Any]:
    """Return the JobState of each job of which not all `known` marks are the present one.

    One query finds them, and one more reads the segments of those that changed. What is no job is
    looked for among batches; what is gone is None.
    """
    rows = RenderJob.objects.filter(pk__in=list(known)).order_by().defer("text")
    jobs = {job.pk: job for job in rows}
    others = {pk: marks for pk, marks in known.items() if pk not in jobs}
    found: dict[uuid.UUID, JobState | None] = read_batches(others) if others else {}
    changed = [pk for pk, job in jobs.items() if set(known[pk]) != {mark_of(job)}]
    closed: dict[uuid.UUID, dict[SegmentKey, ClosedSegment]] = {pk: {} for pk in changed}
    if changed:
        segments = Segment.objects.filter(job__in=changed, status__in=CLOSED).order_by()
        for pk, chapter, index, status, error_code, seconds in segments.values_list(
            "job", "chapter__index", "index", "status", "error_code", "take__audio_seconds"
        ):
            closed[pk][chapter, index] = ClosedSegment(status, error_code, seconds)
    for pk in changed:
        job = jobs[pk]
        audio_url = f"/api/v1/jobs/{pk}/audio" if has_audio(job) else None
        found[pk] = _state_of(job, progress_of(job), audio_url, closed[pk])
    return found


def _state_of(
    job: Any, progress: float, audio_url: str | None, segments: Mapping[SegmentKey, ClosedSegment]
) -> JobState:
    """Return what events tell of a row and its segments."""
    is_final = job.status in job.FINAL
    counts = (job.segments_done, job.segments_failed, job.segments_cancelled)
    return JobState(
        mark=mark_of(job),
        status=job.status,
        is_final=is_final,
        counts=counts,
        shown_state={
            "status": job.status,
            "final": is_final,
            "error_code": job.error_code,
            "error_message": job.error_message,
            "audio_url": audio_url,
        },
        shown_progress={
            "progress": progress,
            "segments_total": job.segments_total,
            "segments_done": counts[0],
            "segments_failed": counts[1],
            "segments_cancelled": counts[2],
            "audio_seconds": round(job.audio_seconds, 3),
        },
        segments=segments,
    )


SEEN_HEADER = "TTS-Seen"  # set by the view while the job goes on; never sent on
POLL_SECONDS = 0.5
REST_PER_LOOK = 4.0  # looks at jobs of ten thousand segments take a fifth of the time at most
KEEP_ALIVE_SECONDS = 15.0  # proxies close what is silent for a minute
MAX_STREAM_SECONDS = 900.0  # then the client comes again, and its key is looked at again
RETRY_SECONDS = 10
_KINDS = {"jobs": CLOSED, "batches": ENDED, "book-batches": ENTRY_STATES}  # of what is listened to
_PATH = re.compile(rf"/api/v1/({'|'.join(_KINDS)})/([0-9a-f-]{{36}})/events", re.IGNORECASE)
_ANY_NUMBER = 10**7  # of segments: the view wrote this id and has checked the client's

ReadChanged = Callable[
    [Mapping[uuid.UUID, Collection[Mark | None]]], Mapping[uuid.UUID, JobState | None]
]

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Stream:
    """Hold the newest state that one client is to be told of."""

    job_id: uuid.UUID
    kinds: tuple[str, ...] = CLOSED
    mark: Mark | None = None
    job: JobState | None = None
    is_news: asyncio.Event = field(default_factory=asyncio.Event)


class EventStreams:
    """Wrap an ASGI application; event streams of unfinished jobs are kept open by this.

    Args:
        max_streams: streams that are open at once; what comes on top is answered by a 503.
        read: reads the states of changed jobs; blocking, called in one thread.
    """

    def __init__(self, app: AsgiApp, *, max_streams: int, read: ReadChanged | None = None) -> None:
        self._app, self._max_streams = app, max_streams
        self._watcher = _Watcher(read or read_changed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; everything but a stream goes through untouched."""
        stream = _listened_to(scope)
        if stream is None:
            await self._app(scope, receive, send)
            return
        answer = await ask(self._app, scope, SEEN_HEADER)
        if answer.said is None:  # refused, or told to its end
            await answer.send_on(send)
        elif len(self._watcher.streams) >= self._max_streams:
            sentence = (
                f"This server has {self._max_streams} open event streams, which is its limit. "
                "Try again later, or poll the job with ?wait=."
            )
            headers = {"retry-after": str(RETRY_SECONDS)}
            await send_problem(send, 503, "too_many_streams", sentence, headers)
        else:
            await self._stream(stream, answer, receive, send)

    async def _stream(self, stream: _Stream, answer: Answer, receive: Receive, send: Send) -> None:
        """Send what the view told, then what comes, until the job ends or the client leaves."""
        self._watcher.open(stream)
        streams = self._watcher.streams
        await until_left(_tell(stream, answer, send), receive, lambda: streams.discard(stream))


class _Watcher:
    """Look at the jobs of all open streams, round after round, while there are any."""

    def __init__(self, read: ReadChanged) -> None:
        self._read = read
        self.streams: set[_Stream] = set()
        self._rounds: asyncio.Task[None] | None = None

    def open(self, stream: _Stream) -> None:
        """Tell a stream of its job from now on."""
        self.streams.add(stream)
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Look until nobody listens; the thread has one database connection."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="job-events")
        try:
            while self.streams:
                # A stream that opens during the look is left to the next one: this one may have
                # begun before its view looked, and would tell it of an older state.
                streams = list(self.streams)
                known: dict[uuid.UUID, set[Mark | None]] = {}
                for stream in streams:
                    known.setdefault(stream.job_id, set()).add(stream.mark)
                started = loop.time()
                _hand_out(await loop.run_in_executor(thread, self._look, known), streams)
                took = loop.time() - started
                await asyncio.sleep(max(POLL_SECONDS, REST_PER_LOOK * took))
        finally:
            thread.submit(_close_connection)
            thread.shutdown(wait=False)  # waiting here would hold up every other request

    def _look(
        self, known: Mapping[uuid.UUID, Collection[Mark | None]]
    ) -> Mapping[uuid.UUID, JobState | None]:
        """Return what has changed; nothing while the database cannot be asked."""
        try:
            close_old_connections()
            return self._read(known)
        except Exception:
            logger.warning("cannot look up the jobs of event streams", exc_info=True)
            return {}


def _hand_out(found: Mapping[uuid.UUID, JobState | None], streams: Collection[_Stream]) -> None:
    """Give each stream the new state of its job."""
    for stream in streams:
        if stream.job_id not in found:
            continue
        job = found[stream.job_id]
        mark = job.mark if job else None
        if job is None or mark != stream.mark:
            stream.job, stream.mark = job, mark
            stream.is_news.set()


async def _tell(stream: _Stream, answer: Answer, send: Send) -> None:
    """Send events until the job has ended or is gone, or the time of a stream is over."""
    for message in answer.messages:
        if message["type"] == "http.response.start":
            headers = [h for h in message["headers"] if h[0].lower() != b"content-length"]
            await send({**message, "headers": headers})
        else:
            await send({**message, "more_body": True})
    seen = Seen.from_event_id(answer.said or "", max_segments=_ANY_NUMBER, kinds=stream.kinds)
    loop = asyncio.get_running_loop()
    end = loop.time() + MAX_STREAM_SECONDS
    while loop.time() < end:
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                await stream.is_news.wait()
        except TimeoutError:
            await _send_text(send, ": still here\n\n")
            continue
        stream.is_news.clear()
        job = stream.job
        text = "".join(news(seen, job)) if job else write_event("deleted", {}, None)
        if text:
            await _send_text(send, text)
        if job is None or job.is_final:
            break
    await send({"type": "http.response.body", "body": b""})


async def _send_text(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _listened_to(scope: Scope) -> _Stream | None:
    """Return a stream of the job whose events this request is for, if it is such a request."""
    found = find_row(scope, _PATH)
    return _Stream(found[1], _KINDS[found[0].lower()]) if found else None


def _close_connection() -> None:
    """Close the watcher thread's connection; a server has few, and nobody listens now."""
    connection.close()
