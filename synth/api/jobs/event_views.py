"""Serve what happens to a job, a batch or a batch of books over REST."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.accounts.access import visible_jobs
from synth.api.batches.finding import batch_missing, find_batch
from synth.api.jobs.event_rows import read_changed
from synth.api.jobs.event_streams import SEEN_HEADER
from synth.jobs.event_ids import CLOSED, ENDED, ENTRY_STATES, BadEventIdError, Seen
from synth.jobs.events import RETRY_MILLISECONDS, news
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


class JobEventsView(APIView):
    """What happens to a job, as it happens."""

    @extend_schema(
        operation_id="listen_to_job",
        parameters=[_LAST_EVENT_ID],
        responses=_answers("state", "segment", "progress", "deleted"),
    )
    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponseBase:
        """Stream the events of a job until it ends: `state`, `segment`, `progress`, `deleted`.

        Server-sent events. A client that connects again with the id of the last event gets the
        events that it missed; without an id it gets all events. A stream ends after 15 minutes;
        then connect again.
        """
        check_query(request, ())
        job = visible_jobs(request.user).defer("text").filter(pk=job_id).first()
        answer = _answer(request, job, CLOSED, job.segments_total) if job else None
        if answer is None:
            raise ApiProblem(404, "job_not_found", "No job that you may see has this id.")
        return answer


class BatchEventsView(APIView):
    """What happens to a batch and its items, as it happens."""

    @extend_schema(
        operation_id="listen_to_batch",
        parameters=[_LAST_EVENT_ID],
        responses=_answers("state", "item", "progress", "deleted"),
    )
    def get(self, request: Request, batch_id: uuid.UUID) -> HttpResponseBase:
        """Stream the events of a batch until it ends: `state`, `item`, `progress`, `deleted`.

        Server-sent events, as those of a job. An `item` event is sent when the item has ended, and
        when a retry queues it again.
        """
        check_query(request, ())
        batch = find_batch(request, batch_id, Batch.Kind.TEXTS)
        answer = _answer(request, batch, ENDED, batch.items_total)
        if answer is None:
            raise batch_missing(Batch.Kind.TEXTS)
        return answer


class BookBatchEventsView(APIView):
    """What happens to a batch of books, as it happens."""

    @extend_schema(
        operation_id="listen_to_book_batch",
        parameters=[_LAST_EVENT_ID],
        responses=_answers("state", "book", "progress", "deleted"),
    )
    def get(self, request: Request, batch_id: uuid.UUID) -> HttpResponseBase:
        """Stream the events of a batch of books: `state`, `book`, `progress`, `deleted`.

        Server-sent events, as those of a job. A `book` event is sent when
        its entry's state changes.
        """
        check_query(request, ())
        batch = find_batch(request, batch_id, Batch.Kind.BOOKS)
        answer = _answer(request, batch, ENTRY_STATES, batch.entries.count())
        if answer is None:
            raise batch_missing(Batch.Kind.BOOKS)
        return answer


def _answer(
    request: Request, job: RenderJob | Batch, kinds: tuple[str, ...], max_parts: int
) -> HttpResponse | None:
    """Return what is new for a client so far; None where the job was deleted at this moment.

    Args:
        kinds: what is told of its parts: the ways in which they end, or their states.
        max_parts: how many parts a client can have seen.
    """
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
