"""Serve when each segment of a file is heard, and the file's waveform."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_jobs
from synth.api.jobs.serializers import has_audio
from synth.jobs.timestamps import Spoken, read_spoken, to_srt, to_vtt
from synth.models import Export, ExportCues, RenderJob
from synth.transitions import UNFINISHED
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.etag import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.nouns import read_query
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS

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
    """The times of a job's segments."""

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
    """The waveform of a job's file."""

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
    job = visible_jobs(request.user).defer("text").filter(pk=job_id).first()
    if job is None:
        raise ApiProblem(404, "job_not_found", "No job that you may see has this id.")
    if job.status in UNFINISHED:
        raise ApiProblem(
            409,
            "job_not_finished",
            "The job is not finished yet; ask again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
        )
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    if export is None or not has_audio(job):
        reason = f": {job.error_message}" if job.error_message else "."
        raise ApiProblem(404, "job_without_audio", f"The job is {job.status}{reason}")
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
