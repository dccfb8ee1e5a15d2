"""Serve what happens to a job, a batch or a batch of books, without a thread for each stream.

That is `/api/v1/jobs/{id}/events`, and the same below `batches` and `book-batches`.

Django's view decides who may listen, tells what is new so far, and says by a header what the client
has seen with that. From there on one query per round looks at all jobs of all streams of the
process. Without this wrapper an answer ends after what is new so far, and the client asks again.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.api.batches.serializers import find_batch
from synth.api.jobs import events as job_events
from synth.api.jobs.events import read_changed
from synth.api.jobs.requests import find_job
from synth.models import Batch, RenderJob
from ttsweb.http import asgi_ask as asgi
from ttsweb.http.api import ApiProblem
from ttsweb.http.nouns import operation
from ttsweb.http.problems import send_problem

SEEN_HEADER = "TTS-Seen"  # set by the view while the job goes on; never sent on
EVENT_STREAM = "text/event-stream"
POLL_SECONDS = 0.5
REST_PER_LOOK = 4.0  # looks at jobs of ten thousand segments take a fifth of the time at most
KEEP_ALIVE_SECONDS = 15.0  # proxies close what is silent for a minute
MAX_STREAM_SECONDS = 900.0  # then the client comes again, and its key is looked at again
RETRY_SECONDS = 10
_KINDS = {
    "jobs": job_events.CLOSED,
    "batches": job_events.ENDED,
    "book-batches": job_events.ENTRY_STATES,
}  # of what is listened to
_PATH = re.compile(rf"/api/v1/({'|'.join(_KINDS)})/([0-9a-f-]{{36}})/events", re.IGNORECASE)
_ANY_LENGTH = 10**9  # of the header that is read above; it goes no further
_ANY_NUMBER = 10**7  # of segments: the view wrote this id and has checked the client's

ReadChanged = Callable[
    [Mapping[uuid.UUID, Collection[job_events.Mark | None]]],
    Mapping[uuid.UUID, job_events.JobState | None],
]


@dataclass(eq=False)
class _Stream:
    """Hold the newest state that one client is to be told of."""

    job_id: uuid.UUID
    kinds: tuple[str, ...] = job_events.CLOSED
    mark: job_events.Mark | None = None
    job: job_events.JobState | None = None
    is_news: asyncio.Event = field(default_factory=asyncio.Event)


class EventStreams:
    """Wrap an ASGI application; event streams of unfinished jobs are kept open by this.

    Args:
        max_streams: streams that are open at once; what comes on top is answered by a 503.
        read: reads the states of changed jobs; blocking, called in one thread.
    """

    def __init__(
        self, app: asgi.AsgiApp, *, max_streams: int, read: ReadChanged | None = None
    ) -> None:
        self._app, self._max_streams = app, max_streams
        self._watcher = _Watcher(read or read_changed)

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one connection; everything but a stream goes through untouched."""
        stream = _listened_to(scope)
        if stream is None:
            await self._app(scope, receive, send)
            return
        answer = await asgi.ask(self._app, scope, SEEN_HEADER)
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

    async def _stream(
        self, stream: _Stream, answer: asgi.Answer, receive: asgi.Receive, send: asgi.Send
    ) -> None:
        """Send what the view told, then what comes, until the job ends or the client leaves."""
        streams = self._watcher.streams
        streams.add(stream)
        self._watcher.start()
        await asgi.until_left(_tell(stream, answer, send), receive, lambda: streams.discard(stream))


class _Watcher(asgi.Rounds):
    """Look at the jobs of all open streams, round after round, while there are any."""

    thread_name = "job-events"
    failure = "cannot look up the jobs of event streams"

    def __init__(self, read: ReadChanged) -> None:
        super().__init__()
        self._read = read
        self.streams: set[_Stream] = set()

    @property
    def is_wanted(self) -> bool:
        return bool(self.streams)

    async def look(self, run: asgi.Run) -> None:
        # A stream that opens during the look is left to the next one: this one may have
        # begun before its view looked, and would tell it of an older state.
        streams = list(self.streams)
        known: dict[uuid.UUID, set[job_events.Mark | None]] = {}
        for stream in streams:
            known.setdefault(stream.job_id, set()).add(stream.mark)
        found: Mapping[uuid.UUID, job_events.JobState | None] = await run(self._read, known) or {}
        for stream in streams:
            if stream.job_id not in found:
                continue
            job = found[stream.job_id]
            mark = job.mark if job else None
            if job is None or mark != stream.mark:
                stream.job, stream.mark = job, mark
                stream.is_news.set()

    async def rest(self, took: float) -> None:
        await asyncio.sleep(max(POLL_SECONDS, REST_PER_LOOK * took))


async def _tell(stream: _Stream, answer: asgi.Answer, send: asgi.Send) -> None:
    """Send events until the job has ended or is gone, or the time of a stream is over."""
    for message in answer.messages:
        if message["type"] == "http.response.start":
            headers = [h for h in message["headers"] if h[0].lower() != b"content-length"]
            await send({**message, "headers": headers})
        else:
            await send({**message, "more_body": True})
    seen = job_events.Seen.from_event_id(
        answer.said or "", max_segments=_ANY_NUMBER, kinds=stream.kinds
    )
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
        text = (
            "".join(job_events.news(seen, job))
            if job
            else job_events.write_event("deleted", {}, None)
        )
        if text:
            await _send_text(send, text)
        if job is None or job.is_final:
            break
    await send({"type": "http.response.body", "body": b""})


