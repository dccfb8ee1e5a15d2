"""Read what a request for speech says."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from rest_framework import serializers

from synth.formats import FORMATS, LIVE_FORMATS, MAX_SPEED, MIN_SPEED
from synth.options.request_fields import StrictNumberField, StrictTextField
from ttsweb.http.api import StrictSerializer, check_query

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
        limit = settings.OPENAI_MAX_INPUT_CHARS
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
    check_query(request, ("stream_format",))
    query = ResultQuerySerializer(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    stream_format: str = query.validated_data["stream_format"]
    return stream_format
