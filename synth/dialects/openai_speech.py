"""Speak a text as OpenAI's API does, over the same queue as every other job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from synth.api.fields import ReferenceAudioField, StrictNumberField, StrictTextField
from synth.api.option_fields import LanguageField
from synth.contract import SEED, TEMPERATURE, TOP_K, TOP_P
from synth.dialects.openai_catalogue import check_model
from synth.dialects.speech_calls import (
    STREAM_FORMATS,
    SpeechCall,
    SpeechResultMixin,
    make_clip,
    speak,
)
from synth.dialects.views import OpenAIView
from synth.formats import FORMATS, MAX_SPEED, MIN_SPEED
from synth.jobs.orders import is_url
from synth.models import ApiKey
from synth.text.languages import language_tag
from ttsweb.http.api import ClipJSONParser, StrictSerializer
from ttsweb.http.fields import StrictBooleanField
from ttsweb.refusals import SubmitRejectedError
from voices.access import default_voice, find_named_voice
from voices.models import Voice

OPENAI_MAX_INPUT_CHARS = 4096  # of one call, as in OpenAI's API

# Objects of further fields: the official client merges the first one itself, others send it as it
# stands; the second one is TTS WebUI's. A field beside them takes precedence.
NESTED = ("extra_body", "params")
# Kokoro's letters for languages, which its clients send as `lang_code`.
KOKORO_LANGUAGES = {
    "a": "en-US", "b": "en-GB", "e": "es", "f": "fr-FR", "h": "hi", "i": "it", "j": "ja",
    "p": "pt-BR", "z": "zh",
}  # fmt: skip
_MAX_NAME_CHARS = 100
_NO_NAME = re.compile("[\0\ud800-\udfff]").search  # what no database takes
_BASE64_START = re.compile("[A-Za-z0-9+/]{64}")


class VoiceField(serializers.Field[Any, Any, Any, Any]):
    """Take a voice as its name, its id, or `{"id": …}`."""

    def to_internal_value(self, data: Any) -> str:
        if isinstance(data, dict) and list(data) == ["id"]:
            data = data["id"]
        if not isinstance(data, str) or not 1 <= len(data) <= _MAX_NAME_CHARS or _NO_NAME(data):
            sentence = 'Send the name or id of a voice as a text, or {"id": …}.'
            raise serializers.ValidationError(sentence, code="invalid")
        return data


class ClipField(ReferenceAudioField):
    """Take a clip as a data URL, as bare base64, or by its http(s) URL."""

    def to_internal_value(self, data: Any) -> bytes | str:
        is_bare = isinstance(data, str) and not is_url(data) and _BASE64_START.match(data)
        return super().to_internal_value(f"data:;base64,{data}" if is_bare else data)


class SpeechSerializer(StrictSerializer):
    """A text to be spoken at once.

    With `is_strict` in the context, a model and a voice must be named.
    """

    model = StrictTextField(max_length=200, required=False)
    input = StrictTextField(raw=True)
    voice = VoiceField(required=False)
    instructions = StrictTextField(raw=True, required=False, allow_null=True)
    response_format = serializers.ChoiceField(choices=list(FORMATS), default="mp3")
    speed = StrictNumberField(low=MIN_SPEED, high=MAX_SPEED, default=1.0)
    stream_format = serializers.ChoiceField(choices=STREAM_FORMATS, default="audio")
    stream = StrictBooleanField(default=False)
    seed = StrictNumberField(**asdict(SEED), default=0)
    temperature = StrictNumberField(**asdict(TEMPERATURE), default=None)
    top_p = StrictNumberField(**asdict(TOP_P), default=None)
    top_k = StrictNumberField(**asdict(TOP_K), default=None)
    language = LanguageField(default="")
    ref_audio = ClipField(required=False)
    ref_text = StrictTextField(raw=True, required=False)

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
        if value and value.strip():
            raise serializers.ValidationError(
                "This model does not follow instructions; leave them out. The voice's clip "
                "decides how it speaks.",
                code="instructions_not_supported",
            )
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Make the clip that came along, in `reference`; see that nothing needed is missing."""
        has_clip = "ref_audio" in attrs
        if self.context.get("is_strict"):
            needed = ("model",) if has_clip else ("model", "voice")
            missing = {
                name: [serializers.ErrorDetail("This field is required.", code="required")]
                for name in needed
                if name not in attrs
            }
            if missing:
                raise serializers.ValidationError(missing)
        audio, text = attrs.pop("ref_audio", None), attrs.pop("ref_text", "")
        if not has_clip:
            return {**attrs, "reference": None}
        clip = make_clip(audio, text, audio_attr="ref_audio", text_attr="ref_text")
        return {**attrs, "reference": clip}


