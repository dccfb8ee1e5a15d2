"""Serve jobs over REST."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_jobs
from synth.api.accounts.authentication import key_of
from synth.api.jobs.requests import (
    IDEMPOTENCY_PARAMETER,
    JobCreateSerializer,
    JobFormSerializer,
    JobPatchSerializer,
    digest_of_body,
    find_job,
    read_idempotency_key,
)
from synth.api.jobs.serializers import (
    JobFilterSerializer,
    JobListSerializer,
    JobSerializer,
    SegmentSerializer,
    file_name_of,
    has_audio,
)
from synth.formats import BOOK_FORMATS, LIVE_FORMATS
from synth.jobs.removal import delete_job
from synth.jobs.retry import retry
from synth.jobs.submit import submit_job
from synth.live.streams import LIVE_HEADER, live_headers
from synth.live.watcher import request_live
from synth.models import ApiKey, Export, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED, cancel_job, change_job
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.nouns import (
    RANGE,
    ListView,
    Noun,
    accepted_headers,
    file_responses,
    list_rows,
    send_stored,
    without_file,
)
from ttsweb.http.pagination import IndexCursorPagination
from ttsweb.http.parsers import ClipJSONParser
from ttsweb.http.ranged import StoredObject
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS

_YES, _NO = ("1", "true"), ("0", "false")


class LiveQuerySerializer(StrictSerializer):
    """Whether a job's audio is wanted while it is rendered, and how."""

    live = serializers.ChoiceField(
        choices=(*_YES, *_NO),
        required=False,
        help_text=(
            "`1`: send the audio while it is rendered, from the beginning of the text. A job "
            "that has ended sends its file, unless `format` is given too."
        ),
    )
    format = serializers.ChoiceField(
        choices=LIVE_FORMATS,
        required=False,
        help_text=(
            "Only with `live=1`: a WAV file of unknown length (default), or raw samples: s16le, "
            "mono, with the sample rate in the header TTS-Sample-Rate."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace the choices by a bool, and refuse a format of what is not live."""
        is_live = attrs.get("live") in _YES
        if "format" in attrs and not is_live:
            raise serializers.ValidationError(
                {
                    "format": [
                        "`format` works only with `live=1`; send both, or leave `format` out."
                    ]
                },
                code="live_required",
            )
        return {"is_live": is_live, "format": attrs.get("format")}


def live_answer(request: Request, job: RenderJob) -> HttpResponseBase | None:
    """Return None where the job's file is wanted, as also of a job that has ended.

    Anything else is an answer without a body, whose header tells LiveStreams to go on with it.

    Raises:
        ValidationError: the query is none that is acted on.
        ApiProblem: 409 live_not_possible.
    """
    check_query(request, ("live", "format"))
    query = LiveQuerySerializer(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    form: str | None = query.validated_data["format"]
    if not query.validated_data["is_live"] or (job.status in job.FINAL and form is None):
        return None
    if job.status in job.FINAL and not job.segments_done:
        return None  # there is none, and the file's answer says why
    _check_possible(job)
    chosen = form or LIVE_FORMATS[0]
    answer = HttpResponse(headers=live_headers(chosen, job.pk))
    if request.method != "HEAD":
        request_live(job.pk)
        answer[LIVE_HEADER] = chosen
    return answer


def _check_possible(job: RenderJob) -> None:
    """Refuse what a listener would get otherwise than it was ordered."""
    if job.speed != 1.0:
        raise ApiProblem(
            409,
            "live_not_possible",
            f"This job has the speed {job.speed:g}, which changes only the finished file. "
            "Fetch that file, or submit the text with speed 1 to listen while it is "
            "rendered.",
        )


def _shown(jobs: QuerySet[RenderJob]) -> QuerySet[RenderJob]:
    """Add what the serializers read beside the row itself."""
    return jobs.annotate(text_start=Left("text", 200)).prefetch_related("voices__version__voice")


def _find(request: Request, job_id: uuid.UUID) -> RenderJob:
    return find_job(request, job_id, _shown)


JOB = Noun("job", JobSerializer, _find, lambda job: job.status in UNFINISHED)


class JobsView(ListView[RenderJob]):
    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = JobListSerializer
    parser_classes = (ClipJSONParser, MultiPartParser)

    filters = JobFilterSerializer

    def rows_that(self, condition: Q) -> QuerySet[RenderJob]:
        """Return the jobs that the query's filters let through."""
        chosen = RenderJob.objects.filter(condition).order_by().values("pk")
        # Not DISTINCT: that would work out the place in the queue for the jobs of all pages.
        jobs = visible_jobs(self.request.user).filter(pk__in=chosen).defer("text", "lexicon")
        return _shown(jobs)

    get = list_rows("list_jobs", "List jobs, newest first.", JobListSerializer, filters=filters)

    @extend_schema(
        operation_id="create_job",
        request={"application/json": JobCreateSerializer, "multipart/form-data": JobFormSerializer},
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200)],
        responses={
            200: JobSerializer,
            202: JobSerializer,
            **problems(400, 401, 404, 409, 413, 415, 422),
        },
    )
    def post(self, request: Request) -> Response:
        """Queue a text. The same Idempotency-Key and body return the job that was made first."""
        check_query(request, ())
        key = read_idempotency_key(request)
        is_form = request.content_type.startswith("multipart/")
        reader = JobFormSerializer if is_form else JobCreateSerializer
        serializer = reader(data=request.data, context={"is_form": is_form})
        serializer.is_valid(raise_exception=True)
        job, is_new = submit_job(
            serializer.validated_data["order"],
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            api_key=key_of(request),
            idempotency_key=key,
            body_digest=digest_of_body(request.data) if key else "",
        )
        return JOB.answer(request, job.pk, status=202 if is_new else 200)