async def _send_text(send: asgi.Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _listened_to(scope: asgi.Scope) -> _Stream | None:
    found = asgi.find_row(scope, _PATH)
    return _Stream(found[1], _KINDS[found[0].lower()]) if found else None


_LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID",
    str,
    OpenApiParameter.HEADER,
    description="Id of the last event that you received; the stream continues after it.",
)


def _event_view(
    operation_id: str,
    does: str,
    events: tuple[str, ...],
    find: Callable[[Request, uuid.UUID], RenderJob | Batch],
    kinds: tuple[str, ...],
    count_parts: Callable[[Any], int],
) -> type[APIView]:
    """Return the view that streams what happens to a job or a batch.

    Args:
        find: returns the row, or raises the 404.
        kinds: what is told of its parts: the ways in which they end, or their states.
        count_parts: how many parts a client can have seen.
    """

    event = {  # what a stream of them is, OpenAPI 3.0 cannot say
        "type": "object",
        "properties": {
            "event": {"type": "string", "enum": list(events)},
            "id": {"type": "string"},
            "data": {"type": "string", "description": "JSON."},
        },
    }
    ended = OpenApiResponse(None, "The job has ended, and you have received all events.")

    class EventView(APIView):
        @operation(
            operation_id,
            {(200, EVENT_STREAM): event, 204: ended},
            *(404, 503),
            parameters=[_LAST_EVENT_ID],
            description=does,
        )
        def get(self, request: Request, **ids: uuid.UUID) -> HttpResponseBase:
            row = find(request, *ids.values())
            answer = _answer(request, row, kinds, count_parts(row))
            return self.get(request, **ids) if answer is None else answer  # now it is a 404

    return EventView


JobEventsView = _event_view(
    "listen_to_job",
    "Stream the events of a job until it ends: `state`, `segment`, `progress`, `deleted`.\n\n"
    "Server-sent events. A client that connects again with the id of the last event gets the\n"
    "events that it missed; without an id it gets all events. A stream ends after 15 minutes;\n"
    "then connect again.",
    ("state", "segment", "progress", "deleted"),
    find_job,
    job_events.CLOSED,
    lambda job: job.segments_total,
)
BatchEventsView = _event_view(
    "listen_to_batch",
    "Stream the events of a batch until it ends: `state`, `item`, `progress`, `deleted`.\n\n"
    "Server-sent events, as those of a job. An `item` event is sent when the item has ended, and\n"
    "when a retry queues it again.",
    ("state", "item", "progress", "deleted"),
    partial(find_batch, kind=Batch.Kind.TEXTS),
    job_events.ENDED,
    lambda batch: batch.items_total,
)
BookBatchEventsView = _event_view(
    "listen_to_book_batch",
    "Stream the events of a batch of books: `state`, `book`, `progress`, `deleted`.\n\n"
    "Server-sent events, as those of a job. A `book` event is sent when\n"
    "its entry's state changes.",
    ("state", "book", "progress", "deleted"),
    partial(find_batch, kind=Batch.Kind.BOOKS),
    job_events.ENTRY_STATES,
    lambda batch: batch.entries.count(),
)


def _answer(
    request: Request, job: RenderJob | Batch, kinds: tuple[str, ...], max_parts: int
) -> HttpResponse | None:
    """Return what is new for a client so far; None where the job was deleted at this moment."""
    state = read_changed({job.pk: (None,)})[job.pk]
    if state is None:
        return None
    seen = _read_seen(request, kinds, max_parts)
    text = "".join(job_events.news(seen, state))
    if state.is_final and not text:
        return HttpResponse(status=204)  # an EventSource comes again until it gets this
    answer = HttpResponse(
        f"retry: {job_events.RETRY_MILLISECONDS}\n\n{text}", content_type=EVENT_STREAM
    )
    answer["Cache-Control"] = "private, no-store"
    answer["X-Accel-Buffering"] = "no"  # nginx would keep events back
    if request.method == "GET" and not state.is_final:
        answer[SEEN_HEADER] = seen.event_id(max_chars=_ANY_LENGTH)
    return answer


def _read_seen(request: Request, kinds: tuple[str, ...], max_parts: int) -> job_events.Seen:
    event_id = request.headers.get("Last-Event-ID", "").strip()
    if not event_id:
        return job_events.Seen(kinds=kinds)
    try:
        seen = job_events.Seen.from_event_id(event_id, max_segments=max_parts, kinds=kinds)
        if kinds != job_events.CLOSED and any(chapter for chapter, _ in seen.closed):
            raise job_events.BadEventIdError(event_id)  # a batch has no chapters
        return seen
    except job_events.BadEventIdError as error:
        sentence = "This event id is not from this address; leave it out to get all events."
        raise ApiProblem(400, "bad_event_id", sentence, attr="Last-Event-ID") from error