def read_speech(data: Any, *, is_strict: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a request, and the names of the fields that were ignored.

    Raises:
        ValidationError: a value cannot be used; where `is_strict`, a field cannot be acted on.
        RefusedError: the clip cannot be used.
    """
    ignored: list[str] = []
    if not is_strict and isinstance(data, Mapping):
        data, ignored = _understood(data)
    serializer = SpeechSerializer(data=data, context={"is_strict": is_strict})
    serializer.is_valid(raise_exception=True)
    values: dict[str, Any] = serializer.validated_data
    if values["reference"] is not None and values.pop("voice", None) is not None:
        ignored.append("voice")
    return values, ignored


def _understood(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that are acted on, in one object, and the names of the others."""
    nested = [name for name in NESTED if isinstance(data.get(name), Mapping)]
    inner = [data[name] for name in nested]
    outer = {name: value for name, value in data.items() if name not in nested}
    known = {*SpeechSerializer().fields, "lang_code"}
    found: dict[str, Any] = {}
    ignored: list[str] = []
    for layer in (outer, *inner):
        for name, value in layer.items():
            if value is None or name not in known:
                ignored.append(name)
            else:
                found.setdefault(name, value)
    ignored += _drop_unusable(found)
    return found, ignored


def _drop_unusable(found: dict[str, Any]) -> list[str]:
    """Take out values that say nothing, or what the model cannot do; return the latter's names."""
    ignored = []
    if _says_something(found.pop("instructions", "")):
        ignored.append("instructions")
    for name in ("voice", "model"):
        if not _says_something(found.get(name, "")):
            found.pop(name, None)
    seed = found.get("seed")
    if str(seed).startswith("-"):  # others take -1 for a seed of their own choice
        del found["seed"]
        ignored.append("seed")
    tags = {name: found.pop(name) for name in ("language", "lang_code") if name in found}
    for name, value in tags.items():
        letters = KOKORO_LANGUAGES if name == "lang_code" else {}
        tag = letters.get(value) or language_tag(value) if isinstance(value, str) else None
        if tag is None or "language" in found:
            ignored.append(name)
        else:
            found["language"] = tag
    if "ref_audio" not in found and found.pop("ref_text", None) is not None:
        ignored.append("ref_text")
    return ignored


def _says_something(value: Any) -> bool:
    return bool(value.strip()) if isinstance(value, str) else True


# What an order takes as it was sent; the others have names of their own in it.
_SAMPLING = ("seed", "temperature", "top_p", "top_k", "language", "speed")


class SpeechView(OpenAIView):
    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (ClipJSONParser,)

    def post(self, request: Request, deployment: str = "") -> HttpResponseBase:
        """Queue the text, or join the job of an equal request; answer with the audio.

        Args:
            deployment: the model's name in an address of Azure's.
        """
        self.check_query(request)
        is_strict = settings.OPENAI_STRICT
        values, ignored = read_speech(request.data, is_strict=is_strict)
        model = values.get("model") or deployment

        def find_voices(owner: AbstractBaseUser) -> Sequence[Voice]:
            if is_strict:
                check_model(model)
            return [] if values["reference"] else [_voice(owner, values.get("voice"), model)]

        call = SpeechCall(
            text=values["input"],
            options={
                "format": values["response_format"],
                **{name: values[name] for name in _SAMPLING},
            },
            find_voices=find_voices,
            reference=values["reference"],
            ignored=ignored,
            stream_format=values["stream_format"],
            may_be_wordless=not is_strict,
        )
        return speak(self, request, call, result_route="v1-speech")


def _voice(owner: AbstractBaseUser, wanted: str | None, model: str) -> Voice:
    """Return the voice that a request means, or the first default voice where it names none.

    Clients made for servers with one voice to each model send the voice's name as the model.

    Raises:
        SubmitRejectedError: voice_not_found, voice_ambiguous_name, voices_not_ready.
    """
    if wanted is not None:
        return find_named_voice(owner, wanted, may_default=not settings.OPENAI_STRICT)
    try:
        # An address may say what no database takes.
        return find_named_voice(owner, model if model.isprintable() else "", may_default=False)
    except SubmitRejectedError:
        return default_voice(owner)


class SpeechResultView(SpeechResultMixin, OpenAIView):
    """The speech of a job that was ordered above."""
