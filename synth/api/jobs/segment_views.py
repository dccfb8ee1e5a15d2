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
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.authentication import key_of
from synth.api.fields import (
    StrictTextField,
    integer,
    number,
    optional_whole,
    string,
)
from synth.api.jobs.requests import find_job
from synth.api.jobs.serializers import SegmentSerializer, made_export
from synth.jobs.retry import choose, rerender
from synth.jobs.timestamps import read_spoken, to_srt, to_vtt
from synth.models import ApiKey, ExportCues, RenderJob, Segment, Take
from ttsweb.http import nouns
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.headers import CONDITIONAL_PARAMETERS, UNCHANGED, conditional
from ttsweb.http.ranged import StoredObject
from ttsweb.refusals import POLL_SECONDS

_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)


class RenderAgainSerializer(StrictSerializer):
    """What to change when the segment is rendered again."""

    seed = optional_whole(0, 2**63 - 1, "If left out, the next seed of the segment is used.")
    text = StrictTextField(
        raw=True,
        required=False,
        help_text="The new text of the segment, without tags; earlier takes are removed.",
    )


class TakeIdField(serializers.UUIDField):
    """The id of a take as a text; DRF's own field would make one of a number."""

    def to_internal_value(self, data: Any) -> uuid.UUID:
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


def _find(request: Request, job_id: uuid.UUID, segment_id: int) -> Segment:
    segments = Segment.objects.filter(job=find_job(request, job_id))
    segments = segments.select_related("take", "chapter", "job").defer("job__text")
    missing = "The job has no segment with this id."
    return nouns.get_row(segments, "segment_not_found", missing, pk=segment_id)


SEGMENT = nouns.Noun("job-segment", SegmentSerializer, _find)


class SegmentView(APIView):
    get = SEGMENT.getter(
        "get_job_segment",
        "Return a segment with the result of its quality check, and its candidates.",
        is_conditional=True,
    )


class SegmentAudioView(APIView):
    @nouns.operation(
        "get_job_segment_audio", "audio/flac", *(404, 409, 410, 416), query=TakeQuerySerializer
    )
    def get(
        self, request: Request, job_id: uuid.UUID, segment_id: int, query: dict[str, Any]
    ) -> HttpResponseBase:
        """Return the audio of a take, or a byte range of it."""
        segment = _find(request, job_id, segment_id)
        take = _take_of(segment, query.get("take"))
        stored = StoredObject(
            key=take.audio_key,
            content_type="audio/flac",
            filename=f"segment-{segment.index}.flac",
            etag=f"{take.content_key}-{PurePosixPath(take.audio_key).stem}",  # no two objects'
        )
        gone = "The take is no longer stored; render the segment again."
        return nouns.send_stored(request, stored, "audio_gone", gone)


class SegmentRenderView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @nouns.operation(
        "render_job_segment",
        {200: SegmentSerializer, 202: SegmentSerializer},
        *(404, 409, 413, 415, 429),
        request=RenderAgainSerializer,
        parameters=nouns.accepted_headers(),
    )
    def post(self, request: Request, job_id: uuid.UUID, segment_id: int) -> Response:
        """Render a segment again, with another seed or another text; the rest of the job is kept.

        In a job with history the `followers` of the segment are rendered again as well. The job
        runs again and its file is made again. The same request sent twice renders once.
        """
        asked = nouns.read_body(request, RenderAgainSerializer)
        rerender(_find(request, job_id, segment_id), **asked, api_key=key_of(request))
        segment = _find(request, job_id, segment_id)
        answer = Response(SEGMENT.describe(request, segment))
        if segment.status in _OPEN:
            answer.status_code = 202
            answer["Location"] = reverse("job-segment", args=[job_id, segment_id])
            answer["Retry-After"] = str(POLL_SECONDS)
        return answer


SEGMENT_ACTIONS = {
    "choose": SEGMENT.action(
        "choose_job_segment_take",
        "Choose another take of the segment; the file is made again. Nothing is rendered but, in a "
        "job with history, the segments that were rendered after it.",
        lambda request, segment, asked: choose(segment, asked["take"]),
        *(409, 415),
        body=ChooseSerializer,
    )
}


