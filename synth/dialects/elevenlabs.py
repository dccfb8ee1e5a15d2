"""Speak and list voices as ElevenLabs' API does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from synth.api.fields import StrictNumberField, StrictTextField
from synth.contract import SEED
from synth.dialects.openai_catalogue import model_names
from synth.dialects.speech_calls import (
    LenientSerializer,
    SpeechCall,
    SpeechResultMixin,
    check_name,
    fitting_bit_rate,
    speak,
    unused_names,
    voices_of,
)
from synth.dialects.views import DialectView
from synth.formats import FORMATS, MAX_SPEED, MIN_SPEED, SAMPLE_RATES
from synth.models import ApiKey
from synth.text.languages import language_tag
from ttsweb.http.api import BoundedJSONParser
from ttsweb.http.problems import elevenlabs_error
from voices.access import find_named_voice, offered_voices
from voices.models import Voice

DEFAULT_OUTPUT = "mp3_44100_128"
_OUTPUT = re.compile(r"([a-z0-9]+)_([0-9]{1,6})(?:_([0-9]{1,4}))?")
_KILO = 1000
# What asks for nothing that is not done anyway; any model's name means the loaded one.
_IDLE = ("model_id",)
_NORMALISE = {"on": True, "auto": False, "off": False}


class VoiceSettingsSerializer(LenientSerializer):
    """How the voice is to speak, as far as it can be told."""

    speed = StrictNumberField(low=MIN_SPEED, high=MAX_SPEED, required=False)


class ElevenLabsSpeechSerializer(LenientSerializer):
    """A text to be spoken, with what of ElevenLabs' fields is acted on."""

    text = StrictTextField(raw=True)
    voice_settings = VoiceSettingsSerializer(required=False)
    language_code = serializers.CharField(required=False)
    seed = StrictNumberField(low=SEED.low, high=SEED.high, whole=True, required=False)
    apply_text_normalization = serializers.ChoiceField(choices=list(_NORMALISE), required=False)


def read_elevenlabs_speech(voice_id: str, data: Any, query: Mapping[str, str]) -> SpeechCall:
    """Return what a request asks for.

    Raises:
        ValidationError: a field that is acted on cannot be read.
    """
    serializer = ElevenLabsSpeechSerializer(data=data)
    serializer.is_valid(raise_exception=True)
    values = serializer.validated_data
    ignored = unused_names(query, ("output_format",))
    ignored += unused_names(data, {*serializer.fields, *_IDLE})
    ignored += unused_names(data.get("voice_settings") or {}, ("speed",), "voice_settings.")
    language = language_tag(values.get("language_code", ""))
    if language is None and "language_code" in values:
        ignored.append("language_code")
    output, unfit = read_output_format(query.get("output_format") or DEFAULT_OUTPUT)
    options = {
        **output,
        "speed": values.get("voice_settings", {}).get("speed", 1.0),
        "language": language or "",
        "seed": values.get("seed", 0),
        "normalise": _NORMALISE[values.get("apply_text_normalization", "auto")],
    }
    return SpeechCall(
        text=values["text"],
        options=options,
        find_voices=voices_of([voice_id], WELL_KNOWN),
        ignored=[*ignored, *unfit],
    )


def read_output_format(name: str) -> tuple[dict[str, Any], list[str]]:
    """Return the options of the file that a name such as `mp3_44100_128` means.

    Returns:
        The options, and `output_format` where the format does not have the bit rate.

    Raises:
        ValidationError: there is no such format here.
    """
    found = _OUTPUT.fullmatch(name)
    form, rate, kilobits = found.groups() if found else ("", "0", None)
    sample_rate = int(rate)
    if form not in FORMATS or sample_rate not in FORMATS[form].sample_rates:
        detail = serializers.ErrorDetail(_not_offered(name), code="output_format_unknown")
        raise serializers.ValidationError({"output_format": [detail]})
    asked = int(kilobits) * _KILO if kilobits else None
    bit_rate = fitting_bit_rate(form, sample_rate, asked)
    options = {"format": form, "sample_rate": sample_rate, "bit_rate": bit_rate}
    return options, ["output_format"] if asked != bit_rate else []