class JobView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    get = JOB.getter(
        "get_job",
        "Return a job; with `wait`, the answer comes when the job has ended or the wait is over."
        "\n\n"
        "A request with `If-None-Match` waits for the same time before it is answered with 304.",
        may_wait=True,
    )
    patch = JOB.changer(
        "change_job",
        "Change a job's priority, deadline or retention.\n\n"
        "Fields that are left out do not change.",
        lambda request, job, asked: change_job(job.pk, asked),
        JobPatchSerializer,
        409,
        is_partial=False,
    )
    delete = JOB.deleter("delete_job", "Delete a job in any state, with its files.", delete_job)


class JobAudioView(APIView):
    @extend_schema(
        operation_id="get_job_audio",
        parameters=[LiveQuerySerializer, RANGE],
        responses=file_responses("audio/*", 400, 401, 404, 409, 410, 416, 503),
    )
    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponseBase:
        """Return the audio file or a byte range; with `live=1`, send audio while it is rendered."""
        check_query(request, ("live", "format"))
        job = _find(request, job_id)
        live = live_answer(request, job)
        if live is not None:
            return live
        export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
        if not has_audio(job) or export is None:
            if job.status in UNFINISHED:
                raise ApiProblem(
                    409,
                    "job_not_finished",
                    "The job is not finished yet. Ask again after `Retry-After` seconds, or add "
                    "?wait= to GET /api/v1/jobs/{id}.",
                    retry_after=POLL_SECONDS,
                )
            raise without_file(job, "job", "job_without_audio")
        stored = StoredObject(
            key=export.key,
            content_type=BOOK_FORMATS[export.format].content_type,
            filename=file_name_of(job),
            etag=export.sha256,
        )
        gone = "The job's audio file is no longer stored; submit the job again."
        return send_stored(request, stored, "audio_gone", gone)


class JobSegmentsView(ListView[Segment]):
    serializer_class = SegmentSerializer
    pagination_class = IndexCursorPagination

    def rows(self) -> QuerySet[Segment]:
        job = _find(self.request, self.kwargs["job_id"])
        return job.segments.select_related("take", "chapter")

    get = list_rows(
        "list_job_segments",
        "List the segments in their order.",
        SegmentSerializer,
        404,
        is_conditional=True,
    )


JOB_ACTIONS = {
    "cancel": JOB.action(
        "cancel_job",
        "Cancel a job; a job that has ended is not changed.",
        lambda request, job, _: cancel_job(job.pk),
    ),
    "retry": JOB.action(
        "retry_job",
        "Queue failed and cancelled segments again; finished segments are kept.",
        lambda request, job, _: retry(job, api_key=key_of(request)),
        409,
        is_accepted=True,
    ),
}