def _take_of(segment: Segment, take_id: uuid.UUID | None) -> Take:
    if take_id is not None and take_id != segment.take_id:
        take = segment.candidate_takes.filter(pk=take_id).first()
        if take is None:
            sentence = "The segment has no take with this id."
            raise ApiProblem(404, "take_not_found", sentence, attr="take")
        return take
    if segment.take is not None:
        return segment.take
    if segment.status in _OPEN and segment.job.status not in RenderJob.FINAL:
        sentence = "The segment is not rendered yet; ask again after `Retry-After` seconds."
        raise ApiProblem(409, "segment_unfinished", sentence, retry_after=POLL_SECONDS)
    raise nouns.without_file(segment, "segment", "segment_without_audio")


SRT, VTT = "application/x-subrip", "text/vtt"
_SUBTITLES = {"srt": (to_srt, SRT), "vtt": (to_vtt, VTT)}


class SecondsField(serializers.FloatField):
    """A number of samples as seconds, at the `sample_rate` of the context."""

    def to_representation(self, value: Any) -> Any:
        return float(value / self.context["sample_rate"])


class TimestampQuerySerializer(serializers.Serializer[Any]):
    """The format of the times."""

    format = serializers.ChoiceField(choices=("json", "srt", "vtt"), default="json")


class SpokenSerializer(serializers.Serializer[Any]):
    """Where a segment is in the file, in seconds; `end` does not include the pause after it."""

    chapter = integer()
    index = integer()
    start = SecondsField()
    end = SecondsField()
    start_sample = integer(source="start")
    end_sample = integer("Index of the first sample after the segment.", source="end")
    text = string()
    speaker = integer()
    voice = string("Name of the voice; null for a clip that came with the job.", null=True)


class TimestampsSerializer(serializers.Serializer[Any]):
    """The segments of a file with their times; failed segments are not in the file."""

    seconds = number()
    sample_rate = integer("Sample rate in Hz, for the sample numbers.")
    segments = SpokenSerializer(many=True)


class WaveformSerializer(serializers.Serializer[Any]):
    """The peak level of each of equal parts of the file."""

    seconds = number()
    peaks = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=255),
        help_text="At most 1,000 values from 0 to 255; 255 is full scale.",
    )


class JobTimestampsView(APIView):
    @nouns.operation(
        "get_job_timestamps",
        {
            (200, "application/json"): TimestampsSerializer,
            (200, SRT): OpenApiTypes.STR,
            (200, VTT): OpenApiTypes.STR,
            **UNCHANGED,
        },
        *(404, 409),
        query=TimestampQuerySerializer,
        parameters=CONDITIONAL_PARAMETERS,
    )
    def get(self, request: Request, job_id: uuid.UUID, query: dict[str, Any]) -> HttpResponseBase:
        """Return the times of each segment, as JSON or as subtitles."""
        job = find_job(request, job_id)
        cues = ExportCues.objects.filter(export=made_export(job)).select_related("export").first()
        if cues is None:
            raise _not_kept("times")
        rate, spoken = cues.sample_rate, read_spoken(cues)
        if query["format"] == "json":
            found = {"seconds": cues.export.duration_seconds, "sample_rate": rate}
            shown = TimestampsSerializer(
                {**found, "segments": spoken}, context={"sample_rate": rate}
            )
            return conditional(request, Response(shown.data))
        write, content_type = _SUBTITLES[query["format"]]
        content = write(spoken, rate).encode()
        etag = quote_etag(hashlib.sha256(content).hexdigest()[:32])
        filename = f"speech-{str(job.pk)[:8]}.{query['format']}"
        return made_file(request, content, f"{content_type}; charset=utf-8", filename, etag)


class JobWaveformView(APIView):
    @nouns.operation("get_job_waveform", WaveformSerializer, 404, 409, is_conditional=True)
    def get(self, request: Request, job_id: uuid.UUID) -> Response:
        """Return the levels of the waveform, for a player to draw."""
        export = made_export(find_job(request, job_id))
        if not export.peaks:
            raise _not_kept("waveform")
        return Response({"seconds": export.duration_seconds, "peaks": export.peaks})


def made_file(
    request: Request, content: str | bytes, content_type: str, filename: str, etag: str
) -> HttpResponseBase:
    """Return a file that was just made, or a 304 where the client has just that."""
    answer = HttpResponse(content, content_type=content_type)
    answer["Content-Disposition"] = content_disposition_header(False, filename) or "inline"
    answer["ETag"], answer["Cache-Control"] = etag, "private, no-cache"
    answer["X-Content-Type-Options"] = "nosniff"
    return get_conditional_response(request._request, etag, response=answer) or answer


def _not_kept(what: str) -> ApiProblem:
    return ApiProblem(
        404,
        "not_kept",
        f"The {what} of this file were not stored when the file was made. Submit the text "
        "again; takes that exist are reused.",
    )