def _not_offered(name: str) -> str:
    others = (one for one in FORMATS.values() if one.sample_rates != SAMPLE_RATES)
    rates = "; ".join(
        [_listed(SAMPLE_RATES), *(f"of {one.name} {_listed(one.sample_rates)}" for one in others)]
    )
    return (
        f"There is no output format {name[:40]!r} here. Send one of {', '.join(FORMATS)} with a "
        f"sample rate, such as pcm_24000, and where it has one a bit rate, such as "
        f"{DEFAULT_OUTPUT}. Sample rates are {rates}. There is "
        "no µ-law and no A-law."
    )


def _listed(rates: Sequence[int]) -> str:
    return ", ".join(map(str, rates))


# Voices that its clients have built in or begin with.
WELL_KNOWN = (
    "21m00Tcm4TlvDq8ikWAM",
    "EXAVITQu4vr4xnSDxMaL",
    "JBFqnCBsd6RMkjVDRZzb",
    "pNInz6obpgDQGcFmaJgB",
    "bIHbv24MWmeRgasZH58o",
)
KEY_HEADER = "xi-api-key"


class ElevenLabsView(DialectView):
    """A view that answers errors as ElevenLabs does."""

    dialect = "elevenlabs"
    error_shape = staticmethod(elevenlabs_error)
    params: Mapping[str, str] = {"voice": "voice_id", "format": "output_format"}


class ElevenLabsSpeechView(ElevenLabsView):
    """Both addresses, with `/stream` and without, send audio as soon as there is some."""

    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (BoundedJSONParser,)

    def post(self, request: Request, voice_id: str) -> HttpResponseBase:
        """Speak a text."""
        call = read_elevenlabs_speech(
            check_name(voice_id), request.data, request.query_params.dict()
        )
        return speak(self, request, call, result_route="elevenlabs-speech")


class ElevenLabsSpeechResultView(SpeechResultMixin, ElevenLabsView):
    """The speech of a job that was ordered above."""


class ElevenLabsVoicesView(ElevenLabsView):
    def get(self, request: Request) -> Response:
        """List the voices that can speak at once, by name."""
        self.ignore(request.query_params)
        found = offered_voices(request.user).order_by("name", "pk")
        return Response({"voices": [_voice(voice, request.user) for voice in found]})


class ElevenLabsVoiceView(ElevenLabsView):
    def get(self, request: Request, voice_id: str) -> Response:
        """Show the voice of this id or name."""
        self.ignore(request.query_params)
        user: AbstractBaseUser = request.user  # type: ignore[assignment]  # never anonymous
        voice = find_named_voice(user, check_name(voice_id), may_default=False)
        return Response(_voice(voice, user))


class ElevenLabsModelsView(ElevenLabsView):
    """`GET /v1/models` of a client that puts its key where ElevenLabs has it."""

    def get(self, request: Request) -> Response:
        """List the model by its own name and the names that clients of OpenAI ask for."""
        self.ignore(request.query_params)
        return Response([_model(name) for name in model_names()])


def _voice(voice: Voice, user: Any) -> dict[str, Any]:
    language = {"language": voice.language} if voice.language else {}
    return {
        "voice_id": str(voice.pk),
        "id": str(voice.pk),  # as clients of other servers read it at this address
        "name": voice.name,
        "samples": None,
        "category": "cloned" if voice.owner_id else "premade",
        "labels": language,
        "description": voice.description or None,
        "preview_url": None,
        "available_for_tiers": [],
        "settings": None,
        "sharing": None,
        "high_quality_base_model_ids": [],
        "is_owner": voice.owner_id is not None and voice.owner_id == user.pk,
        "is_legacy": False,
        "is_mixed": False,
        "created_at_unix": int(voice.created_at.timestamp()),
    }


def _model(name: str) -> dict[str, Any]:
    return {
        "model_id": name,
        "name": name,
        "description": "",
        "can_do_text_to_speech": True,
        "can_do_voice_conversion": False,
        "can_be_finetuned": False,
        "can_use_style": False,
        "can_use_speaker_boost": False,
        "serves_pro_voices": False,
        "token_cost_factor": 1.0,
        "requires_alpha_access": False,
        "languages": [],
    }
