"""Serve what happens to a job, a batch or a batch of books over REST."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.api.batches.serializers import find_batch
from synth.api.jobs.event_streams import SEEN_HEADER, read_changed
from synth.api.jobs.requests import find_job
from synth.jobs.events import (
    CLOSED,
    ENDED,
    ENTRY_STATES,
    RETRY_MILLISECONDS,
    BadEventIdError,
    Seen,
    news,
)
from synth.models import Batch, RenderJob
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.schema import problems

EVENT_STREAM = "text/event-stream"
_ANY_LENGTH = 10**9  # of the header that the wrapper around Django reads; it goes no further


_LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID",
    str,
    OpenApiParameter.HEADER,
    description="Id of the last event that you received; the stream continues after it.",
)


def _answers(*events: str) -> dict[Any, Any]:
    """Describe one event: what a stream of them is, OpenAPI 3.0 cannot say."""
    event = {
        "type": "object",
        "properties": {
            "event": {"type": "string", "enum": list(events)},
            "id": {"type": "string"},
            "data": {"type": "string", "description": "JSON."},
        },
    }
    return {
        (200, EVENT_STREAM): event,
        204: OpenApiResponse(None, "The job has ended, and you have received all events."),
        **problems(400, 401, 404, 503),
    }


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

    class EventView(APIView):
        @extend_schema(
            operation_id=operation_id,
            description=does,
            parameters=[_LAST_EVENT_ID],
            responses=_answers(*events),
        )
        def get(self, request: Request, **ids: uuid.UUID) -> HttpResponseBase:
            check_query(request, ())
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
    CLOSED,
    lambda job: job.segments_total,
)
BatchEventsView = _event_view(
    "listen_to_batch",
    "Stream the events of a batch until it ends: `state`, `item`, `progress`, `deleted`.\n\n"
    "Server-sent events, as those of a job. An `item` event is sent when the item has ended, and\n"
    "when a retry queues it again.",
    ("state", "item", "progress", "deleted"),
    partial(find_batch, kind=Batch.Kind.TEXTS),
    ENDED,
    lambda batch: batch.items_total,
)
BookBatchEventsView = _event_view(
    "listen_to_book_batch",
    "Stream the events of a batch of books: `state`, `book`, `progress`, `deleted`.\n\n"
    "Server-sent events, as those of a job. A `book` event is sent when\n"
    "its entry's state changes.",
    ("state", "book", "progress", "deleted"),
    partial(find_batch, kind=Batch.Kind.BOOKS),
    ENTRY_STATES,
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
    text = "".join(news(seen, state))
    if state.is_final and not text:
        return HttpResponse(status=204)  # an EventSource comes again until it gets this
    answer = HttpResponse(f"retry: {RETRY_MILLISECONDS}\n\n{text}", content_type=EVENT_STREAM)
    answer["Cache-Control"] = "private, no-store"
    answer["X-Accel-Buffering"] = "no"  # nginx would keep events back
    if request.method == "GET" and not state.is_final:
        answer[SEEN_HEADER] = seen.event_id(max_chars=_ANY_LENGTH)
    return answer


def _read_seen(request: Request, kinds: tuple[str, ...], max_parts: int) -> Seen:
    """Return what the client says it has seen."""
    event_id = request.headers.get("Last-Event-ID", "").strip()
    if not event_id:
        return Seen(kinds=kinds)
    try:
        seen = Seen.from_event_id(event_id, max_segments=max_parts, kinds=kinds)
        if kinds != CLOSED and any(chapter for chapter, _ in seen.closed):
            raise BadEventIdError(event_id)  # a batch has no chapters
        return seen
    except BadEventIdError as error:
        sentence = "This event id is not from this address; leave it out to get all events."
        raise ApiProblem(400, "bad_event_id", sentence, attr="Last-Event-ID") from error
