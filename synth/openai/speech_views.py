"""Speak a text and answer with its audio, over the same queue as every other job."""

from __future__ import annotations

import re
import uuid
from typing import Any

from django.conf import settings
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from synth.accounts.access import visible_jobs
from synth.api.accounts.authentication import key_of
from synth.api.fields import StrictNumberField, StrictTextField
from synth.api.jobs.requests import read_idempotency_key
from synth.formats import FORMATS, LIVE_FORMATS, MAX_SPEED, MIN_SPEED
from synth.models import ApiKey
from synth.openai.errors import OpenAIView
from synth.openai.models_view import check_model
from synth.openai.speech_answer import speech_answer
from synth.openai.speech_order import order_speech
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.nouns import read_query

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
