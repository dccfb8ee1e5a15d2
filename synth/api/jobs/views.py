"""Serve jobs over REST, and previews: what would be spoken, before anything is rendered."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpResponse, HttpResponseBase
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import visible_jobs, with_voices
from synth.api.authentication import audit_within, key_of, note_audited
from synth.api.fields import StrictTextField, integer, number, optional_name, string, strings
from synth.api.jobs.requests import (
    IDEMPOTENCY_PARAMETER,
    EntrySerializer,
    JobCreateSerializer,
    JobFormSerializer,
    JobPatchSerializer,
    find_job,
    read_idempotency_key,
    sender_of,
)
from synth.api.jobs.serializers import (
    JobFilterSerializer,
    JobListSerializer,
    JobSerializer,
    SegmentSerializer,
    file_name_of,
    made_export,
    stored_export,
)
from synth.api.option_fields import LanguageField, ListField, PausesField, SpeakersField
from synth.formats import FORMATS
from synth.jobs.options import MAX_JOB_ENTRIES, MAX_JOB_LEXICONS
from synth.jobs.planning import Order, PlannedText, Planner, changes_of
from synth.jobs.removal import delete_job
from synth.jobs.retry import retry
from synth.jobs.submit import submit_job
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER, live_headers
from synth.live.watcher import request_live
from synth.models import ApiKey, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED, cancel_job, change_job
from ttsweb.http.api import ApiProblem, ClipJSONParser, StrictSerializer
from ttsweb.http.fields import StrictBooleanField
from ttsweb.http.nouns import ListView, Noun, accepted_headers, operation, read_body, send_stored
from ttsweb.http.pagination import IndexCursorPagination

_YES, _NO = ("1", "true"), ("0", "false")


class LiveQuerySerializer(StrictSerializer):
    """Whether a job's audio is wanted while it is rendered, and how."""

    live = serializers.ChoiceField(
        choices=(*_YES, *_NO),
        required=False,
        help_text="`1`: send the audio while it is rendered, from the beginning of the text. A job "
        "that has ended sends its file, unless `format` is given too.",
    )
    format = serializers.ChoiceField(
        choices=tuple(FORMATS),
        required=False,
        help_text="Only with `live=1`: the format, if not the job's own. `pcm` are raw samples: "
        "s16le, mono, with the sample rate in the header TTS-Sample-Rate.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace the choices by a bool, and refuse a format of what is not live."""
        is_live = attrs.get("live") in _YES
        if "format" in attrs and not is_live:
            sentence = "`format` works only with `live=1`; send both, or leave `format` out."
            raise serializers.ValidationError({"format": [sentence]}, code="live_required")
        return {"is_live": is_live, "format": attrs.get("format")}


def live_answer(
    request: Request, job: RenderJob, *, is_live: bool, format: str | None
) -> HttpResponseBase | None:
    """Return None where the job's file is wanted, as also of a job that has ended.

    Anything else is an answer without a body, whose header tells LiveStreams to go on with it.
    """
    if not is_live or (job.status in job.FINAL and format is None):
        return None
    if job.status in job.FINAL and not job.segments_done:
        return None  # there is none, and the file's answer says why
    options = LiveOptions.of(job, format)
    answer = HttpResponse(headers=live_headers(options.format, job.pk))
    if request.method != "HEAD":
        request_live(job.pk)
        answer[LIVE_HEADER] = options.to_header()
    return answer


def _shown(jobs: QuerySet[RenderJob]) -> QuerySet[RenderJob]:
    """Add what the serializers read beside the row itself."""
    return with_voices(jobs.annotate(text_start=Left("text", 200)))


def _find(request: Request, job_id: uuid.UUID) -> RenderJob:
    return find_job(request, job_id, _shown)


JOB = Noun("job", JobSerializer, _find, lambda job: job.status in UNFINISHED)


class JobsView(ListView[RenderJob]):
    write_scopes = (ApiKey.Scope.JOBS,)
    lists = ("list_jobs", "List jobs, newest first.")
    serializer_class = JobListSerializer
    parser_classes = (ClipJSONParser, MultiPartParser)
    filters = JobFilterSerializer

    def rows_that(self, condition: Q) -> QuerySet[RenderJob]:
        chosen = RenderJob.objects.filter(condition).order_by().values("pk")
        # Not DISTINCT: that would work out the place in the queue for the jobs of all pages.
        jobs = visible_jobs(self.request.user).filter(pk__in=chosen).defer("text", "lexicon")
        return _shown(jobs)

    @operation(
        "create_job",
        {200: JobSerializer, 202: JobSerializer},
        *(404, 409, 413, 415, 422),
        request={
            "application/json": JobCreateSerializer,
            "multipart/form-data": JobFormSerializer,
        },
        parameters=[IDEMPOTENCY_PARAMETER, *accepted_headers(200)],
    )
    def post(self, request: Request) -> Response:
        """Queue a text. The same Idempotency-Key and body return the job that was made first."""
        key = read_idempotency_key(request)
        is_form = request.content_type.startswith("multipart/")
        reader = JobFormSerializer if is_form else JobCreateSerializer
        serializer = reader(data=request.data, context={"is_form": is_form})
        serializer.is_valid(raise_exception=True)
        order = serializer.validated_data["order"]
        sender = replace(sender_of(request, key), on_made=audit_within(request, status=202))
        job, is_new = submit_job(order, sender)
        if is_new:
            note_audited(request)
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
    @operation("get_job_audio", "audio/*", *(404, 409, 410, 416, 503), query=LiveQuerySerializer)
    def get(self, request: Request, job_id: uuid.UUID, query: dict[str, Any]) -> HttpResponseBase:
        """Return the audio file or a byte range; with `live=1`, send audio while it is rendered."""
        job = _find(request, job_id)
        live = live_answer(request, job, **query)
        if live is not None:
            return live
        export = made_export(job, advice=", or add ?wait= to GET /api/v1/jobs/{id}")
        gone = "The job's audio file is no longer stored; submit the job again."
        return send_stored(request, stored_export(export, file_name_of(job)), "audio_gone", gone)


class JobSegmentsView(ListView[Segment]):
    lists = ("list_job_segments", "List the segments in their order.", 404)
    serializer_class = SegmentSerializer
    pagination_class = IndexCursorPagination
    is_conditional = True

    def rows(self) -> QuerySet[Segment]:
        job = _find(self.request, self.kwargs["job_id"])
        return job.segments.select_related("take", "chapter")


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


class _TextSerializer(StrictSerializer):
    """The fields of every preview."""

    text = StrictTextField(raw=True, help_text="The text to speak.")
    language = LanguageField(
        required=False, help_text="Language of the text; the voice's language if left out."
    )
    lexicon = ListField(
        child=EntrySerializer(),
        most=MAX_JOB_ENTRIES,
        required=False,
        help_text="Entries for this request only.",
    )


class PreviewRequestSerializer(_TextSerializer):
    """The text and options of a job; each field has the same meaning as in a job."""

    voice = optional_name("Id or name of a voice.")
    voices = SpeakersField(
        child=StrictTextField(max_length=100),
        required=False,
        help_text="A voice for each number in the text's tags.",
    )
    lexicons = ListField(
        child=StrictTextField(max_length=100),
        most=MAX_JOB_LEXICONS,
        required=False,
        help_text="Ids or names of lexicons.",
    )
    normalise = StrictBooleanField(
        default=False, help_text="Spell out numbers, dates and the like."
    )
    pauses = PausesField(required=False, help_text="Lengths of pauses in ms, by name.")


class LexiconPreviewRequestSerializer(_TextSerializer):
    """A text, and either a lexicon or entries that are in no lexicon."""

    name = optional_name("Id or name of a lexicon, instead of entries in `lexicon`.")

    described_rules: ClassVar[dict[str, Any]] = {
        "oneOf": [{"required": ["name"]}, {"required": ["lexicon"]}]
    }

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("name" in attrs) == ("lexicon" in attrs):
            sentence = "Send either `name`, the id or name of a lexicon, or entries in `lexicon`."
            raise ApiProblem(400, "lexicon_required", sentence, attr="name")
        return attrs


class ChangeSerializer(serializers.Serializer[Any]):
    """A change that a lexicon or the spelling out of numbers makes."""

    found = string()
    said = string()
    by = string("Name of the lexicon, `job` or `normalise`.")
    start = integer("Position in the text at which `found` begins, counted from 0.")


class PreviewSegmentSerializer(serializers.Serializer[Any]):
    """One segment as it would be rendered."""

    index = integer()
    text = string()
    spoken_text = string()
    speaker = integer()
    pause_after_ms = integer()
    characters = integer("Characters of the spoken text.")
    changes = ChangeSerializer(many=True)


class PreviewSerializer(serializers.Serializer[Any]):
    """The segments and warnings of a job before it is rendered."""

    language = string()
    segments = PreviewSegmentSerializer(many=True)
    characters = integer("Characters of all spoken texts.")
    estimated_seconds = number("Estimated seconds of audio.")
    warnings = strings()


class LexiconPreviewSerializer(serializers.Serializer[Any]):
    """The segments that a lexicon changes; segments without a change are not listed."""

    language = string()
    segments_total = integer()
    segments_changed = integer()
    segments = PreviewSegmentSerializer(many=True)


class PreviewView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation("preview", PreviewSerializer, 404, 409, 413, 415, request=PreviewRequestSerializer)
    def post(self, request: Request) -> Response:
        """Return the segments of a text as a job would speak them.

        Nothing is rendered or stored.
        """
        asked = read_body(request, PreviewRequestSerializer)
        owner: Any = request.user  # permission: never anonymous
        shown = Planner(owner).preview(Order(**asked))
        names = ("language", "characters", "estimated_seconds", "warnings")
        told = {name: getattr(shown, name) for name in names}
        return Response({**told, "segments": segment_rows(shown)})


class LexiconPreviewView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation(
        "preview_lexicon",
        LexiconPreviewSerializer,
        *(404, 409, 413, 415),
        request=LexiconPreviewRequestSerializer,
    )
    def post(self, request: Request) -> Response:
        """Return the segments of a text that one lexicon changes, and how."""
        asked = dict(read_body(request, LexiconPreviewRequestSerializer))
        named = (asked.pop("name"),) if "name" in asked else ()
        owner: Any = request.user  # permission: never anonymous
        shown = Planner(owner).preview_lexicons(Order(**asked, lexicons=named))
        changed = [row for row in segment_rows(shown) if row["changes"]]
        answer = {
            "language": shown.language,
            "segments_total": len(shown.pieces),
            "segments_changed": len(changed),
            "segments": changed,
        }
        return Response(answer)


def segment_rows(shown: PlannedText) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "text": piece.text,
            "spoken_text": piece.spoken_text,
            "speaker": piece.speaker,
            "pause_after_ms": piece.pause_after_ms,
            "characters": len(piece.spoken_text),
            "changes": changes_of(piece),
        }
        for index, piece in enumerate(shown.pieces)
    ]
