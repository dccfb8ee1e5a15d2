"""Speak a text and answer with its audio, over the same queue as every other job."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import uuid
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.storage import default_storage
from django.db.models import QuerySet
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from synth.accounts.access import visible_jobs
from synth.api.accounts.authentication import key_of
from synth.api.fields import StrictNumberField, StrictTextField
from synth.api.jobs.requests import read_idempotency_key
from synth.card import read_card
from synth.formats import FORMATS, LIVE_FORMATS, MAX_SPEED, MIN_SPEED
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.submit import Order, submit_job
from synth.models import ApiKey, Export, RenderJob
from synth.openai.errors import OpenAIView
from synth.openai.models_view import check_model
from synth.openai.speech_answer import speech_answer
from synth.transitions import UNFINISHED
from synth.transitions.files import request_live
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.nouns import read_query
from ttsweb.leases import database_now
from voices.access import find_voice, speaking_version
from voices.models import Voice

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
