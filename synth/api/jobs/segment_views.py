"""Serve the segments of a job one by one: what came of each, its audio, another take of it."""

from __future__ import annotations

import uuid
from pathlib import PurePosixPath
from typing import Any

from django.http import HttpResponseBase
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_jobs
from synth.api.accounts.authentication import key_of
from synth.api.fields import StrictNumberField, StrictTextField
from synth.api.jobs.serializers import SegmentSerializer
from synth.jobs.rerender import choose, rerender
from synth.models import ApiKey, RenderJob, Segment, Take
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.nouns import (
    RANGE,
    accepted_headers,
    file_responses,
    read_body,
    read_query,
    send_stored,
    without_file,
)
from ttsweb.http.ranged import StoredObject
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS

_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)


class RenderAgainSerializer(StrictSerializer):
    """What to change when the segment is rendered again."""

    seed = StrictNumberField(
        low=0,
        high=2**63 - 1,
        whole=True,
        required=False,
        help_text="If left out, the next seed of the segment is used.",
    )
    text = StrictTextField(
        raw=True,
        required=False,
        help_text="The new text of the segment, without tags; earlier takes are removed.",
    )


class TakeIdField(serializers.UUIDField):
    """The id of a take as a text; DRF's own field would make one of a number."""

    def to_internal_value(self, data: Any) -> uuid.UUID:
        """Return the id; anything but its spelling is an error."""
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        return super().to_internal_value(data)


class ChooseSerializer(StrictSerializer):
    """The take to keep."""

    take = TakeIdField(help_text="The `take` of one of the segment's candidates.")


class TakeQuerySerializer(StrictSerializer):
    """The take to listen to."""

    take = TakeIdField(
        required=False, help_text="One of the candidates; if left out, the chosen take."
    )


class SegmentView(APIView):
    """One segment of a job."""

    @extend_schema(
        operation_id="get_job_segment",
        parameters=CONDITIONAL_PARAMETERS,
        responses={200: SegmentSerializer, **UNCHANGED, **problems(400, 401, 404)},
    )
    def get(self, request: Request, job_id: uuid.UUID, segment_id: int) -> Response:
        """Return a segment with the result of its quality check, and its candidates."""
        check_query(request, ())
        segment = _find(request, job_id, segment_id)
        return conditional(request, Response(SegmentSerializer(segment).data))


class SegmentAudioView(APIView):
    """The audio of a segment."""

    @extend_schema(
        operation_id="get_job_segment_audio",
        parameters=[TakeQuerySerializer, RANGE],
        responses=file_responses("audio/flac", 400, 401, 404, 409, 410, 416),
    )
    def get(self, request: Request, job_id: uuid.UUID, segment_id: int) -> HttpResponseBase:
        """Return the audio of a take, or a byte range of it."""
        query = read_query(request, TakeQuerySerializer)
        segment = _find(request, job_id, segment_id)
        take = _take_of(segment, query.get("take"))
        stored = StoredObject(
            key=take.audio_key,
            content_type="audio/flac",
            filename=f"segment-{segment.index}.flac",
            etag=f"{take.content_key}-{PurePosixPath(take.audio_key).stem}",  # no two objects'
        )
        gone = "The take is no longer stored; render the segment again."
        return send_stored(request, stored, "audio_gone", gone)


class SegmentRenderView(APIView):
    """The rendering of a segment once more."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="render_job_segment",
        request=RenderAgainSerializer,
        parameters=accepted_headers(),
        responses={
            200: SegmentSerializer,
            202: SegmentSerializer,
            **problems(400, 401, 404, 409, 413, 415, 429),
        },
    )
    def post(self, request: Request, job_id: uuid.UUID, segment_id: int) -> Response:
        """Render a segment again, with another seed or another text; the rest of the job is kept.

        The job runs again and its file is made again. The same request sent twice renders once.
        """
        asked = read_body(request, RenderAgainSerializer)
        rerender(_find(request, job_id, segment_id), **asked, api_key=key_of(request))
        return _answer(_find(request, job_id, segment_id))


class SegmentChooseView(APIView):
    """The choice among a segment's takes."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="choose_job_segment_take",
        request=ChooseSerializer,
        responses={200: SegmentSerializer, **problems(400, 401, 404, 409, 415)},
    )
    def post(self, request: Request, job_id: uuid.UUID, segment_id: int) -> Response:
        """Choose another take of the segment; nothing is rendered, and the file is made again."""
        asked = read_body(request, ChooseSerializer)
        choose(_find(request, job_id, segment_id), asked["take"])
        return Response(SegmentSerializer(_find(request, job_id, segment_id)).data)


def _find(request: Request, job_id: uuid.UUID, segment_id: int) -> Segment:
    """Return a segment that this user may see, or raise the 404."""
    job = visible_jobs(request.user).filter(pk=job_id)
    if not job.exists():
        raise ApiProblem(404, "job_not_found", "No job that you may see has this id.")
    segments = Segment.objects.filter(job__in=job, pk=segment_id)
    segment = segments.select_related("take", "chapter", "job").defer("job__text").first()
    if segment is None:
        raise ApiProblem(404, "segment_not_found", "The job has no segment with this id.")
    return segment


def _take_of(segment: Segment, take_id: uuid.UUID | None) -> Take:
    if take_id is not None and take_id != segment.take_id:
        take = segment.candidate_takes.filter(pk=take_id).first()
        if take is None:
            raise ApiProblem(
                404, "take_not_found", "The segment has no take with this id.", attr="take"
            )
        return take
    if segment.take is not None:
        return segment.take
    if segment.status in _OPEN and segment.job.status not in RenderJob.FINAL:
        raise ApiProblem(
            409,
            "segment_unfinished",
            "The segment is not rendered yet; ask again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
        )
    raise without_file(segment, "segment", "segment_without_audio")


def _answer(segment: Segment) -> Response:
    """Return a segment as work that goes on (202), or as one that is what was asked for (200)."""
    is_open = segment.status in _OPEN
    answer = Response(SegmentSerializer(segment).data, status=202 if is_open else 200)
    if is_open:
        answer["Location"] = reverse("job-segment", args=[segment.job_id, segment.pk])
        answer["Retry-After"] = str(POLL_SECONDS)
    return answer
