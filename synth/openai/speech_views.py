"""Speak a text and answer with its audio, over the same queue as every other job."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request

from synth.accounts.access import visible_jobs
from synth.api.accounts.authentication import key_of
from synth.api.fields import StrictNumberField, StrictTextField
from synth.api.jobs.requests import read_idempotency_key
from synth.api.jobs.serializers import file_name_of
from synth.card import read_card
from synth.formats import FORMATS, LIVE_FORMATS, MAX_SPEED, MIN_SPEED
from synth.jobs.submit import Order, submit_job
from synth.live.streams import LIVE_HEADER
from synth.live.watcher import request_live
from synth.models import ApiKey, Export, RenderJob
from synth.openai.catalogue import check_model
from synth.openai.errors import NO_RETRY, OpenAIView
from synth.openai.speech_wait import THEN_HEADER
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.nouns import read_query
from ttsweb.http.ranged import ObjectMissingError, ObjectResponse, StoredObject, object_response
from ttsweb.leases import database_now
from ttsweb.refusals import POLL_SECONDS, SubmitRejectedError
from voices.access import find_voice, speaking_version
from voices.models import Voice

# Seconds that a call waits for its audio: less than the 600 s after which OpenAI's client gives up.
OPENAI_WAIT_SECONDS = 300.0

JOB_HEADER = "TTS-Job-Id"
_EVENT_BYTES = 48 * 1024


def speech_answer(
    request: HttpRequest,
    job: RenderJob,
    *,
    stream_format: str,
    may_wait: bool = False,
    is_live: bool = False,
) -> HttpResponseBase:
    """Return the audio of a job that has succeeded.

    Args:
        may_wait: let SpeechWait keep the answer for an unfinished job back until the job has ended.
        is_live: let it send the audio while it is rendered.

    Raises:
        ApiProblem: there is no audio; the sentence names the job and where to look for it.
    """
    if job.status in UNFINISHED:
        raise _waiting(job, stream_format, is_live) if may_wait else _not_finished(job)
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    if job.status != RenderJob.Status.SUCCEEDED or export is None:
        raise _without_audio(job)
    try:
        answer = _events(job, export) if stream_format == "sse" else _file(request, job, export)
    except (ObjectMissingError, FileNotFoundError) as error:
        raise _error(
            410,
            "audio_gone",
            f"The audio file of the job {job.pk} is no longer stored; send the request again.",
            job,
        ) from error
    answer.headers[JOB_HEADER] = str(job.pk)
    return answer


def _file(request: HttpRequest, job: RenderJob, export: Export) -> HttpResponseBase:
    stored = StoredObject(
        key=export.key,
        content_type=FORMATS[export.format].content_type,
        filename=file_name_of(job),
        etag=export.sha256,
    )
    answer = object_response(request, stored)
    if answer.status_code == 416:
        message = f"The range lies outside the file, which has {export.size_bytes} bytes."
        raise _error(416, "range_not_satisfiable", message, job)
    return answer


def _events(job: RenderJob, export: Export) -> HttpResponseBase:
    """Return the audio as events, each of which can be decoded by itself."""
    file = default_storage.open(export.key, "rb")
    answer = ObjectResponse(_Events(file, _usage(job)), content_type="text/event-stream")
    answer.headers["Cache-Control"] = "private, no-store"
    answer.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
    return answer


class _Events:
    """Iterate over the events of a file.

    A class and not a generator: closing one that never started would leave the file open.
    """

    def __init__(self, file: File[bytes], usage: dict[str, int]) -> None:
        self._file, self._usage = file, usage
        self.close = file.close

    def __iter__(self) -> Iterator[bytes]:
        while part := self._file.read(_EVENT_BYTES):
            audio = base64.b64encode(part).decode()
            yield _event({"type": "speech.audio.delta", "audio": audio})
        yield _event({"type": "speech.audio.done", "usage": self._usage})


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _usage(job: RenderJob) -> dict[str, int]:
    """Return what a job took: characters in, frames of codes out.

    The web process has no tokenizer, so characters stand for the tokens of the text.
    """
    frames = job.segments.aggregate(frames=Sum("take__frames"))["frames"] or 0
    characters = len(job.text)
    return {
        "input_tokens": characters,
        "output_tokens": frames,
        "total_tokens": characters + frames,
    }


def _waiting(job: RenderJob, stream_format: str, is_live: bool) -> ApiProblem:
    """Return what is answered at once where nobody can wait: the same request joins the job."""
    if OPENAI_WAIT_SECONDS <= 0:
        return _not_finished(job)
    address = reverse("v1-speech", args=[job.pk])
    query = urlencode({"stream_format": stream_format})
    return ApiProblem(
        503,
        "too_many_waiting",
        f"The job {job.pk} is queued, but too many requests are waiting for audio. Send the "
        "same request again, which then waits for this job, or poll GET "
        f"{reverse('job', args=[job.pk])}.",
        retry_after=POLL_SECONDS,
        headers={
            JOB_HEADER: str(job.pk),
            THEN_HEADER: f"{OPENAI_WAIT_SECONDS} {job.pk} {address}?{query}",
            **({LIVE_HEADER: job.format} if is_live else {}),
        },
    )


def _not_finished(job: RenderJob) -> ApiProblem:
    message = (
        f"The job {job.pk} is not finished yet and continues. Poll GET "
        f"{reverse('job', args=[job.pk])}, then fetch "
        f"{reverse('job-audio', args=[job.pk])}; or send the same request again, which "
        "waits for this job again."
    )
    return _error(504, "job_not_finished", message, job)


def _without_audio(job: RenderJob) -> ApiProblem:
    """Return why an ended job has no audio, or not all of it."""
    if job.status == RenderJob.Status.CANCELLED:
        return _error(409, "job_cancelled", f"The job {job.pk} was cancelled.", job)
    message = f"The job {job.pk} is {job.status}: {job.error_message or 'it has no audio.'}"
    if job.status == RenderJob.Status.PARTIAL:
        message += f" Fetch the audio that exists from {reverse('job-audio', args=[job.pk])}."
    return _error(500, job.error_code or "job_failed", message, job)


def _error(status: int, code: str, message: str, job: RenderJob) -> ApiProblem:
    """Return an error that a retry does not mend."""
    return ApiProblem(status, code, message, headers={**NO_RETRY, JOB_HEADER: str(job.pk)})


# Seconds for which an equal call gets the same job's audio: a client's retries all come in them.
OPENAI_REPEAT_SECONDS = 600.0

_KEY_START = "/v1/audio/speech "


def order_speech(
    request: dict[str, Any],
    *,
    owner: AbstractBaseUser,
    api_key: ApiKey | None,
    idempotency_key: str = "",
    is_live: bool = False,
) -> RenderJob:
    """Return the job of a checked request, made now or found.

    Args:
        request: the values of SpeechSerializer.
        idempotency_key: one that the client chose; it then decides alone what is the same.
        is_live: its audio is going to be heard while it is rendered.

    Raises:
        SubmitRejectedError: as `submit_job`.
        CardError: the checkpoint's card cannot be used.
    """
    voice = find_named_voice(owner, request["voice"])
    order = Order(
        text=request["input"],
        voice=voice,
        format=request["response_format"],
        speed=request["speed"],
        live=is_live,
    )
    digest = _digest(order, voice)
    key = idempotency_key or _KEY_START + digest
    if not idempotency_key:
        _let_go_of_old(owner, key)
    job, is_new = submit_job(
        order, owner=owner, api_key=api_key, idempotency_key=key, body_digest=digest
    )
    if is_live and not is_new and job.status in UNFINISHED:
        request_live(job.pk)
    return job


def find_named_voice(owner: AbstractBaseUser, wanted: str) -> Voice:
    """Return the voice of this name or id, or the one that TTS_OPENAI_VOICE_ALIASES names for it.

    Raises:
        SubmitRejectedError: voice_not_found; no voice ever stands in for another by itself.
    """
    try:
        return find_voice(owner, wanted)
    except SubmitRejectedError as error:
        if error.code != "voice_not_found":
            raise
        named = settings.OPENAI_VOICE_ALIASES.get(wanted.lower())
    if named is not None:
        return find_voice(owner, named)
    raise SubmitRejectedError(
        "voice_not_found",
        f"There is no voice {wanted!r}. GET /v1/audio/voices lists the voices; the setting "
        "TTS_OPENAI_VOICE_ALIASES can give a voice this name as well.",
        attr="voice",
    )


def _digest(order: Order, voice: Voice) -> str:
    """Return the digest of all that decides what is heard."""
    version = speaking_version(voice)
    heard = [
        read_card(settings.CHECKPOINT).name,
        str(version.pk),
        order.text,
        order.format,
        float(order.speed),
    ]
    return hashlib.sha256(json.dumps(heard).encode()).hexdigest()


def _let_go_of_old(owner: AbstractBaseUser, key: str) -> None:
    """Take the key from a job that is not to be joined, so that another can have it."""
    jobs = RenderJob.objects.filter(owner_id=owner.pk, idempotency_key=key)
    job = jobs.first()
    if job is not None and not _may_be_joined(job):
        jobs.filter(pk=job.pk).update(idempotency_key="")


def _may_be_joined(job: RenderJob) -> bool:
    """Say whether a job goes on, or succeeded a short time ago and has its file still."""
    if job.status in UNFINISHED:
        return not job.cancel_requested
    if job.status != RenderJob.Status.SUCCEEDED or job.finished_at is None:
        return False
    age = dt.timedelta(seconds=OPENAI_REPEAT_SECONDS)
    recent: QuerySet[RenderJob] = RenderJob.objects.filter(
        pk=job.pk, finished_at__gt=database_now() - age
    )
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    return recent.exists() and export is not None and default_storage.exists(export.key)


OPENAI_MAX_INPUT_CHARS = 4096  # of one call, as in OpenAI's API

STREAM_FORMATS = ("audio", "sse")
RAW_HEADER = "X-Stainless-Raw-Response"  # of the official client's `with_streaming_response`
_MAX_NAME_CHARS = 100
_NO_NAME = re.compile("[\0\ud800-\udfff]").search  # what no database takes


class VoiceField(serializers.Field[Any, Any, Any, Any]):
    """Take a voice as its name, its id, or `{"id": …}`."""

    def to_internal_value(self, data: Any) -> str:
        """Return the name or the id."""
        if isinstance(data, dict) and list(data) == ["id"]:
            data = data["id"]
        if not isinstance(data, str) or not 1 <= len(data) <= _MAX_NAME_CHARS or _NO_NAME(data):
            raise serializers.ValidationError(
                'Send the name or id of a voice as a text, or {"id": …}.', code="invalid"
            )
        return data


class SpeechSerializer(StrictSerializer):
    """A text to be spoken at once."""

    model = StrictTextField(max_length=200)
    input = StrictTextField(raw=True)
    voice = VoiceField()
    instructions = StrictTextField(raw=True, required=False, allow_null=True)
    response_format = serializers.ChoiceField(choices=list(FORMATS), default="mp3")
    speed = StrictNumberField(low=MIN_SPEED, high=MAX_SPEED, default=1.0)
    stream_format = serializers.ChoiceField(choices=STREAM_FORMATS, default="audio")

    def validate_input(self, value: str) -> str:
        """Refuse a text that is better queued than waited for."""
        limit = OPENAI_MAX_INPUT_CHARS
        if len(value) > limit:
            raise serializers.ValidationError(
                f"The text has {len(value)} characters; at most {limit} are allowed here. "
                f"POST /api/v1/jobs takes up to {settings.MAX_TEXT_CHARS} and answers at "
                "once.",
                code="input_too_long",
            )
        return value

    def validate_instructions(self, value: str | None) -> str | None:
        """Refuse what would not be heard."""
        if value and value.strip():
            raise serializers.ValidationError(
                "This model does not follow instructions; leave them out. The voice's clip "
                "decides how it speaks.",
                code="instructions_not_supported",
            )
        return value


def wants_live(request: Any, values: dict[str, Any]) -> bool:
    """Say whether audio is to be sent while it is rendered: asked for, and possible.

    A client that streams says so by `stream_format`, or is the official one, which says it by a
    header. Bare samples and WAV files need no end to begin with; a pace is applied to the whole.
    """
    is_asked = "stream_format" in request.data or request.headers.get(RAW_HEADER) == "stream"
    is_possible = values["response_format"] in LIVE_FORMATS and values["speed"] == 1.0
    return is_asked and is_possible and values["stream_format"] == "audio"


class ResultQuerySerializer(StrictSerializer):
    """How a finished speech is to be sent."""

    stream_format = serializers.ChoiceField(choices=STREAM_FORMATS, default="audio")


def read_result_query(request: Any) -> str:
    """Return the query's `stream_format`; anything beside it is refused."""
    query = read_query(request, ResultQuerySerializer)
    stream_format: str = query["stream_format"]
    return stream_format


