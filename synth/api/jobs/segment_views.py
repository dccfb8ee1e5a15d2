"""Serve the segments of a job: what came of each, its audio, another take, when it is heard."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import PurePosixPath
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.accounts.authentication import key_of
from synth.api.fields import StrictNumberField, StrictTextField
from synth.api.jobs.requests import find_job
from synth.api.jobs.serializers import SegmentSerializer, has_audio
from synth.jobs.retry import choose, rerender
from synth.jobs.timestamps import Spoken, read_spoken, to_srt, to_vtt
from synth.models import ApiKey, Export, ExportCues, RenderJob, Segment, Take
from synth.transitions.jobs import UNFINISHED
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
    segments = Segment.objects.filter(job=find_job(request, job_id), pk=segment_id)
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


SRT, VTT = "application/x-subrip", "text/vtt"
_SUBTITLES = {"srt": (to_srt, SRT), "vtt": (to_vtt, VTT)}


class TimestampQuerySerializer(serializers.Serializer[Any]):
    """The format of the times."""

    format = serializers.ChoiceField(choices=("json", "srt", "vtt"), default="json")


class SpokenSerializer(serializers.Serializer[Any]):
    """Where a segment is in the file, in seconds; `end` does not include the pause after it."""

    chapter = serializers.IntegerField()
    index = serializers.IntegerField()
    start = serializers.FloatField()
    end = serializers.FloatField()
    start_sample = serializers.IntegerField()
    end_sample = serializers.IntegerField(help_text="Index of the first sample after the segment.")
    text = serializers.CharField()
    speaker = serializers.IntegerField()
    voice = serializers.CharField(
        allow_null=True, help_text="Name of the voice; null for a clip that came with the job."
    )


class TimestampsSerializer(serializers.Serializer[Any]):
    """The segments of a file with their times; failed segments are not in the file."""

    seconds = serializers.FloatField()
    sample_rate = serializers.IntegerField(help_text="Sample rate in Hz, for the sample numbers.")
    segments = SpokenSerializer(many=True)


class WaveformSerializer(serializers.Serializer[Any]):
    """The peak level of each of equal parts of the file."""

    seconds = serializers.FloatField()
    peaks = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=255),
        help_text="At most 1,000 values from 0 to 255; 255 is full scale.",
    )


class JobTimestampsView(APIView):
    @extend_schema(
        operation_id="get_job_timestamps",
        parameters=[TimestampQuerySerializer, *CONDITIONAL_PARAMETERS],
        responses={
            (200, "application/json"): TimestampsSerializer,
            (200, SRT): OpenApiTypes.STR,
            (200, VTT): OpenApiTypes.STR,
            **UNCHANGED,
            **problems(400, 401, 404, 409),
        },
    )
    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponseBase:
        """Return the times of each segment, as JSON or as subtitles."""
        query = read_query(request, TimestampQuerySerializer)
        job, export = _find_file(request, job_id)
        found = ExportCues.objects.filter(export=export).select_related("export").first()
        if found is None:
            raise _not_kept("times")
        form = query["format"]
        if form == "json":
            return conditional(request, Response(_as_json(found, export)))
        return _subtitles(request, job, found, form)


class JobWaveformView(APIView):
    @extend_schema(
        operation_id="get_job_waveform",
        parameters=CONDITIONAL_PARAMETERS,
        responses={200: WaveformSerializer, **UNCHANGED, **problems(400, 401, 404, 409)},
    )
    def get(self, request: Request, job_id: uuid.UUID) -> Response:
        """Return the levels of the waveform, for a player to draw."""
        check_query(request, ())
        _, export = _find_file(request, job_id)
        if not export.peaks:
            raise _not_kept("waveform")
        shown = {"seconds": export.duration_seconds, "peaks": export.peaks}
        return conditional(request, Response(shown))


def _find_file(request: Request, job_id: uuid.UUID) -> tuple[RenderJob, Export]:
    """Return a job that this user may see with its file, or raise why there is none."""
    job = find_job(request, job_id)
    if job.status in UNFINISHED:
        raise ApiProblem(
            409,
            "job_not_finished",
            "The job is not finished yet; ask again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
        )
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    if export is None or not has_audio(job):
        raise without_file(job, "job", "job_without_audio")
    return job, export


def _not_kept(what: str) -> ApiProblem:
    return ApiProblem(
        404,
        "not_kept",
        f"The {what} of this file were not stored when the file was made. Submit the text "
        "again; takes that exist are reused.",
    )


def _as_json(found: ExportCues, export: Export) -> dict[str, Any]:
    rate = found.sample_rate
    return {
        "seconds": export.duration_seconds,
        "sample_rate": rate,
        "segments": [_as_object(one, rate) for one in read_spoken(found)],
    }


def _as_object(one: Spoken, rate: int) -> dict[str, Any]:
    return {
        "chapter": one.chapter,
        "index": one.index,
        "start": one.start / rate,
        "end": one.end / rate,
        "start_sample": one.start,
        "end_sample": one.end,
        "text": one.text,
        "speaker": one.speaker,
        "voice": one.voice,
    }


def _subtitles(request: Request, job: RenderJob, found: ExportCues, form: str) -> HttpResponseBase:
    """Return the times in a format of subtitles, or 304 where the client has just that."""
    write, content_type = _SUBTITLES[form]
    content = write(read_spoken(found), found.sample_rate).encode()
    etag = quote_etag(hashlib.sha256(content).hexdigest()[:32])
    answer = HttpResponse(content, content_type=f"{content_type}; charset=utf-8")
    filename = f"speech-{str(job.pk)[:8]}.{form}"
    answer["Content-Disposition"] = content_disposition_header(False, filename) or "inline"
    answer["ETag"] = etag
    answer["Cache-Control"] = "private, no-cache"
    answer["X-Content-Type-Options"] = "nosniff"
    return get_conditional_response(request._request, etag, response=answer) or answer
