"""Serve what happens to a job over REST."""

from __future__ import annotations

import uuid

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.access import visible_jobs
from synth.event_ids import BadEventIdError, Seen
from synth.event_streams import SEEN_HEADER
from synth.job_events import RETRY_MILLISECONDS, news, read_changed
from synth.models import RenderJob
from ttsweb.api import ApiProblem, check_query
from ttsweb.schema import problems

EVENT_STREAM = "text/event-stream"
_ANY_LENGTH = 10**9  # of the header that the wrapper around Django reads; it goes no further


# One event: what a stream of them is, OpenAPI 3.0 cannot say.
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["state", "segment", "progress", "deleted"]},
        "id": {"type": "string"},
        "data": {"type": "string", "description": "JSON."},
    },
}


class JobEventsView(APIView):
    """What happens to a job, as it happens."""

    @extend_schema(
        operation_id="listen_to_job",
        parameters=[
            OpenApiParameter(
                "Last-Event-ID",
                str,
                OpenApiParameter.HEADER,
                description="Id of the last event that was seen; what came after it is told.",
            )
        ],
        responses={
            (200, EVENT_STREAM): _EVENT,
            204: OpenApiResponse(None, "The job has ended, and all of it was seen."),
            **problems(400, 401, 404, 503),
        },
    )
    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponseBase:
        """Tell events of a job until it ends: `state`, `segment`, `progress`, `deleted`.

        Server-sent events. A client that comes again with the id of the last event gets what it
        has missed; one without an id gets all. Past 15 minutes it has to come again.
        """
        check_query(request, ())
        job = visible_jobs(request.user).defer("text").filter(pk=job_id).first()
        state = read_changed({job.pk: (None,)})[job.pk] if job else None
        if job is None or state is None:
            raise ApiProblem(404, "job_not_found", "There is no such job.")
        seen = _read_seen(request, job)
        text = "".join(news(seen, state))
        if state.is_final and not text:
            return HttpResponse(status=204)  # an EventSource comes again until it gets this
        answer = HttpResponse(f"retry: {RETRY_MILLISECONDS}\n\n{text}", content_type=EVENT_STREAM)
        answer["Cache-Control"] = "private, no-store"
        answer["X-Accel-Buffering"] = "no"  # nginx would keep events back
        if request.method == "GET" and not state.is_final:
            answer[SEEN_HEADER] = seen.event_id(max_chars=_ANY_LENGTH)
        return answer


def _read_seen(request: Request, job: RenderJob) -> Seen:
    """Return what the client says it has seen of the job."""
    event_id = request.headers.get("Last-Event-ID", "").strip()
    if not event_id:
        return Seen()
    try:
        return Seen.from_event_id(event_id, max_segments=job.segments_total)
    except BadEventIdError as error:
        sentence = "This is no event id of this job; leave it out to get all events."
        raise ApiProblem(400, "bad_event_id", sentence, attr="Last-Event-ID") from error