class SpeechView(OpenAIView):
    """Speech that is waited for."""

    write_scopes = (ApiKey.Scope.JOBS,)

    def post(self, request: Request) -> HttpResponseBase:
        """Queue the text, or join the job of an equal request; answer with the audio."""
        check_query(request, ())
        idempotency_key = read_idempotency_key(request)
        serializer = SpeechSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        check_model(values["model"])
        is_live = wants_live(request, values)
        job = order_speech(
            values,
            owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
            api_key=key_of(request),
            idempotency_key=idempotency_key,
            is_live=is_live,
        )
        return speech_answer(
            request._request,
            job,
            stream_format=values["stream_format"],
            may_wait=True,
            is_live=is_live,
        )


class SpeechResultView(OpenAIView):
    """The speech of a job that was ordered above; SpeechWait asks here once the job has ended."""

    # It is the end of the answer to the POST above, which a key without `read` may send.
    read_scopes = (ApiKey.Scope.READ, ApiKey.Scope.JOBS)

    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponseBase:
        """Answer with the audio; an unfinished job is not waited for here."""
        stream_format = read_result_query(request)
        job = visible_jobs(request.user).filter(pk=job_id).first()
        if job is None:
            raise ApiProblem(404, "job_not_found", "No job that you may see has this id.")
        return speech_answer(request._request, job, stream_format=stream_format)
